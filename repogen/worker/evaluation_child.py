"""The evaluation process: reads an ``EvaluationJob``, runs the user's code, and sends ``EvaluationEvent``s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import GateError, RepogenError
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits
from repogen.smoke.predict import predictor
from repogen.source.common.callables import RAISED, import_callable, user_error
from repogen.validate.figures import figures_of
from repogen.worker.evaluation import EVENT, JOB, EvaluationEvent, EvaluationJob
from repogen.worker.subreaper import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.source.common.callables import UserCallable
    from repogen.validate.predict import Predict

_CODE = "gate.evaluation"


def evaluate(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Evaluate the job's version and send the result."""
    job = JOB.validate_json(job_json)
    with GrpcClient(job.address.grpc, Limits()) as client:  # imports gRPC, which must not count as the user's time
        send(EVENT.dump_json(EvaluationEvent("started")))
        send(EVENT.dump_json(_result(job, predictor(client, job.address))))


def _result(job: EvaluationJob, predict: Predict) -> EvaluationEvent:
    try:
        return EvaluationEvent("ended", _figures(job, _call(import_callable(job.callable, job.root), predict, job)))
    except RepogenError as error:
        return EvaluationEvent("ended", error=error.record)


def _call(evaluator: UserCallable, predict: Predict, job: EvaluationJob) -> object:
    try:
        return evaluator(predict, job.data)
    except RAISED as error:
        raise user_error(error, f"{job.callable} failed", job.root, _CODE) from error


def _figures(job: EvaluationJob, returned: object) -> dict[str, float]:
    """Return the figures by name.

    Raises:
        GateError: The callable returned neither a finite number nor a dict of such numbers.
    """
    try:
        return figures_of(returned)
    except ValueError as error:
        raise GateError(
            f"{job.callable} did not return a number: {error}",
            "return a float, or a dict of floats by name",
            code=_CODE,
        ) from error


if __name__ == "__main__":
    run_supervised(evaluate)
