"""The ``triton:`` section of a model: the parts of config.pbtxt that do not follow from the graph.

Sections and keys have the names of Triton's model_config.proto, so that Triton's documentation applies to them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import INT32_MAX, AnyCount, AnySize, Count, Section, Size, TensorName, must_be
from repogen.triton_config.sections.sequence import SequenceBatchingSpec
from repogen.triton_config.sections.tensors import BatchInputSpec, BatchOutputSpec, InputExtraSpec, OutputExtraSpec

if TYPE_CHECKING:
    from repogen.triton_config.sections.base import KeyPath

AutoOrCount = Annotated[Literal["auto"] | AnyCount, must_be("auto or an integer >= 0")]
AutoOrSize = Annotated[Literal["auto"] | AnySize, must_be("auto or an integer >= 1")]
Level = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX), must_be("an integer")]
Microseconds = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1), must_be("a number of microseconds >= 0")]
Text = Annotated[str, Field(max_length=4096)]
ParameterValue = Annotated[
    StrictBool | Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)] | Text,
    must_be("a number, true, false, or text"),
]


class QueuePolicySpec(Section):
    """Limits for requests that wait in a queue."""

    timeout_action: Literal["REJECT", "DELAY"] = Field(
        default="REJECT", description="What happens to a request that times out; DELAY processes it after the others"
    )
    default_timeout_microseconds: Microseconds = Field(
        default=0, description="Timeout of a request that does not set one; 0 for none"
    )
    allow_timeout_override: StrictBool = Field(default=False, description="Whether a request may set a shorter timeout")
    max_queue_size: Count = Field(default=0, description="Number of requests that may wait; 0 for no limit")


class DynamicBatchingSpec(Section):
    """Triton's dynamic batcher."""

    preferred_batch_size: tuple[Size, ...] = Field(default=(), description="Batch sizes that Triton tries to form")
    max_queue_delay_microseconds: Count = Field(
        default=0, description="Longest time that a request waits for others in a batch"
    )
    preserve_ordering: StrictBool = Field(
        default=False, description="Whether responses are sent in the order of the requests"
    )
    priority_levels: Count = Field(default=0, description="Number of priority levels; 0 for none")
    default_priority_level: Count = Field(default=0, description="Level of a request that does not set one")
    default_queue_policy: QueuePolicySpec | None = None
    priority_queue_policy: dict[Annotated[int, Field(ge=1, le=INT32_MAX)], QueuePolicySpec] = Field(
        default_factory=dict, description="Queue policies by priority level"
    )


class ResourceSpec(Section):
    """A rate limiter resource that an instance needs."""

    name: TensorName = Field(description="Name of the resource")
    count: Size = Field(default=1, description="Number that an instance needs")
    global_: StrictBool = Field(default=False, alias="global", description="Shared by all devices")


class RateLimiterSpec(Section):
    """Resources and priority of an instance in the rate limiter."""

    resources: tuple[ResourceSpec, ...] = Field(
        default=(), description="Resources that must be free before an instance runs"
    )
    priority: Count = Field(default=0, description="Weight: an instance with 2 runs half as often as one with 1")


class InstanceGroupSpec(Section):
    """Triton's instance group."""

    count: AutoOrSize = Field(
        default=1,
        description="Number of instances; for KIND_GPU, on each GPU; auto: Triton's default for device and backend",
    )
    kind: Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"] = Field(
        default="KIND_CPU", description="Device of the instances"
    )
    gpus: tuple[Count, ...] = Field(default=(), description="Numbers of the GPUs; all GPUs if omitted")
    name: TensorName | None = Field(default=None, description="Name of the group")
    profile: tuple[Text, ...] = Field(
        default=(),
        description="Rejected, because only Triton's TensorRT backend supports it; with tensorrt:, profiles follow "
        "from the verified sizes",
    )
    rate_limiter: RateLimiterSpec | None = None
    passive: StrictBool = Field(
        default=False, description="Whether the instances are loaded without receiving requests"
    )
    host_policy: Text = Field(default="", description="Name of a host policy of the server")


class LatestPolicy(Section):
    """Serve the newest versions."""

    num_versions: Size = Field(default=1, description="Number of versions")


class VersionPolicySpec(Section):
    """The versions that Triton serves: exactly one of the three keys."""

    latest: LatestPolicy | None = None
    all: Literal[True] | None = Field(default=None, description="Serve all versions")
    specific: tuple[Size, ...] | None = Field(default=None, description="Serve these versions")


class GraphSpec(Section):
    """Graph optimizations of ONNX Runtime: -1 basic, 1 extended, 2 none; all of them if omitted."""

    level: Level = Field(default=0, description="-1 basic, 0 all, 1 extended, 2 none")


class CudaSpec(Section):
    """CUDA options, mostly for TensorRT."""

    graphs: StrictBool = Field(default=False, description="Whether CUDA graphs are used")
    busy_wait_events: StrictBool = Field(
        default=False, description="Whether the CPU waits for CUDA events in a busy loop"
    )
    output_copy_stream: StrictBool = Field(
        default=False, description="Whether outputs are copied in a CUDA stream of their own"
    )


class AcceleratorSpec(Section):
    """An execution provider of ONNX Runtime."""

    name: Text = Field(description="Name of the execution provider")
    parameters: dict[Text, ParameterValue] = Field(
        default_factory=dict, description="Parameters of the execution provider"
    )


