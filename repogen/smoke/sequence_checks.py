"""Checks of models with sequence batching: golden rows as sequences, and requests that must be rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.serving import SmokeCheck
from repogen.repository.golden import SEQUENCE_ID, SEQUENCE_REQUEST
from repogen.smoke.batch_checks import check_rejected
from repogen.smoke.inference import RefusedError, SequencePosition, WireTensor, next_sequence_id, single_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelSequenceBatching

    from repogen.artifacts.tensors import Arrays
    from repogen.smoke.deployed_model import DeployedModel, WireCase

_MAX_ROWS = 8
"""Rows of each golden case; a sequence's request has one row."""
_REQUESTS = 3


def sequences(model: DeployedModel) -> Iterator[SmokeCheck]:
    """Send golden rows as sequences, several requests as one sequence, and requests that must be rejected."""
    requests = [case for case in model.cases if case.name.startswith(SEQUENCE_REQUEST)]
    for case in model.cases:
        if not case.name.startswith(SEQUENCE_REQUEST):
            yield check_golden_sequences(model, case)
    yield _check_transitions(model, requests) if requests else _check_long_sequence(model)
    inputs = model.wire(_rows(model.smallest)[0].inputs)
    yield check_rejected(model, inputs, "rejects a request outside of a sequence")
    if model.max_batch_size > 1:
        two = model.wire(model.smallest.tiled(2).inputs)
        yield check_rejected(model, two, "rejects batch 2 in a sequence", single_request())


@dataclass(frozen=True)
class Unreachable:
    """The reason why Triton never feeds the control values and states of a row."""

    reason: str


def check_golden_sequences(model: DeployedModel, case: WireCase) -> SmokeCheck:
    """Check that each row of a golden case, sent as a sequence, returns PyTorch's outputs."""
    name = f"golden {case.name}"
    reasons, largest, compared = dict[str, None](), 0.0, 0
    for row in _rows(case):
        position = _position(model, row)
        if isinstance(position, Unreachable):
            reasons[position.reason] = None
            continue
        comparison = model.compare(row, _infer(model, model.wire(row.inputs), position))
        if not comparison.equal:
            return SmokeCheck(name, passed=False, detail=comparison.detail, max_abs_diff=comparison.max_abs_diff)
        compared, largest = compared + 1, max(largest, comparison.max_abs_diff)
    if not compared:
        return SmokeCheck(name, passed=True, detail=f"not compared: {'; '.join(reasons)}", warning=True)
    detail = f"{compared} of {max(case.batch, 1)} rows, each a sequence: max_abs_diff {largest:.3g}"
    return SmokeCheck(name, passed=True, detail=detail, max_abs_diff=largest)


def _infer(model: DeployedModel, inputs: list[WireTensor], position: SequencePosition) -> Arrays:
    """Send one row at its position in a sequence, with a request before and after it where the sequence needs one."""
    if not position.start:
        model.infer(inputs, SequencePosition(position.sequence_id, start=True, end=False))
    outputs = dict(model.infer(inputs, position))
    if not position.end and not model.config.sequence_batching.iterative_sequence:
        model.infer(inputs, SequencePosition(position.sequence_id, start=False, end=True))
    return outputs


def _check_long_sequence(model: DeployedModel) -> SmokeCheck:
    """Send several requests as one sequence; where states are kept, the expected outputs are unknown."""
    name, inputs = f"sequence of {_REQUESTS} requests", model.wire(_rows(model.smallest)[0].inputs)
    sequence_id, iterative = next_sequence_id(), model.config.sequence_batching.iterative_sequence
    try:
        for index in range(_REQUESTS):
            start, end = iterative or index == 0, iterative or index == _REQUESTS - 1
            model.infer(inputs, SequencePosition(sequence_id, start=start, end=end))
    except RefusedError as refusal:
        return SmokeCheck(name, passed=False, detail=str(refusal))
    if model.config.sequence_batching.state:
        detail = "the outputs were not compared: golden tensors have no second request that depends on kept states"
        return SmokeCheck(name, passed=True, detail=detail, warning=True)
    return SmokeCheck(name, passed=True)


def _check_transitions(model: DeployedModel, requests: list[WireCase]) -> SmokeCheck:
    """Send the golden requests of one sequence, and compare each output: it depends on the states kept before."""
    name, largest = f"sequence of {len(requests)} requests", 0.0
    for index, request in enumerate(requests):
        position = SequencePosition(SEQUENCE_ID, start=index == 0, end=index == len(requests) - 1)
        try:
            comparison = model.compare(request, model.infer(model.wire(request.inputs), position))
        except RefusedError as refusal:
            return SmokeCheck(name, passed=False, detail=f"request {index + 1}: {refusal}")
        largest = max(largest, comparison.max_abs_diff)
        if not comparison.equal:
            detail = f"request {index + 1}: {comparison.detail}"
            return SmokeCheck(name, passed=False, detail=detail, max_abs_diff=largest)
    detail = f"outputs with the states of the preceding requests: max_abs_diff {largest:.3g}"
    return SmokeCheck(name, passed=True, detail=detail, max_abs_diff=largest)


def _rows(case: WireCase) -> list[WireCase]:
    return [case.rows([row]) for row in range(min(case.batch, _MAX_ROWS))] if case.batch else [case]


def _position(model: DeployedModel, row: WireCase) -> SequencePosition | Unreachable:
    """Return the position in a sequence at which Triton feeds the control values and states of a golden row."""
    batching = model.config.sequence_batching
    flags = {"CONTROL_SEQUENCE_START": True, "CONTROL_SEQUENCE_END": True, "CONTROL_SEQUENCE_READY": True}
    sequence_id = next_sequence_id()
    for tensor in batching.control_input:
        value = _first_value(row, tensor.name)
        for control in tensor.control:
            kind = type(control).Kind.Name(control.kind)
            if kind not in flags:
                sequence_id = int(value) if isinstance(value, np.integer) else 0
                continue
            pair = list(control.int32_false_true or control.fp32_false_true or control.bool_false_true)
            if value not in pair:
                return Unreachable(f"its {tensor.name} is {value}, but Triton sends {' or '.join(map(str, pair))}")
            flags[kind] = pair.index(value) == 1
    if sequence_id <= 0:
        return Unreachable("a client cannot send its correlation ID")
    if not flags["CONTROL_SEQUENCE_READY"]:
        return Unreachable("its ready control is false, and every request is ready")
    if batching.state and not (flags["CONTROL_SEQUENCE_START"] and _has_initial_states(batching, row)):
        return Unreachable("its states are not the initial states of a sequence")
    return SequencePosition(sequence_id, start=flags["CONTROL_SEQUENCE_START"], end=flags["CONTROL_SEQUENCE_END"])


def _first_value(row: WireCase, name: str) -> object:
    """Return the first value of an input in a golden row; None if it has none."""
    values = row.inputs.get(name)
    return values.ravel()[0] if values is not None and values.size else None


def _has_initial_states(batching: ModelSequenceBatching, row: WireCase) -> bool:
    """Return whether the states of a row are the initial states that the config declares as zeros."""
    return all(
        state.initial_state and state.initial_state[0].zero_data and _is_zero(row, state.input_name)
        for state in batching.state
    )


def _is_zero(row: WireCase, name: str) -> bool:
    values = row.inputs.get(name)
    return values is not None and not values.any()
