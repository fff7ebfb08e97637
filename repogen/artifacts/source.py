"""A loaded model, the same for every kind of source: what exporters and validation work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    from repogen.artifacts.steps import EnsembleArtifact, PythonArtifact
    from repogen.artifacts.tensors import Array, Arrays, Signature


@dataclass(frozen=True)
class DimRange:
    """Bounds of a symbolic dim, inclusive, and its size at export.

    Attributes:
        min: Smallest size.
        max: Largest size.
        example: Size of the example inputs, within the bounds and never 1 (exporters fix a size of 1).
    """

    min: int
    max: int
    example: int

    @property
    def other(self) -> int:
        """A size next to the example size, within the bounds if they allow more than one size."""
        return self.example + 1 if self.example < self.max else self.example - 1


class Examples(Protocol):
    """Creates example inputs of any declared size."""

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array per input; the result depends on the arguments only.

        Args:
            sizes: The size of every symbolic dim.
            seed: Seed of random values.
        """


class Reference(Protocol):
    """The model that parity is measured against."""

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name, in the order of the signature.

        Raises:
            SourceError: The model failed on these inputs.
        """


@dataclass(frozen=True)
class Eager:
    """A module for the PyTorch exporters.

    Attributes:
        module: Accepts the inputs positionally in the order of the signature, returns a tuple of tensors.
        attention: Whether its forward calls ``scaled_dot_product_attention``, which can be replaced by eager attention.
    """

    module: torch.nn.Module
    attention: bool = False


@dataclass(frozen=True)
class Program:
    """A ``torch.export`` program, which has its own dynamic dims.

    Attributes:
        program: Its flattened user inputs are the inputs of the signature.
        select: Indices of the outputs in the signature.
        module: The program as a module, like ``Eager.module``.
    """

    program: torch.export.ExportedProgram
    select: tuple[int, ...]
    module: torch.nn.Module


@dataclass(frozen=True)
class Script:
    """A TorchScript module, which is exported with its control flow.

    Attributes:
        module: Its parameters are in the order of the signature.
        select: Indices of the outputs in the signature.
        traced: A module that can be traced, like ``Eager.module``.
    """

    module: torch.jit.ScriptModule
    select: tuple[int, ...]
    traced: torch.nn.Module


@dataclass(frozen=True)
class OnnxFile:
    """An existing graph.

    Attributes:
        path: The file, already checked. Its external data, if any, is in the same directory.
    """

    path: Path


@dataclass(frozen=True)
class PassThroughSource:
    """Python code for Triton's Python backend, or an ensemble: it is validated, but not exported.

    Attributes:
        artifact: What is published.
        published: Runs what is published: a second instance of the code, or the published steps.
        original: Describes the reference in messages.
        served: Describes ``published`` in messages.
        assumed_max_batch: The ``max_batch_size`` in the config that the code received; None for an ensemble.
    """

    artifact: PythonArtifact | EnsembleArtifact
    published: Reference
    original: str
    served: str
    assumed_max_batch: int | None = None


Origin: TypeAlias = "Eager | Program | Script | OnnxFile | PassThroughSource"
"""What the exporters work on."""


@dataclass(frozen=True)
class Companion:
    """A file that is published with the model: tokenizer, labels, license.

    Attributes:
        name: Its name in the version directory.
        path: The file to copy.
        directory: The directory without symlinks that it must not lead out of; None for the one that contains it.
    """

    name: str
    path: Path
    directory: Path | None = None


@dataclass(frozen=True)
class Operators:
    """The user's translations of operators that an exporter does not support.

    Attributes:
        translations: Operator (``torch.ops.ns.name.default``) -> onnxscript function, for dynamo.
        symbolics: ``ns::name`` -> symbolic function, for TorchScript.
    """

    translations: Mapping[object, object] = field(default_factory=dict)
    symbolics: Mapping[str, Callable[..., object]] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceModel:
    """A model with named tensors as inputs and outputs.

    Attributes:
        origin: What the exporters work on.
        signature: Inputs with symbolic dims by name; outputs with their sizes at the example size.
        dims: Symbolic dims by name.
        examples: Creates example inputs.
        reference: Runs the original: in PyTorch (evaluation mode, no gradients), ONNX Runtime or Python.
        notes: Messages for the report.
        files: Data files that the model was loaded from, besides those in the spec; a change starts a new build.
        companions: Files that are published with it.
        precision: ``float16``, ``bfloat16`` or ``qint8`` if the original computes anything in it, which limits parity.
        complex: ``complex64`` or ``complex128`` if the original computes anything in it.
        operators: Translations of the user's operators.
        labels: Class labels by output, in the order of the last axis.
        against: The reference that the spec names; empty if the model is compared with itself.
        stored: The file with the outputs for the example inputs; empty if the original is run for them.
        declare: What to declare if example values were guessed; empty otherwise.
        noise: By output, an absolute difference that is always allowed; set for a lossy graph that is its own source.
    """

    origin: Origin
    signature: Signature
    dims: dict[str, DimRange]
    examples: Examples
    reference: Reference
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    companions: tuple[Companion, ...] = ()
    precision: str = ""
    complex: str = ""
    operators: Operators = field(default_factory=Operators)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    against: str = ""
    stored: str = ""
    declare: str = ""
    noise: Mapping[str, float] = field(default_factory=dict)

    @property
    def example_sizes(self) -> dict[str, int]:
        """The example size of every symbolic dim."""
        return {name: dim.example for name, dim in self.dims.items()}
