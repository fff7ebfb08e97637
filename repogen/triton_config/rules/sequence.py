"""sequence_batching: its numbers, its control tensors, and the states that Triton keeps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repogen.triton_config.rules.batching import long_delay, preferred_sizes
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.view import dims_text, dtype_name, fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelSequenceBatching

    from repogen.triton_config.rules.findings import Severity

INT32_MAX = 2**31 - 1
_PAIR = 2
_CORRELATION = frozenset({"UINT64", "INT64", "UINT32", "INT32", "STRING"})


def sequence_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with sequence_batching."""
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    if config.max_batch_size == INT32_MAX:
        message = "max_batch_size 2147483647 with sequence batching brings tritonserver 2.51 down"
        severity: Severity = "warning" if batching.HasField("oldest") else "error"  # direct makes that many slots
        yield Finding("RG117", severity, message, "give the largest batch that you mean", "max_batch_size")
    yield from _numbers(config, batching)
    yield from _controls(batching)
    yield from _states(batching)


def _numbers(config: ModelConfig, batching: ModelSequenceBatching) -> Iterator[Finding]:
    direct, oldest = batching.direct, batching.oldest
    path = "sequence_batching"
    if direct.minimum_slot_utilization < 0.0 or direct.minimum_slot_utilization > 1.0:
        message = f"minimum_slot_utilization is {direct.minimum_slot_utilization:g}"
        yield Finding("RG121", "error", message, "it lies from 0 to 1", f"{path}.direct.minimum_slot_utilization")
    yield from preferred_sizes(config, oldest.preferred_batch_size, f"{path}.oldest.preferred_batch_size")
    if oldest.max_candidate_sequences == INT32_MAX:
        message = "max_candidate_sequences 2147483647 brings tritonserver 2.51 down"
        hint = "write how many you expect at once"
        yield Finding("RG121", "error", message, hint, f"{path}.oldest.max_candidate_sequences")
    if batching.HasField("oldest") and oldest.max_candidate_sequences < 1:
        message = f"max_candidate_sequences is {oldest.max_candidate_sequences}: how many sequences run at once"
        hint = "write how many you expect at once"
        yield Finding("RG121", "warning", message, hint, f"{path}.oldest.max_candidate_sequences")
    for kind, strategy in (("direct", direct), ("oldest", oldest)):
        delay = strategy.max_queue_delay_microseconds
        yield from long_delay(delay, f"{path}.{kind}.max_queue_delay_microseconds")


def _controls(batching: ModelSequenceBatching) -> Iterator[Finding]:
    kinds: list[str] = []
    for index, tensor in enumerate(batching.control_input):
        path = f"sequence_batching.control_input[{index}]"
        if not tensor.name:
            yield Finding("RG120", "error", "a control input has no name", "write the graph's name of it", path)
        if not tensor.control:
            message = f"control input {tensor.name!r} says no control"
            yield Finding("RG120", "error", message, "write which: control [ { kind: ... } ]", path)
        for number, control in enumerate(tensor.control):
            kind = type(control).Kind.Name(control.kind)
            kinds.append(kind)
            yield from _control(f"{path}.control[{number}]", f"control input {tensor.name!r}, {kind},", kind, control)
    for kind, times in Counter(kinds).items():
        if times > 1:
            message = f"{kind} is given by {times} tensors"
            yield Finding("RG120", "error", message, "keep one", "sequence_batching.control_input")


def _control(path: str, what: str, kind: str, control: ModelSequenceBatching.ControlInput.Control) -> Iterator[Finding]:
    if kind == "CONTROL_SEQUENCE_CORRID":
        wrong, hint = _of_correlation(control), "write data_type: TYPE_UINT64"
    else:
        wrong, hint = _of_flag(control), "write for example int32_false_true: [ 0, 1 ]"
        if control.data_type and not wrong:
            message = f"{what} has a data_type, which its pair of values says"
            yield Finding("RG120", "warning", message, "drop data_type", path)
    if wrong:
        yield Finding("RG120", "error", f"{what} {wrong}", hint, path)


def _of_flag(control: ModelSequenceBatching.ControlInput) -> str:
    pairs = [p for p in (control.int32_false_true, control.fp32_false_true, control.bool_false_true) if p]
    if not pairs:
        return "has no pair of values for false and true"
    if len(pairs) > 1:
        return "has pairs of values of several types"
    if len(pairs[0]) != _PAIR:
        return f"has {len(pairs[0])} values in place of 2, for false and true"
    return ""


def _of_correlation(control: ModelSequenceBatching.ControlInput) -> str:
    if control.int32_false_true or control.fp32_false_true or control.bool_false_true:
        return "has values for false and true, and it bears a number"
    dtype = dtype_name(control.data_type)
    if dtype == "INVALID":
        return "has no data_type"
    return "" if dtype in _CORRELATION else f"has TYPE_{dtype}, and takes {', '.join(sorted(_CORRELATION))}"


def _states(batching: ModelSequenceBatching) -> Iterator[Finding]:
    kinds = {control.kind for tensor in batching.control_input for control in tensor.control}
    starts = 0 in kinds  # CONTROL_SEQUENCE_START, the first of its enum
    for index, state in enumerate(batching.state):
        path = f"sequence_batching.state[{index}]"
        what = f"state {state.input_name!r}"
        for key in ("input_name", "output_name", "data_type", "dims"):
            if not getattr(state, key):
                yield Finding("RG122", "error", f"{what} has no {key}", "write the graph's", path)
        if not state.initial_state and not starts:
            message = f"{what} has no initial_state, and no control tells the model when a sequence starts"
            hint = "write initial_state with zero_data: true: else it starts with whatever lies in memory"
            yield Finding("RG122", "warning", message, hint, path)
        for axis, dim in enumerate(state.dims):
            if dim == 0 or dim < -1:
                message = f"{what} has a dim of {dim}"
                yield Finding("RG106", "error", message, "use -1 for a dynamic dim", f"{path}.dims[{axis}]")
        yield from _initial(path, what, state)


def _initial(path: str, what: str, state: ModelSequenceBatching.State) -> Iterator[Finding]:
    if len(state.initial_state) > 1:
        message = f"{what} has {len(state.initial_state)} initial states"
        yield Finding("RG122", "error", message, "keep one", f"{path}.initial_state")
    for number, initial in enumerate(state.initial_state):
        where = f"{path}.initial_state[{number}]"
        if not initial.name:
            yield Finding("RG122", "error", f"the initial state of {what} has no name", "name it", where)
        if initial.WhichOneof("state_data") is None:
            message = f"the initial state of {what} has no data"
            yield Finding("RG122", "error", message, "write zero_data: true, or data_file", where)
        if initial.data_type != state.data_type:
            message = f"the initial state of {what} has another data_type"
            yield Finding("RG122", "error", message, f"write TYPE_{dtype_name(state.data_type)}", where)
        if not fits(tuple(initial.dims), tuple(state.dims)):
            message = f"the initial state of {what} has dims {dims_text(initial.dims)}, and the state "
            hint = "write the state's, with a size for each"
            yield Finding("RG122", "error", message + dims_text(state.dims), hint, where)
