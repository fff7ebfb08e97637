"""Starts a worker, reads its events, holds it to its limits, and turns whatever ends it into an outcome."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from repogen.artifacts.built_model import BuiltModel, Learned
from repogen.errors import ExportError, ParityError, RepogenError, error_from_record
from repogen.worker.job import EVENT, JOB, Event, Job, Outcome
from repogen.worker.log import read_log

if TYPE_CHECKING:
    import threading

    from repogen.artifacts.progress import Progress

_LOG = "worker.log"
_TICK = 0.2
_GRACE = 5.0
_STACK_WRITTEN = 0.3
_MOST_EVENT_BYTES = 16 * 1024 * 1024
_CRASHED = "native code crashed; --debug shows the whole stack"
_HINTS = {
    "SIGKILL": "it may have run out of memory (see dmesg)",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"), _CRASHED),
}


def run_worker(job: Job, progress: Progress, cancelled: threading.Event) -> Outcome:
    """Build ``job`` in a process of its own.

    Args:
        job: What to build.
        progress: Hears of the worker's steps.
        cancelled: When set, the worker is killed.

    Returns:
        The model; or the error that the worker reported, its death, or a limit it broke, placed at the step it was in.

    Raises:
        KeyboardInterrupt: It was cancelled.
    """
    read_end, write_end = os.pipe()
    log_path = job.work_dir / _LOG
    with log_path.open("wb") as log, os.fdopen(read_end, "rb", buffering=0) as events:
        process = subprocess.Popen(
            # -P: a queue.py in the user's working directory must not take the place of the standard library's.
            [sys.executable, "-P", "-m", "repogen.worker.supervisor", str(write_end), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(write_end,),
            start_new_session=True,
            env=_environment(job),
        )
        os.close(write_end)
        watch = _Watch(process, job, progress, cancelled)
        try:
            result: BuiltModel | RepogenError = _converse(process, job, watch, events)
        except RepogenError as error:
            result = error
        finally:
            end_worker(process)
    if isinstance(result, RepogenError):
        printed = read_log(log_path, job.root).text
        result.details = "\n\n".join(part.rstrip() for part in (result.details, _headed(printed)) if part)
    return Outcome(watch.learned, result)


def _headed(printed: str) -> str:
    return f"the worker's log ends:\n{printed}" if printed.strip() else ""


def _environment(job: Job) -> dict[str, str]:
    threads = str(job.threads)
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(job.work_dir / "inductor"),  # else torch keeps one among the temporary files
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def _converse(process: subprocess.Popen[bytes], job: Job, watch: _Watch, events: BinaryIO) -> BuiltModel:
    try:
        if process.stdin is not None:
            process.stdin.write(JOB.dump_json(job, by_alias=True))
            process.stdin.close()
    except BrokenPipeError as error:
        raise watch.death() from error
    return watch.follow(events)


def end_worker(process: subprocess.Popen[bytes]) -> None:
    """Have the warden kill the worker and all that came from it; reap it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    if process.returncode in {None, -signal.SIGKILL}:  # the warden itself may be what was killed
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Watch:
    """Follows one worker's events."""

    def __init__(
        self, process: subprocess.Popen[bytes], job: Job, progress: Progress, cancelled: threading.Event
    ) -> None:
        self._process = process
        self._job = job
        self._log = job.work_dir / _LOG
        self._progress = progress
        self._cancelled = cancelled
        self._worker: int | None = None
        self._step = "import"
        self._began = time.monotonic()
        self._deadline = self._began + job.model.limits.timeout_seconds
        self.learned = Learned()

    def follow(self, events: BinaryIO) -> BuiltModel:
        """Read events until the last; raise what it says went wrong."""
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(events, selectors.EVENT_READ)
            while True:
                self._hold_to_limits()
                # A process that the model's code forked may hold the pipe open after the worker is gone.
                gone = self._process.poll() is not None
                if not selector.select(0 if gone else _TICK):
                    if gone:
                        raise self.death()
                    continue
                chunk = events.read(65536)
                if not chunk:
                    raise self.death()
                *lines, pending = (pending + chunk).split(b"\n")
                if len(pending) > _MOST_EVENT_BYTES:
                    raise RepogenError("the worker's answer is too long")
                for line in lines:
                    built = self._hear(EVENT.validate_json(line))
                    if built is not None:
                        return built

    def _hear(self, event: Event) -> BuiltModel | None:
        if event.kind == "started":
            self._worker = int(event.text)
            return None
        self.learned = event.learned
        if event.error is not None:
            raise error_from_record(event.error)
        if event.kind == "step":
            self._step, self._began = event.text, time.monotonic()
            self._progress.step(self._job.name, event.text)
        return event.built

    def _hold_to_limits(self) -> None:
        if self._cancelled.is_set():
            raise KeyboardInterrupt
        limits = self._job.model.limits
        if time.monotonic() > self._deadline:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(_STACK_WRITTEN)
            raise self._cut_short(
                f"the step {self._step!r} was still running after {limits.timeout_seconds:g} s",
                "look for an endless loop in the model's code, or raise limits.timeout_seconds",
                "worker.timeout",
            )
        if limits.memory_mb is not None and _resident_mb(self._worker) > limits.memory_mb:
            raise self._cut_short(
                f"the step {self._step!r} used more than {limits.memory_mb} MB of memory",
                "raise limits.memory_mb, or build on a larger machine",
                "worker.memory",
            )

    def death(self) -> RepogenError:
        """Return the error for a worker that ended without an answer."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # it closed the pipe and lives on
            end_worker(self._process)
            status = self._process.returncode
        words = read_log(self._log, self._job.root).last_words
        printed = f"; the last it printed:\n{words}" if words else ""
        if status < 0:
            name = signal.Signals(-status).name
            hint = _HINTS.get(name, "the model's code, or another program, ended it")
            message = f"the worker was killed by {name} in the step {self._step!r}{printed}"
            return self._cut_short(message, hint, "worker.killed")
        message = f"the worker exited with status {status} in the step {self._step!r}{printed}"
        return self._cut_short(
            message, "the model's code called os._exit, or broke the worker's files", "worker.exited"
        )

    def _cut_short(self, message: str, hint: str, code: str) -> RepogenError:
        """Return the error for a worker that could not report itself; the time of its step is known here only."""
        took = self.learned.seconds.get(self._step, 0.0) + time.monotonic() - self._began
        if self._step != "import":  # a part of what starting the worker takes, which the pipeline counts
            self.learned = replace(self.learned, seconds={**self.learned.seconds, self._step: took})
        kind = ParityError if self._step == "validate" else ExportError
        return kind(message, hint, code=code, where=read_log(self._log, self._job.root).place)


def _resident_mb(pid: int | None) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
