"""Dynamic batching seen from outside: many requests at once, fewer executions than requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.smoke.basic_checks import verdict_on
from repogen.smoke.inference import RefusedError

if TYPE_CHECKING:
    from repogen.smoke.deployed_model import Case, Subject
    from repogen.smoke.inference import InferenceClient
    from repogen.smoke.limits import Limits

NAME = "dynamic batching"


def dynamic_batching(client: InferenceClient, subject: Subject, limits: Limits) -> SmokeCheck:
    """Send growing bursts of single-row requests until the server's statistics show that it joined some.

    Every answer must be that of its own request: neighbors in a burst carry different rows, where there are several.
    A server too fast to be caught is a warning, a wrong answer a failure.
    """
    case = subject.smallest
    rows = [case.rows([row]) for row in range(case.batch)]
    seen = "no burst fits the limit on bytes"
    for size in limits.bursts:
        if case.row_bytes * size > limits.request_bytes:
            break
        burst = [rows[index % len(rows)] for index in range(size)]
        before = client.counts(subject.served_as, subject.version)
        try:
            wrong = _wrong_answers(client, subject, burst)
        except RefusedError as refusal:
            return SmokeCheck(NAME, passed=False, detail=f"burst of {size}: {refusal}")
        after = client.counts(subject.served_as, subject.version)
        inferences, executions = after.inferences - before.inferences, after.executions - before.executions
        seen = f"{inferences} requests in {executions} executions"
        if wrong:
            return SmokeCheck(NAME, passed=False, detail=f"burst of {size}: {wrong}")
        if executions < inferences:
            return SmokeCheck(NAME, passed=True, detail=seen)
    return SmokeCheck(NAME, passed=True, detail=f"not observed: {seen}", warning=True)


def _wrong_answers(client: InferenceClient, subject: Subject, burst: list[Case]) -> str:
    answers = client.burst(subject.served_as, subject.version, [subject.wire(case.inputs) for case in burst])
    verdicts = [verdict_on(subject, case, answer) for case, answer in zip(burst, answers, strict=True)]
    wrong = [verdict.detail for verdict in verdicts if not verdict.equal]
    return f"{len(wrong)} answers are wrong, the first: {wrong[0]}" if wrong else ""
