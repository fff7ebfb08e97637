"""The evaluation gate's process: runs the user's evaluation code on a served version."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - a dataclass's field
from typing import Literal

from pydantic import TypeAdapter

from repogen.errors import ErrorRecord, GateError, error_from_record
from repogen.files.temporary import temporary_directory
from repogen.smoke.predict import Address  # noqa: TC001 - pydantic decodes by these annotations
from repogen.worker.supervisor import SupervisedProcess, SupervisionError, Task, TimeLimitError, job_json

_START_SECONDS = 300.0
_CODE = "gate.evaluation"


@dataclass(frozen=True)
class EvaluationJob:
    """One version to evaluate.

    Attributes:
        callable: ``file.py:callable`` or ``package.module:callable``.
        root: Directory that it is relative to.
        data: File that is passed to it; None if there is no file.
        address: Where the version is served.
        timeout_seconds: Time limit for the user's code, its imports included.
    """

    callable: str
    root: Path
    data: Path | None
    address: Address
    timeout_seconds: float


@dataclass(frozen=True)
class EvaluationEvent:
    """One event of the evaluation process.

    Attributes:
        kind: ``started`` when the user's code is about to start; ``ended`` is the last.
        figures: The figures by name; one number has the name "".
        error: Why there are no figures.
    """

    kind: Literal["started", "ended"]
    figures: dict[str, float] = field(default_factory=dict)
    error: ErrorRecord | None = None


JOB: TypeAdapter[EvaluationJob] = TypeAdapter(EvaluationJob)
EVENT: TypeAdapter[EvaluationEvent] = TypeAdapter(EvaluationEvent)


def run_evaluation(job: EvaluationJob) -> dict[str, float]:
    """Run the user's evaluation code on a served version, in a process of its own.

    Args:
        job: The version and the code.

    Returns:
        The figures by name; one number has the name "".

    Raises:
        RepogenError: The code failed, crashed, did not return a number, or exceeded its time limit.
    """
    with temporary_directory() as scratch:
        task = Task("repogen.worker.evaluation_child", job_json(JOB, job), job.root, scratch / "log")
        with SupervisedProcess(task) as process:
            started = False
            process.limit_time(_START_SECONDS)
            try:
                for event in process.events(EVENT):
                    if event.kind == "ended":
                        return _figures(event)
                    started = True
                    process.limit_time(job.timeout_seconds)
            except SupervisionError as error:
                raise _cut_short(error, job, process, started=started) from error
    raise AssertionError("events() ends with an exception")


def _figures(event: EvaluationEvent) -> dict[str, float]:
    if event.error is not None:
        raise error_from_record(event.error)
    return event.figures


def _cut_short(error: SupervisionError, job: EvaluationJob, process: SupervisedProcess, *, started: bool) -> GateError:
    log = process.log
    if not isinstance(error, TimeLimitError):
        message = f"the process of {job.callable} {error}{log.suffix}"
        return GateError(message, code=_CODE, where=log.location, details=log.text)
    if not started:
        message = f"the process of {job.callable} did not start within {_START_SECONDS:g} s{log.suffix}"
        return GateError(message, "the machine may be overloaded", code=_CODE, details=log.text)
    return GateError(
        f"{job.callable} was still running after {job.timeout_seconds:g} s",
        "evaluate fewer rows, or raise evaluation.timeout_seconds",
        code="gate.evaluation-timeout",
        where=log.location,
    )
