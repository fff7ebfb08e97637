"""Rules for sequence_batching: its numbers, control tensors, and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.batching import long_delay_findings, preferred_size_findings
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.sections.base import INT32_MAX
from repogen.triton_config.text.view import dims_text, dtype_name, fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelSequenceBatching

    from repogen.triton_config.rules.findings import Severity

_PAIR_KEYS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_PAIR_LENGTH = 2
_CORRELATION_DTYPES = frozenset({"UINT64", "INT64", "UINT32", "INT32", "STRING"})


def sequence_findings(config: ModelConfig) -> Iterator[Finding]:
    """Yield the violations in sequence_batching."""
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    if config.max_batch_size == INT32_MAX:
        message = "max_batch_size 2147483647 with sequence batching crashes tritonserver 2.51"
        severity: Severity = "error"  # direct allocates that many slots
        if batching.HasField("oldest"):
            message = "max_batch_size is 2147483647; with the strategy direct, this crashes tritonserver 2.51"
            severity = "warning"
        yield Finding("RG117", severity, message, "set the largest batch that you expect", "max_batch_size")
    yield from _strategy_findings(config, batching)
    yield from _control_input_findings(batching)
    yield from _state_findings(config, batching)


def _strategy_findings(config: ModelConfig, batching: ModelSequenceBatching) -> Iterator[Finding]:
    direct, oldest = batching.direct, batching.oldest
    path = "sequence_batching"
    if direct.minimum_slot_utilization < 0.0 or direct.minimum_slot_utilization > 1.0:
        message = f"minimum_slot_utilization is {direct.minimum_slot_utilization:g}"
        yield Finding("RG121", "error", message, "use 0 to 1", f"{path}.direct.minimum_slot_utilization")
    yield from preferred_size_findings(config, oldest.preferred_batch_size, f"{path}.oldest.preferred_batch_size")
    candidates_hint = "set the number of sequences that you expect at the same time"
    if oldest.max_candidate_sequences == INT32_MAX:
        message = "max_candidate_sequences 2147483647 crashes tritonserver 2.51"
        yield Finding("RG121", "error", message, candidates_hint, f"{path}.oldest.max_candidate_sequences")
    if batching.HasField("oldest") and oldest.max_candidate_sequences < 1:
        message = f"max_candidate_sequences is {oldest.max_candidate_sequences}"
        yield Finding("RG121", "warning", message, candidates_hint, f"{path}.oldest.max_candidate_sequences")
    for kind, strategy in (("direct", direct), ("oldest", oldest)):
        delay = strategy.max_queue_delay_microseconds
        yield from long_delay_findings(delay, f"{path}.{kind}.max_queue_delay_microseconds")


def _control_input_findings(batching: ModelSequenceBatching) -> Iterator[Finding]:
    kinds: set[str] = set()
    for index, tensor in enumerate(batching.control_input):
        path = f"sequence_batching.control_input[{index}]"
        if not tensor.name:
            yield Finding("RG120", "error", "a control input has no name", "write the graph's input name", path)
        if not tensor.control:
            message = f"control input {tensor.name!r} has no control"
            hint = "add one: control: [{kind: CONTROL_SEQUENCE_START}]"
            yield Finding("RG120", "error", message, hint, f"{path}.control")
        for number, control in enumerate(tensor.control):
            kind = type(control).Kind.Name(control.kind)
            control_path = f"{path}.control[{number}]"
            if kind in kinds:
                message = f"{kind} is defined twice"
                yield Finding("RG120", "error", message, "keep one", f"{control_path}.kind")
            kinds.add(kind)
            subject = f"control input {tensor.name!r}, {kind},"
            if kind == "CONTROL_SEQUENCE_CORRID":
                yield from _correlation_findings(control_path, subject, control)
            else:
                yield from _flag_findings(control_path, subject, control)


def _flag_findings(path: str, subject: str, control: ModelSequenceBatching.ControlInput.Control) -> Iterator[Finding]:
    pairs = [key for key in _PAIR_KEYS if getattr(control, key)]
    hint = "write for example int32_false_true: [0, 1]"
    if not pairs:
        yield Finding("RG120", "error", f"{subject} has no values for false and true", hint, path)
    elif len(pairs) > 1:
        message = f"{subject} has values for false and true of several types"
        yield Finding("RG120", "error", message, "keep one pair", f"{path}.{pairs[1]}")
    elif (length := len(getattr(control, pairs[0]))) != _PAIR_LENGTH:
        message = f"{subject} has {length} value{'' if length == 1 else 's'} instead of 2, for false and true"
        yield Finding("RG120", "error", message, hint, f"{path}.{pairs[0]}")
    elif control.data_type:
        message = f"{subject} has a data_type, which its values for false and true already determine"
        yield Finding("RG120", "warning", message, "remove data_type", f"{path}.data_type")


def _correlation_findings(
    path: str, subject: str, control: ModelSequenceBatching.ControlInput.Control
) -> Iterator[Finding]:
    pairs = [key for key in _PAIR_KEYS if getattr(control, key)]
    dtype = dtype_name(control.data_type)
    if pairs:
        message = f"{subject} is the ID of the sequence, which has no values for false and true"
        yield Finding("RG120", "error", message, "remove them; data_type sets the type", f"{path}.{pairs[0]}")
    elif dtype == "INVALID":
        yield Finding("RG120", "error", f"{subject} has no data_type", "write data_type: TYPE_UINT64", path)
    elif dtype not in _CORRELATION_DTYPES:
        message = f"{subject} is TYPE_{dtype}, but must be one of {', '.join(sorted(_CORRELATION_DTYPES))}"
        yield Finding("RG120", "error", message, "write data_type: TYPE_UINT64", f"{path}.data_type")


def _state_findings(config: ModelConfig, batching: ModelSequenceBatching) -> Iterator[Finding]:
    kinds = {control.kind for tensor in batching.control_input for control in tensor.control}
    has_start = 0 in kinds  # CONTROL_SEQUENCE_START, the first of its enum
    group_kinds = {type(group).Kind.Name(group.kind) for group in config.instance_group}
    for index, state in enumerate(batching.state):
        path = f"sequence_batching.state[{index}]"
        subject = f"state {state.input_name!r}"
        for key in ("input_name", "output_name", "data_type", "dims"):
            if not getattr(state, key):
                yield Finding("RG122", "error", f"{subject} has no {key}", "use the graph's", path)
        if not state.initial_state and not has_start:
            message = f"{subject} has no initial_state, and no control input marks the start of a sequence"
            hint = "add initial_state with zero_data: true; otherwise the state starts with uninitialized memory"
            yield Finding("RG122", "warning", message, hint, path)
        yield from _buffer_findings(group_kinds, path, subject, state)
        for axis, dim in enumerate(state.dims):
            if dim == 0 or dim < -1:
                message = f"{subject} has a dim of {dim}"
                yield Finding("RG106", "error", message, "use -1 for a dynamic dim", f"{path}.dims[{axis}]")
        yield from _initial_state_findings(path, subject, state)


def _buffer_findings(
    group_kinds: set[str], path: str, subject: str, state: ModelSequenceBatching.State
) -> Iterator[Finding]:
    """Yield a state in growable memory that is not on a GPU: the model loads, and every inference fails."""
    if not state.use_growable_memory or group_kinds == {"KIND_GPU"}:
        return
    on_cpu = "KIND_CPU" in group_kinds
    message = f"{subject} has use_growable_memory, which needs GPU memory: on a CPU, every inference fails"
    hint = "remove use_growable_memory, or use instance groups of KIND_GPU only"
    yield Finding("RG122", "error" if on_cpu else "warning", message, hint, f"{path}.use_growable_memory")


def _initial_state_findings(path: str, subject: str, state: ModelSequenceBatching.State) -> Iterator[Finding]:
    if len(state.initial_state) > 1:
        message = f"{subject} has {len(state.initial_state)} initial states"
        yield Finding("RG122", "error", message, "keep one", f"{path}.initial_state")
    for number, initial in enumerate(state.initial_state):
        field = f"{path}.initial_state[{number}]"
        if not initial.name:
            yield Finding("RG122", "error", f"the initial state of {subject} has no name", "add a name", field)
        if initial.WhichOneof("state_data") is None:
            message = f"the initial state of {subject} has no data"
            yield Finding("RG122", "error", message, "write zero_data: true, or data_file", field)
        if initial.data_type != state.data_type:
            message = f"the initial state of {subject} has a different data_type than the state"
            yield Finding("RG122", "error", message, f"write TYPE_{dtype_name(state.data_type)}", field)
        if not fits(tuple(initial.dims), tuple(state.dims)):
            message = f"the initial state of {subject} has dims {dims_text(initial.dims)}, but the state has "
            hint = "use the dims of the state, with a size for each"
            yield Finding("RG122", "error", message + dims_text(state.dims), hint, field)