class AcceleratorsSpec(Section):
    """Execution providers; the first one that supports an operator runs it."""

    gpu_execution_accelerator: tuple[AcceleratorSpec, ...] = Field(
        default=(), description="For instances on a GPU, such as tensorrt"
    )
    cpu_execution_accelerator: tuple[AcceleratorSpec, ...] = Field(
        default=(), description="For instances on the CPU: openvino"
    )


class PinnedMemorySpec(Section):
    """Whether a buffer uses pinned memory."""

    enable: StrictBool = Field(default=True, description="Whether pinned memory is used")


class OptimizationSpec(Section):
    """Optimization settings of a model."""

    graph: GraphSpec | None = None
    priority: Literal["PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"] | None = Field(
        default=None, description="Priority of the model, for backends that support it"
    )
    cuda: CudaSpec | None = None
    execution_accelerators: AcceleratorsSpec | None = None
    input_pinned_memory: PinnedMemorySpec | None = None
    output_pinned_memory: PinnedMemorySpec | None = None
    gather_kernel_buffer_threshold: Count | None = Field(
        default=None, description="Smallest number of buffers that a CUDA kernel gathers"
    )
    eager_batching: StrictBool | None = Field(
        default=None, description="Whether the next batch is prepared before an instance is free"
    )


class WarmupSpec(Section):
    """Requests that Triton runs before the model is ready, with a value for each input."""

    name: TensorName = Field(default="warmup", description="Name of the warmup")
    batch_size: Size = Field(default=1, description="Batch size of the request")
    count: Size = Field(default=1, description="Number of times that the request is run")
    data: Literal["zero", "random", "golden"] = Field(
        default="random", description="golden: a row of the golden tensors, in files published with the model"
    )
    sizes: dict[str, Size] = Field(
        default_factory=dict,
        description="Sizes of dynamic dims; if omitted, the example in dims:, or else 16, limited by its min and max",
    )


class TensorRTSpec(Section):
    """TensorRT for a graph on GPUs: profiles and warmups follow from the verified sizes."""

    precision: Literal["fp32", "fp16", "bf16", "int8"] = Field(
        default="fp32",
        description="Lowest precision that TensorRT may use; releases up to 26.06 accept fp16 and int8, and 26.02 to "
        "26.06 also accept bf16; later releases use the types of the graph, and accept only fp32 here",
    )
    cache: (
        Annotated[str, Field(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]*$"), must_be("an absolute path")] | None
    ) = Field(
        default=None, description="Directory on the server that keeps engines and timings; none are kept if omitted"
    )
    workspace_mb: Size | None = Field(
        default=None, description="Memory that TensorRT may use to build an engine, in MiB"
    )
    warmup: StrictBool = Field(
        default=True,
        description="Whether requests of the minimum, optimum and maximum sizes run before the model is ready, unless "
        "model_warmup is set",
    )
    parameters: dict[Text, ParameterValue] = Field(
        default_factory=dict,
        description="More parameters of the accelerator; each replaces repogen's parameter of the same name",
    )


class ResponseCacheSpec(Section):
    """Whether Triton caches responses for equal requests."""

    enable: StrictBool = Field(default=True, description="Whether responses are cached")


def parameter_text(value: bool | float | str) -> str:  # noqa: FBT001 - a value of the spec
    """Return a parameter as the text that Triton expects: ``true`` or ``false`` for booleans, JSON for numbers.

    >>> parameter_text(False), parameter_text(2), parameter_text("FP16")
    ('false', '2', 'FP16')
    """
    return value if isinstance(value, str) else json.dumps(value)


class TritonSpec(Section):
    """The parts of config.pbtxt that do not follow from the graph."""

    max_batch_size: AutoOrCount = Field(
        default="auto", description="auto: the largest size that was verified, or 0 if the model does not batch"
    )
    input: dict[TensorName, InputExtraSpec] = Field(default_factory=dict, description="Settings of inputs, by name")
    output: dict[TensorName, OutputExtraSpec] = Field(default_factory=dict, description="Settings of outputs, by name")
    batch_input: tuple[BatchInputSpec, ...] = Field(
        default=(), description="Inputs of the graph that Triton derives from the batch"
    )
    batch_output: tuple[BatchOutputSpec, ...] = Field(
        default=(), description="Outputs of the graph that Triton splits by request"
    )
    dynamic_batching: DynamicBatchingSpec | None = None
    sequence_batching: SequenceBatchingSpec | None = None
    instance_group: tuple[InstanceGroupSpec, ...] = Field(
        default=(), description="Groups of instances; one instance per device if omitted"
    )
    version_policy: VersionPolicySpec | None = None
    optimization: OptimizationSpec | None = None
    tensorrt: TensorRTSpec | None = None
    default_model_filename: (
        Annotated[Literal["model.onnx"], must_be("model.onnx: repogen publishes every graph under that name")] | None
    ) = Field(default=None, description="Name of the model file; only model.onnx is valid")
    parameters: dict[Text, ParameterValue] = Field(
        default_factory=dict, description="Parameters of the backend: intra_op_thread_count, enable_mem_arena, …"
    )
    metric_tags: dict[Text, Text] = Field(default_factory=dict, description="Labels for the metrics of the model")
    model_warmup: tuple[WarmupSpec, ...] = Field(
        default=(), description="Requests that Triton runs before the model is ready"
    )
    response_cache: ResponseCacheSpec | None = None
    extra: str = Field(
        default="",
        max_length=2**16,
        description="Text of config.pbtxt for fields without a key here; checked like all other fields",
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
    "tensorrt": None,
    "model_warmup": (),
    "default_model_filename": None,
}
"""Keys of ``triton`` that Triton rejects in an ensemble, with their defaults."""
