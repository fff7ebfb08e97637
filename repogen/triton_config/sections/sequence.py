"""``sequence_batching`` of ``triton:``: control tensors and the states that Triton keeps between requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import INT32_MAX, AnySize, Count, Section, Size, TensorName, must_be

Int32 = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX)]
_FLOAT32_MAX = 3.4028234e38
Float = Annotated[float, Field(strict=True, ge=-_FLOAT32_MAX, le=_FLOAT32_MAX, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False), must_be("a number from 0 to 1 (RG121)")]
# One below the value that crashes tritonserver 2.51.
Candidates = Annotated[
    int, Field(strict=True, ge=1, lt=INT32_MAX), must_be("an integer from 1 to 2147483646 (RG121)")
]  # fmt: skip
Idle = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1), must_be("a number of microseconds >= 0")]
StateDim = Annotated[int, Field(strict=True, ge=-1, le=2**63 - 1)]
StateDims = Annotated[
    tuple[StateDim, ...], Field(min_length=1), must_be("a list of dims, -1 for a dynamic one (RG106)")
]
InitialDims = Annotated[tuple[AnySize, ...], Field(min_length=1), must_be("a list of sizes, each >= 1 (RG122)")]
DataType = Literal[
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING",
]  # fmt: skip


class DirectSpec(Section):
    """Each running sequence has its own slot in the batch."""

    max_queue_delay_microseconds: Count = Field(
        default=0, description="Longest time that a request waits for others in a batch"
    )
    minimum_slot_utilization: Share = Field(
        default=0.0, description="Share of slots that must have a request for a batch to run without waiting"
    )


class OldestSpec(Section):
    """A batch contains requests of different sequences, oldest first."""

    max_candidate_sequences: Candidates = Field(description="Number of sequences that are processed at the same time")
    preferred_batch_size: tuple[Size, ...] = Field(default=(), description="Batch sizes that Triton tries to form")
    max_queue_delay_microseconds: Count = Field(
        default=0, description="Longest time that a request waits for others in a batch"
    )
    preserve_ordering: StrictBool = Field(
        default=False, description="Whether responses are sent in the order of the requests"
    )


class ControlSpec(Section):
    """The meaning of a control tensor; without `*_false_true`, its type is the graph's, 0 is false, and 1 is true."""

    kind: Literal[
        "CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID"
    ] = Field(
        description="What Triton sends: a flag that the sequence starts, ends or has a request; or the sequence ID"
    )
    int32_false_true: Annotated[tuple[Int32, Int32], must_be("two integers, [false, true] (RG120)")] | None = Field(
        default=None, description="INT32 values for false and true"
    )
    fp32_false_true: Annotated[tuple[Float, Float], must_be("two numbers, [false, true] (RG120)")] | None = Field(
        default=None, description="FP32 values for false and true"
    )
    bool_false_true: Annotated[tuple[StrictBool, StrictBool], must_be("two booleans (RG120)")] | None = Field(
        default=None, description="BOOL values for false and true"
    )
    data_type: (
        Annotated[
            Literal["TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING"],
            must_be("TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING (RG120)"),
        ]
        | None
    ) = Field(default=None, description="Data type of CONTROL_SEQUENCE_CORRID; the graph's if omitted")


class ControlInputSpec(Section):
    """An input of the graph that Triton's sequence batcher fills."""

    name: TensorName = Field(description="Name of the input")
    control: tuple[ControlSpec, ...] = Field(description="What Triton sends in the input")


class InitialStateSpec(Section):
    """The value of a state when a sequence starts: exactly one of zero_data and data_file."""

    name: TensorName | None = Field(default=None, description="Name of the initial state")
    data_type: DataType | None = Field(default=None, description="Data type; the state's if omitted")
    dims: InitialDims | None = Field(default=None, description="Dims without the batch; the state's if omitted")
    zero_data: Literal[True] | None = Field(default=None, description="Start with zeros")
    data_file: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="Raw values, row-major and little-endian; relative to the spec"
    )


class StateSpec(Section):
    """An output of the graph that becomes an input of the next request in the sequence."""

    input_name: TensorName = Field(description="Input of the graph that receives the state")
    output_name: TensorName = Field(description="Output of the graph that is the new state")
    data_type: DataType | None = Field(default=None, description="Data type; the graph's if omitted")
    dims: StateDims | None = Field(default=None, description="Dims without the batch; the graph's if omitted")
    initial_state: tuple[InitialStateSpec, ...] = Field(default=(), description="At most one; zeros if omitted")
    use_same_buffer_for_input_output: StrictBool = Field(
        default=False, description="Whether the input and the output share a buffer"
    )
    use_growable_memory: StrictBool = Field(
        default=False, description="Whether the buffer can grow; requires use_same_buffer_for_input_output"
    )


class SequenceBatchingSpec(Section):
    """Triton's sequence batcher; at most one of direct and oldest."""

    direct: DirectSpec | None = None
    oldest: OldestSpec | None = None
    max_sequence_idle_microseconds: Idle | None = Field(
        default=None, description="Time after which an idle sequence ends; one second by default"
    )
    control_input: tuple[ControlInputSpec, ...] = Field(
        default=(), description="Inputs that tell the model where a sequence starts and ends"
    )
    state: tuple[StateSpec, ...] = Field(
        default=(), description="Tensors that Triton keeps between the requests of a sequence"
    )
    iterative_sequence: StrictBool = Field(
        default=False, description="Whether the model can reschedule a request, which Triton then runs again"
    )
