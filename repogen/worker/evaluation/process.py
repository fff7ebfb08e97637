"""Runs the user's judge in a process of its own, holds it to its time, and turns whatever ends it into an error."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from repogen.errors import GateError, error_from_record
from repogen.worker.evaluation.job import ANSWER, JOB
from repogen.worker.log import read_log
from repogen.worker.process import end_worker

if TYPE_CHECKING:
    from typing import BinaryIO

    from repogen.worker.evaluation.job import HoldoutJob

_MOST_BYTES = 1_000_000
_GRACE = 5.0
_CODE = "gate.holdout"


def run_holdout(job: HoldoutJob) -> dict[str, float]:
    """Have the user's code judge a served version.

    Args:
        job: What to judge, and by what.

    Returns:
        The figures by name; one number has the name "".

    Raises:
        RepogenError: The code failed, crashed, returned no figure, or took too long.
    """
    read_end, write_end = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="repogen-holdout-") as scratch,
        (Path(scratch) / "log").open("wb") as log,
        os.fdopen(read_end, "rb", buffering=0) as answers,
    ):
        process = subprocess.Popen(
            # -P: a queue.py in the user's working directory must not take the place of the standard library's.
            [sys.executable, "-P", "-m", "repogen.worker.evaluation.child", str(write_end), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(write_end,),
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
        )
        os.close(write_end)
        try:
            text = _converse(process, job, answers)
            if not text:
                with contextlib.suppress(subprocess.TimeoutExpired):  # a dead child says more than a killed one
                    process.wait(_GRACE)
        finally:
            end_worker(process)
        return _figures(text, job, Path(log.name), process.returncode)


def _converse(process: subprocess.Popen[bytes], job: HoldoutJob, answers: BinaryIO) -> bytes:
    """Return everything that the process answers.

    Raises:
        GateError: It takes too long, or does not stop answering.
    """
    deadline = time.monotonic() + job.timeout_seconds
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin:  # its death shows in the empty answer
            process.stdin.write(JOB.dump_json(job))
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        while selector.select(max(deadline - time.monotonic(), 0)):
            chunk = answers.read(65536)
            if not chunk:
                return text
            text += chunk
            if len(text) > _MOST_BYTES:
                raise GateError(f"{job.callable} returned more than {_MOST_BYTES} bytes", code=_CODE)
    raise GateError(
        f"{job.callable} was still running after {job.timeout_seconds:g} s",
        "judge fewer rows, or raise holdout.timeout_seconds",
        code="gate.holdout-timeout",
    )


def _figures(text: bytes, job: HoldoutJob, log: Path, status: int) -> dict[str, float]:
    try:
        answer = ANSWER.validate_json(text)
    except ValidationError as error:
        said = read_log(log, job.root)
        words = f"; the last it printed:\n{said.last_words}" if said.last_words else ""
        ended = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise GateError(f"the process of {job.callable} {ended}{words}", code=_CODE, details=said.text) from error
    if answer.error is not None:
        raise error_from_record(answer.error)
    return answer.figures
