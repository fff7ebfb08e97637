"""What is known of a model when its config is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Signature
    from repogen.triton_config.sections.model import TritonSpec


ONNXRUNTIME = "onnxruntime"


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
        """The size while the model is exported, where the spec names one."""


class ConfiguredModel(Protocol):
    """The parts of a model's spec that decide its config.pbtxt."""

    @property
    def triton(self) -> TritonSpec:
        """The ``triton:`` section."""

    @property
    def dims(self) -> Mapping[str, DimBounds]:
        """The dynamic dims, by name."""


@dataclass(frozen=True)
class Sample:
    """A golden row of one input, in a file that warmups name.

    Attributes:
        shape: As the model itself sees it, without the batch.
        file: Its name in the model's ``warmup`` directory.
    """

    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class Known:
    """What is known of a model when its config is written.

    Attributes:
        name: Model name.
        signature: The graph's, full shapes.
        max_batch_size: As measured and allowed; 0 when the model does not batch.
        batch_measured: Whether it was measured that rows do not influence each other.
        sizes: Of dynamic dims, for warmups that do not say.
        labels: Name of the label file of each output that has one.
        states: File for the model's ``initial_state`` directory, by the spec's path of it.
        golden: A golden row, by input; empty where no warmup wants one.
        backend: What runs it; empty for an ensemble.
        gpu: Whether it is to run on GPUs where the spec does not say.
    """

    name: str
    signature: Signature
    max_batch_size: int
    batch_measured: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, NamedFile] = field(default_factory=dict)
    golden: Mapping[str, Sample] = field(default_factory=dict)
    backend: str = ONNXRUNTIME
    gpu: bool = False

    @property
    def batched(self) -> bool:
        """Whether Triton adds the first dim itself."""
        return self.max_batch_size > 0

    def where(self, path: str) -> str:
        """Return the key path of a part of the model's ``triton:`` section."""
        return f"models.{self.name}.triton.{path}"
