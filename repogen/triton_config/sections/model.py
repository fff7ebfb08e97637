"""The ``triton:`` section of a model: the parts of config.pbtxt that do not follow from the graph.

Sections and keys have the names of Triton's model_config.proto, so that Triton's documentation applies to them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import INT32_MAX, AnyCount, Count, Section, Size, TensorName, must_be
from repogen.triton_config.sections.sequence import SequenceBatchingSpec
from repogen.triton_config.sections.tensors import BatchInputSpec, BatchOutputSpec, InputExtraSpec, OutputExtraSpec

if TYPE_CHECKING:
    from repogen.triton_config.sections.base import KeyPath

AutoOrCount = Annotated[Literal["auto"] | AnyCount, must_be("auto or an integer >= 0")]
Level = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX), must_be("an integer")]
Microseconds = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1), must_be("a number of microseconds >= 0")]
Text = Annotated[str, Field(max_length=4096)]
ParameterValue = Annotated[
    StrictBool | Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)] | Text,
    must_be("a number, true, false, or text"),
]


class QueuePolicySpec(Section):
    """Limits for requests that wait in a queue."""

    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    default_timeout_microseconds: Microseconds = 0
    allow_timeout_override: StrictBool = False
    max_queue_size: Count = 0


class DynamicBatchingSpec(Section):
    """Triton's dynamic batcher."""

    preferred_batch_size: tuple[Size, ...] = ()
    max_queue_delay_microseconds: Count = 0
    preserve_ordering: StrictBool = False
    priority_levels: Count = 0
    default_priority_level: Count = 0
    default_queue_policy: QueuePolicySpec | None = None
    priority_queue_policy: dict[Annotated[int, Field(ge=1, le=INT32_MAX)], QueuePolicySpec] = Field(
        default_factory=dict, description="By priority level"
    )


class ResourceSpec(Section):
    """A rate limiter resource that an instance needs."""

    name: TensorName
    count: Size = 1
    global_: StrictBool = Field(default=False, alias="global", description="Shared by all devices")


class RateLimiterSpec(Section):
    """Resources and priority of an instance in the rate limiter."""

    resources: tuple[ResourceSpec, ...] = ()
    priority: Count = 0


class InstanceGroupSpec(Section):
    """Triton's instance group."""

    count: Size = 1
    kind: Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"] = "KIND_CPU"
    gpus: tuple[Count, ...] = ()
    name: TensorName | None = None
    profile: tuple[Text, ...] = Field(default=(), description="TensorRT only: Triton rejects it for other backends")
    rate_limiter: RateLimiterSpec | None = None
    passive: StrictBool = False
    host_policy: Text = ""


class LatestPolicy(Section):
    """Serve the newest versions."""

    num_versions: Size = 1


class VersionPolicySpec(Section):
    """The versions that Triton serves: exactly one of the three keys."""

    latest: LatestPolicy | None = None
    all: Literal[True] | None = None
    specific: tuple[Size, ...] | None = None


class GraphSpec(Section):
    """Graph optimizations of ONNX Runtime: -1 basic, 1 extended, 2 none; all of them if left out."""

    level: Level = 0


class CudaSpec(Section):
    """CUDA options, mostly for TensorRT."""

    graphs: StrictBool = False
    busy_wait_events: StrictBool = False
    output_copy_stream: StrictBool = False


class AcceleratorSpec(Section):
    """An execution provider of ONNX Runtime."""

    name: Text
    parameters: dict[Text, ParameterValue] = Field(default_factory=dict)


class AcceleratorsSpec(Section):
    """Execution providers; the first one that supports an operator runs it."""

    gpu_execution_accelerator: tuple[AcceleratorSpec, ...] = Field(default=(), description="tensorrt, with parameters")
    cpu_execution_accelerator: tuple[AcceleratorSpec, ...] = Field(default=(), description="openvino")


class PinnedMemorySpec(Section):
    """Whether a buffer uses pinned memory."""

    enable: StrictBool = True


