"""The worker: reads the job from standard input, builds the model, and sends events.

Whatever the user's code prints goes to standard error, which the parent keeps for its report.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode, RepogenError
from repogen.worker.job import EVENT, JOB, Event, Job
from repogen.worker.progress import Ledger
from repogen.worker.requirements import EXTRAS, missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable


def work(events: int) -> None:
    """Build the job's model and report.

    Args:
        events: File descriptor to write events to.
    """
    # The parent asks for the stack before it ends a worker at its time limit.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    job = JOB.validate_json(sys.stdin.buffer.read())
    os.dup2(2, 1)  # user code that prints must not break the protocol, nor the parent's --json
    worker = os.getpid()
    with os.fdopen(events, "wb", buffering=0) as pipe:

        def send(event: Event) -> None:
            if os.getpid() != worker:
                os._exit(1)  # the model's code forked, and the copy came back from it: there is one worker
            pipe.write(EVENT.dump_json(event) + b"\n")

        send(Event("started", str(worker)))
        send(_run(job, send))


def _run(job: Job, send: Callable[[Event], None]) -> Event:
    """Return the event that ends the job: ``built`` or ``error``."""
    ledger = Ledger(lambda step, learned: send(Event("step", step, learned)))
    try:
        warnings.simplefilter("default")
        from repogen.worker.sequence import build_model  # noqa: PLC0415 - torch; its lack is reported below

        built = build_model(job, ledger)
        return Event("built", learned=ledger.learned, built=built)
    except BaseException as error:  # noqa: BLE001 - the process ends here; the parent must hear why
        return Event("error", learned=ledger.learned, error=_record(error, job))


def _record(error: BaseException, job: Job) -> ErrorRecord:
    if isinstance(error, RepogenError):
        return replace(error.record, where=_key(error.where, job) or _shown(error.where, job.root))
    if isinstance(error, ModuleNotFoundError):
        return _missing(error).record
    return _bug(error)


def _key(where: str, job: Job) -> str:
    """Return the key path of a callable or a file that an error is placed at; empty for another place."""
    named = {key: value for key, value in job.model.source if isinstance(value, str) and key != "kind"}
    keys = {value: f"source.{key}" for key, value in named.items()}
    keys |= {Path(named[key]).name: f"source.{key}" for key in job.model.source.files if key in named}
    if isinstance(job.model.examples, str):
        keys[job.model.examples] = "examples"
    return f"models.{job.name}.{keys[where]}" if where in keys else ""


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
