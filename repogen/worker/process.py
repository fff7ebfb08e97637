"""Starts a worker, reads its events, holds it to its limits, and turns whatever ends it into a value or an error."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from repogen.errors import ExportError, ParityError, RepogenError, error_from_record
from repogen.worker.job import EVENT, JOB, Event, Job

if TYPE_CHECKING:
    import threading

    from repogen.values.artifacts import BuiltModel
    from repogen.values.progress import Progress

_TICK = 0.2
_GRACE = 5.0
_LOG_TAIL = 4000
_MOST_EVENT_BYTES = 16 * 1024 * 1024


def run_worker(job: Job, progress: Progress, cancelled: threading.Event) -> BuiltModel:
    """Build ``job`` in a process of its own.

    Args:
        job: What to build.
        progress: Hears of the worker's steps.
        cancelled: When set, the worker is killed.

    Raises:
        RepogenError: What the worker reported; or its death, or a limit it broke, placed at the step it was in.
    """
    read_end, write_end = os.pipe()
    log_path = job.work_dir / "worker.log"
    with log_path.open("wb") as log, os.fdopen(read_end, "rb", buffering=0) as events:
        process = subprocess.Popen(
            # -P: a queue.py in the user's working directory must not take the place of the standard library's.
            [sys.executable, "-P", "-m", "repogen.worker.child", str(write_end), str(os.getpid())],
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
            if process.stdin is not None:
                process.stdin.write(JOB.dump_json(job))
                process.stdin.close()
            return watch.follow(events)
        except BrokenPipeError as error:
            raise watch.death(log_path) from error
        finally:
            _end(process)


def _environment(job: Job) -> dict[str, str]:
    threads = str(job.threads)
    return {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the worker and what it started, and reap it."""
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
        self._progress = progress
        self._cancelled = cancelled
        self._step = "import"
        self._deadline = time.monotonic() + job.model.limits.timeout_seconds

    def follow(self, events: BinaryIO) -> BuiltModel:
        """Read events until the last; raise what it says went wrong."""
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(events, selectors.EVENT_READ)
            while True:
                self._hold_to_limits()
                # A child that the model's code forked may hold the pipe open after the worker is gone.
                gone = self._process.poll() is not None
                if not selector.select(0 if gone else _TICK):
                    if gone:
                        raise self.death(self._job.work_dir / "worker.log")
                    continue
                chunk = events.read(65536)
                if not chunk:
                    raise self.death(self._job.work_dir / "worker.log")
                *lines, pending = (pending + chunk).split(b"\n")
                if len(pending) > _MOST_EVENT_BYTES:
                    raise RepogenError("the worker's answer is too long")
                for line in lines:
                    built = self._hear(EVENT.validate_json(line))
                    if built is not None:
                        return built

    def _hear(self, event: Event) -> BuiltModel | None:
        if event.error is not None:
            raise error_from_record(event.error)
        if event.kind == "step":
            self._step = event.text
            self._progress.step(self._job.name, event.text)
        elif event.kind == "note":
            self._progress.note(self._job.name, event.text)
        return event.built

    def _hold_to_limits(self) -> None:
        if self._cancelled.is_set():
            raise KeyboardInterrupt
        limits = self._job.model.limits
        if time.monotonic() > self._deadline:
            raise self._error(
                f"the step {self._step!r} was still running after {limits.timeout_seconds:g} s",
                "look for an endless loop in the factory, or raise limits.timeout_seconds",
                "worker.timeout",
            )
        if limits.memory_mb is not None and _resident_mb(self._process.pid) > limits.memory_mb:
            raise self._error(
                f"the step {self._step!r} used more than {limits.memory_mb} MB of memory",
                "raise limits.memory_mb, or build on a larger machine",
                "worker.memory",
            )

    def death(self, log_path: Path) -> RepogenError:
        """Return the error for a worker that ended without an answer."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # it closed the pipe and lives on
            _end(self._process)
            status = self._process.returncode
        tail = log_path.read_bytes()[-_LOG_TAIL:].decode(errors="replace")
        if status < 0:
            name = signal.Signals(-status).name
            hint = "it may have run out of memory (see dmesg)" if name == "SIGKILL" else "native code crashed"
            return self._error(
                f"the worker was killed by {name} in the step {self._step!r}", hint, "worker.killed", tail
            )
        return self._error(
            f"the worker exited with status {status} in the step {self._step!r}",
            "code of the model called os._exit",
            "worker.exited",
            tail,
        )

    def _error(self, message: str, hint: str, code: str, details: str = "") -> RepogenError:
        kind = ParityError if self._step == "validate" else ExportError
        return kind(message, hint, code=code, details=details)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
