"""The evaluation process, ``python -P -m repogen.worker.evaluation.child FD PARENT``: job on stdin, answer on FD."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING

from repogen.errors import GateError, RepogenError
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits
from repogen.smoke.predict import Predictor
from repogen.source.common.callables import RAISED, import_callable, user_error
from repogen.worker.evaluation.job import ANSWER, JOB, Answer, HoldoutJob
from repogen.worker.supervisor import guard

if TYPE_CHECKING:
    from repogen.source.common.callables import UserCallable

_CODE = "gate.holdout"


def main() -> None:
    """Judge the job's version and report, under guard."""
    answers = int(sys.argv[1])
    guard(answers, int(sys.argv[2]))
    job = JOB.validate_json(sys.stdin.buffer.read())
    os.dup2(2, 1)  # user code that prints must not reach the caller's standard output
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(ANSWER.dump_json(_answer(job)))


def _answer(job: HoldoutJob) -> Answer:
    try:
        judge = import_callable(job.callable, job.root)
        with GrpcClient(job.address.grpc, Limits()) as client:
            return Answer(_figures(job, _called(judge, Predictor(client, job.address), job)))
    except RepogenError as error:
        return Answer(error=error.record)


def _called(judge: UserCallable, predict: Predictor, job: HoldoutJob) -> object:
    try:
        return judge(predict, job.data)
    except RAISED as error:
        raise user_error(error, f"{job.callable} failed", job.root, _CODE) from error


def _figures(job: HoldoutJob, found: object) -> dict[str, float]:
    """Return what the callable returned as figures by name.

    Raises:
        GateError: It is neither a finite number nor such numbers by name.
    """
    named = found if isinstance(found, dict) else {"": found}
    figures = {str(name): _number(value) for name, value in named.items()}
    wrong = [f"{name or 'it'} is {named[name]!r:.60}" for name, value in figures.items() if not math.isfinite(value)]
    if wrong or not figures:
        raise GateError(
            f"{job.callable} returned no figure: {'; '.join(wrong) or 'an empty dict'}",
            "return a float, or a dict of floats by name",
            code=_CODE,
        )
    return figures


def _number(value: object) -> float:
    """Return a number, NumPy's included, as a float; NaN for anything else."""
    try:
        return float(value) if not isinstance(value, str | bytes) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    # Skip interpreter teardown: extension modules with threads of their own can hang or crash in it.
    os._exit(0)
