"""The process of a template: reads a ``TemplateJob``, renders it within limits, and sends a ``TemplateEvent``."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.machine import is_linux
from repogen.triton_config.render.template import render
from repogen.worker.subreaper import run_supervised
from repogen.worker.template import EVENT, JOB, MEMORY_MB, TemplateEvent, TemplateJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_REPEAT_SECONDS = 1.0
_GRACE_SECONDS = 5


def render_job(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Render the job's template and send the text or the error."""
    job = JOB.validate_json(job_json)
    _limit_memory()
    _limit_time(job.cpu_seconds)
    send(EVENT.dump_json(_result(job)))


def _result(job: TemplateJob) -> TemplateEvent:
    try:
        return TemplateEvent(render(job.variables, job.overrides, job.template))
    except RepogenError as error:
        return TemplateEvent(error=error.record)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _limit_memory() -> None:
    """Limit the memory, so that an excessive allocation is a MemoryError with the template's line.

    Other systems than Linux do not enforce this limit.
    """
    if not is_linux():
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_time(cpu_seconds: int) -> None:
    """Raise an exception in the template after its compute time; end the process if native code does not return."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it was still running after {cpu_seconds} s of compute time")

    signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds, _REPEAT_SECONDS)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + cpu_seconds + _GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


if __name__ == "__main__":
    run_supervised(render_job)
