"""A model of sequences: each golden row becomes a sequence, if it is one that Triton could make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.smoke.basic_checks import verdict_on
from repogen.smoke.inference import RefusedError, Turn, WireTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelSequenceBatching

    from repogen.artifacts.tensors import Array
    from repogen.smoke.deployed_model import Case, Subject
    from repogen.smoke.inference import InferenceClient

_ROWS = 8
"""Of each golden case: a sequence takes one row at a time."""
_REQUESTS = 3
_NUMBERS = count(2**20)
"""Numbers of sequences; golden rows may bear small ones of their own."""


def alone() -> Turn:
    """Return the place of a request that is a whole sequence."""
    return Turn(next(_NUMBERS), start=True, end=True)


def sequences(client: InferenceClient, subject: Subject) -> Iterator[SmokeCheck]:
    """Send golden rows as sequences of their own, then several as one, then what the server must refuse."""
    for case in subject.cases:
        yield _golden(client, subject, case)
    yield _several(client, subject)
    row = _rows(subject.smallest)[0]
    inputs = subject.wire(row.inputs)
    yield _refused(client, subject, inputs, None, "refuses a request outside of any sequence")
    if subject.max_batch_size > 1:
        two = subject.wire(subject.smallest.tiled(2).inputs)
        yield _refused(client, subject, two, alone(), "refuses batch 2 in a sequence")


@dataclass(frozen=True)
class _Unmade:
    """Why Triton would never feed a row's controls and states."""

    reason: str


def _golden(client: InferenceClient, subject: Subject, case: Case) -> SmokeCheck:
    name, rows = f"golden {case.name}", _rows(case)
    reasons, largest = dict[str, None](), 0.0
    compared = 0
    for row in rows:
        turn = _turn(subject, row)
        if isinstance(turn, _Unmade):
            reasons[turn.reason] = None
            continue
        verdict = verdict_on(subject, row, _answer(client, subject, subject.wire(row.inputs), turn))
        if not verdict.equal:
            return SmokeCheck(name, passed=False, detail=verdict.detail, max_abs_diff=verdict.max_abs_diff)
        compared, largest = compared + 1, max(largest, verdict.max_abs_diff)
    if not compared:
        detail = f"not compared: {'; '.join(reasons)}"
        return SmokeCheck(name, passed=True, detail=detail, warning=True)
    detail = f"{compared} of {max(case.batch, 1)} rows, each a sequence: max_abs_diff {largest:.3g}"
    return SmokeCheck(name, passed=True, detail=detail, max_abs_diff=largest)


def _answer(client: InferenceClient, subject: Subject, inputs: list[WireTensor], turn: Turn) -> dict[str, Array]:
    """Ask for one row at its place in a sequence, with a request before it and behind it where it needs one."""
    ask = (subject.served_as, subject.version, inputs)
    if not turn.start:
        client.infer(*ask, Turn(turn.number, start=True, end=False))
    answer = dict(client.infer(*ask, turn))
    if not turn.end and not subject.config.sequence_batching.iterative_sequence:
        client.infer(*ask, Turn(turn.number, start=False, end=True))
    return answer


def _several(client: InferenceClient, subject: Subject) -> SmokeCheck:
    """Send several requests as one sequence. What they answer is not known where states are kept, but that they do."""
    name, inputs = f"sequence of {_REQUESTS} requests", subject.wire(_rows(subject.smallest)[0].inputs)
    number, whole = next(_NUMBERS), subject.config.sequence_batching.iterative_sequence
    try:
        for index in range(_REQUESTS):
            turn = Turn(number, start=whole or index == 0, end=whole or index == _REQUESTS - 1)
            client.infer(subject.served_as, subject.version, inputs, turn)
    except RefusedError as refusal:
        return SmokeCheck(name, passed=False, detail=str(refusal))
    if subject.config.sequence_batching.state:
        detail = "answered; golden tensors have no second request to hold the kept states against"
        return SmokeCheck(name, passed=True, detail=detail, warning=True)
    return SmokeCheck(name, passed=True)


def _refused(
    client: InferenceClient, subject: Subject, inputs: list[WireTensor], turn: Turn | None, name: str
) -> SmokeCheck:
    try:
        client.infer(subject.served_as, subject.version, inputs, turn)
    except RefusedError as refusal:
        return SmokeCheck(name, refusal.status == "INVALID_ARGUMENT", " ".join(str(refusal).split()))
    return SmokeCheck(name, passed=False, detail="the server answered it")


def _rows(case: Case) -> list[Case]:
    return [case.rows([row]) for row in range(min(case.batch, _ROWS))] if case.batch else [case]


def _turn(subject: Subject, row: Case) -> Turn | _Unmade:
    """Return the place in a sequence at which Triton feeds what a golden row has for controls and states."""
    batching = subject.config.sequence_batching
    said = {"CONTROL_SEQUENCE_START": True, "CONTROL_SEQUENCE_END": True, "CONTROL_SEQUENCE_READY": True}
    number = next(_NUMBERS)
    for tensor in batching.control_input:
        value = row.inputs[tensor.name].ravel()[0]
        for control in tensor.control:
            kind = type(control).Kind.Name(control.kind)
            if kind not in said:
                number = 0 if isinstance(value, bytes) else int(value)
                continue
            pair = list(control.int32_false_true or control.fp32_false_true or control.bool_false_true)
            if value not in pair:
                return _Unmade(f"its {tensor.name} is {value}, and Triton feeds {pair[0]} or {pair[1]}")
            said[kind] = pair.index(value) == 1
    if number <= 0:
        return _Unmade("its correlation ID is none that a client can send")
    if not said["CONTROL_SEQUENCE_READY"]:
        return _Unmade("it is not ready, which no request is")
    if batching.state and not (said["CONTROL_SEQUENCE_START"] and _starts(batching, row)):
        return _Unmade("its state is none that a sequence starts with")
    return Turn(number, start=said["CONTROL_SEQUENCE_START"], end=said["CONTROL_SEQUENCE_END"])


def _starts(batching: ModelSequenceBatching, row: Case) -> bool:
    """Whether a row's states are those that a sequence starts with, as far as the config itself says them."""
    return all(
        state.initial_state and state.initial_state[0].zero_data and not row.inputs[state.input_name].any()
        for state in batching.state
    )
