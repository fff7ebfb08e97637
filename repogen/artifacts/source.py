"""A model as the exporters and the parity check see it, wherever it came from."""

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
        """A size next to the example's, within the bounds where they leave a choice."""
        return self.example + 1 if self.example < self.max else self.example - 1


class Examples(Protocol):
    """Makes example inputs of any declared size."""

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array for each input; ``sizes`` gives every symbolic dim. The same arguments, the same arrays."""


class Reference(Protocol):
    """The model that parity is measured against."""

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name, in the order of the signature.

        Raises:
            SourceError: The model itself refused these inputs.
        """


@dataclass(frozen=True)
class Eager:
    """A module that both exporters can run.

    Attributes:
        module: Takes the inputs positionally in the order of the signature, returns a tuple of tensors.
        attention: Whether its forward calls ``scaled_dot_product_attention``, which has an eager form to fall back on.
    """

    module: torch.nn.Module
    attention: bool = False


@dataclass(frozen=True)
class Program:
    """A program of ``torch.export``, with its own dynamic dims.

    Attributes:
        program: Its user inputs, flattened, are the signature's.
        select: Indices of the outputs that the signature has.
        module: The same as a module, as ``Eager`` has it.
    """

    program: torch.export.ExportedProgram
    select: tuple[int, ...]
    module: torch.nn.Module


@dataclass(frozen=True)
class Script:
    """A TorchScript module, exported as it is: its control flow stays.

    Attributes:
        module: Takes its inputs in the order of the signature.
        select: Indices of the outputs that the signature has.
        traced: The same in a module that can be traced, as ``Eager`` has it.
    """

    module: torch.jit.ScriptModule
    select: tuple[int, ...]
    traced: torch.nn.Module


@dataclass(frozen=True)
class OnnxFile:
    """A graph that exists already.

    Attributes:
        path: The file, checked; its external data, if any, lies in its directory.
    """

    path: Path


@dataclass(frozen=True)
class PassThroughSource:
    """Python code for Triton's Python backend, or an ensemble: nothing to export, only to prove.

    Attributes:
        artifact: What is published.
        published: What is published, as it will run: a fresh instance of the code, the published steps composed.
        original: What the reference is, for people.
        served: What ``published`` is, for people.
        assumed_max_batch: The ``max_batch_size`` that the code read in its config; None for what reads none.
    """

    artifact: PythonArtifact | EnsembleArtifact
    published: Reference
    original: str
    served: str
    assumed_max_batch: int | None = None


Origin: TypeAlias = "Eager | Program | Script | OnnxFile | PassThroughSource"
"""What there is to export."""


@dataclass(frozen=True)
class Companion:
    """A file that travels with the model into its version: tokenizer, labels, license.

    Attributes:
        name: Its name in the version, without directories.
        path: Where it lies now.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Operators:
    """What the user says of operators that an exporter does not know.

    Attributes:
        translations: Operator (``torch.ops.ns.name.default``) -> onnxscript function, for dynamo.
        symbolics: ``ns::name`` -> symbolic function, for TorchScript.
    """

    translations: Mapping[object, object] = field(default_factory=dict)
    symbolics: Mapping[str, Callable[..., object]] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceModel:
    """A model with flat named tensors in and out.

    Attributes:
        origin: What there is to export.
        signature: Inputs with symbolic dims by name; outputs with the dims seen at the example size.
        dims: Symbolic dims by name.
        examples: Maker of example inputs.
        reference: Runs the original: in PyTorch in evaluation mode without gradients, or in ONNX Runtime.
        notes: What was mended on the way, for people.
        files: Data files that the model was made of, beyond those that the spec names: a change of one is a new build.
        companions: Files that travel with it.
        precision: ``float16`` or ``bfloat16`` when the original computes anything in it, and so agrees no closer.
        operators: Translations of the user's own operators.
        labels: Class labels by output, in the order of its last axis.
        against: What the spec has the model compared with, where that is not the model itself.
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
    operators: Operators = field(default_factory=Operators)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    against: str = ""

    @property
    def example_sizes(self) -> dict[str, int]:
        """Every symbolic dim at its example size."""
        return {name: dim.example for name, dim in self.dims.items()}
