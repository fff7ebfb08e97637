"""What a config is rendered from: the model's spec, verification results, options, and the facts derived from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from repogen.artifacts.built_model import Artifact, BatchReport
    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Array, Signature
    from repogen.targets import Target
    from repogen.triton_config.rules.ensemble_repository import ModelInRepository
    from repogen.triton_config.sections.model import TritonSpec

ONNXRUNTIME = "onnxruntime"

GoldenInputs: TypeAlias = "Callable[[bool], Mapping[str, Array] | None]"
"""Returns the inputs of the first golden case, by name; for True, of the first case with at least one row."""


class DimBounds(Protocol):
    """The bounds of a dynamic dim; the spec's own type has these attributes."""

    @property
    def min(self) -> int:
        """The smallest size."""

    @property
    def max(self) -> int:
        """The largest size."""

    @property
    def example(self) -> int | None:
        """The size used for the export, if the spec sets one."""


class ConfiguredModel(Protocol):
    """The parts of a model's spec that decide its config.pbtxt."""

    @property
    def triton(self) -> TritonSpec:
        """The ``triton:`` section."""

    @property
    def dims(self) -> Mapping[str, DimBounds]:
        """The dynamic dims, by name."""


def no_golden_inputs(batched: bool) -> None:  # noqa: FBT001 - a ``GoldenInputs``
    """Return None: the model has no golden cases."""


@dataclass(frozen=True)
class VerifiedModel:
    """The result of export and validation.

    Attributes:
        artifact: The graph, Python code or ensemble to publish.
        batch: The result of the batching measurement.
        labels: Class names by output, from the model itself; each list becomes a file that the config names.
        golden_inputs: Returns the inputs of a golden case, for warmups.
        models: The models of an ensemble's steps as they will be served, by name.
    """

    artifact: Artifact
    batch: BatchReport
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    golden_inputs: GoldenInputs = no_golden_inputs
    models: Mapping[str, ModelInRepository] = field(default_factory=dict)


@dataclass(frozen=True)
class RenderOptions:
    """Settings that all models of a spec share.

    Attributes:
        target: The Triton release that will serve the model.
        templates: The spec's directory of template overrides.
        root: Directory of the spec, which its paths are relative to.
        gpu: Whether ONNX models run on GPUs if the spec has no instance_group.
        ignored_rules: Codes of rules, or their first characters, whose warnings are not reported.
    """

    target: Target
    templates: Path | None = None
    root: Path = Path()
    gpu: bool = False
    ignored_rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoldenRow:
    """A row of golden values for one input.

    Attributes:
        shape: Shape that the model receives, without the batch.
        file: Name of the file with the values, in the model's ``warmup`` directory.
    """

    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that its config depends on.

    Attributes:
        name: Model name.
        signature: The graph's inputs and outputs, with full shapes.
        max_batch_size: As measured and allowed; 0 if the model does not batch.
        batch_measured: Whether the size of a batch was determined; otherwise, it is that of the spec.
        rows_compared: Whether rows were compared, so that 0 means that they are not independent.
        sizes: Default sizes of dynamic dims in warmups.
        bounds: Smallest and largest size of dynamic dims.
        labels: Name of the label file of each output that has one.
        states: File for the model's ``initial_state`` directory, by the path in the spec.
        golden: A golden row for each input; empty if no warmup uses one.
        backend: Triton's backend; empty for an ensemble.
        gpu: Whether the model runs on GPUs if the spec has no instance_group.
    """

    name: str
    signature: Signature
    max_batch_size: int
    batch_measured: bool = True
    rows_compared: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, NamedFile] = field(default_factory=dict)
    golden: Mapping[str, GoldenRow] = field(default_factory=dict)
    backend: str = ONNXRUNTIME
    gpu: bool = False

    @property
    def batched(self) -> bool:
        """Whether Triton adds the first dim."""
        return self.max_batch_size > 0

    def where(self, path: str) -> str:
        """Return the key path of a part of the model's ``triton:`` section."""
        return f"models.{self.name}.triton.{path}"
