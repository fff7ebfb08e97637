"""The worker process: ``python -P -m repogen.worker.child FD PARENT``, the job on standard input, events on FD.

Whatever the user's code prints goes to standard error, which the parent keeps for its report.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode, RepogenError
from repogen.worker.extras import EXTRAS, missing_extra
from repogen.worker.job import EVENT, JOB, Event, Job

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Build the job's model and report."""
    _die_with_parent(int(sys.argv[2]))
    events = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
    job = JOB.validate_json(sys.stdin.buffer.read())
    os.dup2(2, 1)  # user code that prints must not break the protocol, nor the parent's --json

    def send(event: Event) -> None:
        events.write(EVENT.dump_json(event) + b"\n")

    send(_run(job, send))


def _die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when the parent's waiting thread ends: kill -9 of repogen leaves nothing."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _run(job: Job, send: Callable[[Event], None]) -> Event:
    """Return the event that ends the job: ``built`` or ``error``."""
    try:
        warnings.simplefilter("default")
        from repogen.worker.sequence import Clock, build_model  # noqa: PLC0415 - torch; its lack is reported below

        return Event("built", built=build_model(job, Clock(lambda step: send(Event("step", step)))))
    except RepogenError as error:
        return Event("error", error=replace(error.record, where=_shown(error.where, job.root)))
    except ModuleNotFoundError as error:
        return Event("error", error=_missing(error).record)
    except BaseException as error:  # noqa: BLE001 - the process ends here; the parent must hear why
        return Event("error", error=_bug(error))


def _shown(where: str, root: Path) -> str:
    """Return a place with its file relative to the spec, or to site-packages, as the user knows it."""
    name, _, line = where.rpartition(":")
    file = Path(name)
    if not file.is_absolute():
        return where
    if file.resolve().is_relative_to(root.resolve()):
        return f"{file.resolve().relative_to(root.resolve())}:{line}"
    installed = "/site-packages/"
    return f"{name.rpartition(installed)[2] if installed in name else file.name}:{line}"


def _missing(error: ModuleNotFoundError) -> RepogenError:
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return missing_extra([name])
    return RepogenError(f"{error}", details=traceback.format_exc())


def _bug(error: BaseException) -> ErrorRecord:
    first = (str(error).splitlines() or [""])[0]
    text = f"{type(error).__name__}: {first}".rstrip(": ")
    if isinstance(error, MemoryError):
        return ErrorRecord("worker.memory", f"out of memory: {text}", exit_code=ExitCode.EXPORT)
    return ErrorRecord("bug", f"unexpected {text}", "run with --debug and report this", details=traceback.format_exc())


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    # Skip interpreter teardown: extension modules with threads of their own can hang or crash in it.
    os._exit(0)
