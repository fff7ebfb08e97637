"""The process of ONNX Runtime: becomes ``onnx_program.py`` in the environment of the embedded Triton."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.bench.jobs import ONNX_JOB
from repogen.worker.subreaper import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAM = Path(__file__).with_name("onnx_program.py")


def work(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Replace this process by the program, which writes its events to the same pipe."""
    del send
    job = ONNX_JOB.validate_json(job_json)
    events = int(sys.argv[1])
    os.set_inheritable(events, True)  # noqa: FBT003 - the only parameter
    os.execv(job.python, [job.python, "-I", "-S", "-B", str(_PROGRAM), str(events), str(job.file)])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    run_supervised(work)