class OptimizationSpec(Section):
    """Optimization settings of a model."""

    graph: GraphSpec | None = None
    priority: Literal["PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"] | None = None
    cuda: CudaSpec | None = None
    execution_accelerators: AcceleratorsSpec | None = None
    input_pinned_memory: PinnedMemorySpec | None = None
    output_pinned_memory: PinnedMemorySpec | None = None
    gather_kernel_buffer_threshold: Count | None = None
    eager_batching: StrictBool | None = None


class WarmupSpec(Section):
    """Requests that Triton runs before the model is ready, with a value for each input."""

    name: TensorName = "warmup"
    batch_size: Size = 1
    count: Size = 1
    data: Literal["zero", "random", "golden"] = Field(
        default="random", description="golden: a row of the golden tensors, in files published with the model"
    )
    sizes: dict[str, Size] = Field(default_factory=dict, description="Sizes of dynamic dims; from dims: if left out")


class ResponseCacheSpec(Section):
    """Whether Triton caches responses for equal requests."""

    enable: StrictBool = True


def parameter_text(value: bool | float | str) -> str:  # noqa: FBT001 - a value of the spec
    """Return a parameter as the text that Triton expects: ``true`` or ``false`` for booleans, JSON for numbers.

    >>> parameter_text(False), parameter_text(2), parameter_text("FP16")
    ('false', '2', 'FP16')
    """
    return value if isinstance(value, str) else json.dumps(value)


class TritonSpec(Section):
    """The parts of config.pbtxt that do not follow from the graph."""

    max_batch_size: AutoOrCount = "auto"
    input: dict[TensorName, InputExtraSpec] = Field(default_factory=dict, description="By name of the graph's input")
    output: dict[TensorName, OutputExtraSpec] = Field(default_factory=dict, description="By name of the graph's output")
    batch_input: tuple[BatchInputSpec, ...] = ()
    batch_output: tuple[BatchOutputSpec, ...] = ()
    dynamic_batching: DynamicBatchingSpec | None = None
    sequence_batching: SequenceBatchingSpec | None = None
    instance_group: tuple[InstanceGroupSpec, ...] = ()
    version_policy: VersionPolicySpec | None = None
    optimization: OptimizationSpec | None = None
    default_model_filename: (
        Annotated[Literal["model.onnx"], must_be("model.onnx: repogen publishes every graph under that name")] | None
    ) = None
    parameters: dict[Text, ParameterValue] = Field(
        default_factory=dict, description="Parameters of the backend: intra_op_thread_count, enable_mem_arena, …"
    )
    metric_tags: dict[Text, Text] = Field(default_factory=dict)
    model_warmup: tuple[WarmupSpec, ...] = ()
    response_cache: ResponseCacheSpec | None = None
    extra: str = Field(
        default="",
        max_length=2**16,
        description="Text of config.pbtxt for fields without a key here; checked like all others",
    )

    @property
    def ragged(self) -> bool:
        """Whether batches are not plain concatenated rows, so that only Triton can form them."""
        return bool(self.batch_input) or any(extra.allow_ragged_batch for extra in self.input.values())

    @property
    def files(self) -> dict[KeyPath, str]:
        """The files that the section names, by key path below ``triton``."""
        labels: dict[KeyPath, str] = {
            ("output", name, "label_filename"): extra.label_filename
            for name, extra in self.output.items()
            if extra.label_filename is not None
        }
        return labels | {
            ("sequence_batching", "state", index, "initial_state", 0, "data_file"): initial.data_file
            for index, state in enumerate(self.sequence_batching.state if self.sequence_batching is not None else ())
            for initial in state.initial_state
            if initial.data_file is not None
        }


NOT_FOR_ENSEMBLES = {
    "dynamic_batching": None,
    "sequence_batching": None,
    "batch_input": (),
    "batch_output": (),
    "instance_group": (),
    "optimization": None,
    "model_warmup": (),
    "default_model_filename": None,
}
"""Keys of ``triton`` that Triton rejects in an ensemble, with their defaults."""
