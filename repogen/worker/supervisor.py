"""Runs a task in a process of its own: events, limits on time and memory, a log, and a kill that leaves nothing behind.

``repogen.worker.subreaper`` is the child's half.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from repogen.errors import SpecError
from repogen.files.temporary import temporary_directory
from repogen.serving.environment import private_places, without_secrets
from repogen.worker.log import read_log
from repogen.worker.process_tree import memory_above

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from pydantic import TypeAdapter

    from repogen.worker.fork_server import ForkedProcess, ForkServer
    from repogen.worker.log import WorkerLog

_Event = TypeVar("_Event")

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0
_STACK_DUMP_SECONDS = 0.3
ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Variables of every supervised process."""
_NOT_UTF8 = re.compile('[^"]*[\ud800-\udfff][^"]*')
_MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Task:
    """What a supervised process runs.

    Attributes:
        module: Module that calls ``run_supervised``.
        job: Sent to its standard input.
        root: Directory of the user's files; places in the log are relative to it.
        log: File that receives its standard output and standard error.
        environment: Variables that are set in addition to this process's.
    """

    module: str
    job: bytes
    root: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def job_json(adapter: TypeAdapter[Any], job: object) -> bytes:
    """Return a task's job as JSON.

    Raises:
        SpecError: A path in it is not UTF-8, which JSON requires.
    """
    try:
        return adapter.dump_json(job, by_alias=True)
    except PydanticSerializationError as error:
        path = _NOT_UTF8.search(json.dumps(adapter.dump_python(job), default=str, ensure_ascii=False))
        if path is None:
            raise
        raise SpecError(
            f"{path[0]} can't be used: its name has bytes that are not UTF-8",
            "rename the directory, or use another one: for the spec, for the repository, or in TMPDIR",
            code="worker.path",
        ) from error


class SupervisionError(Exception):
    """A supervised process ended, or has to be ended, before its last event."""


class ProcessEndedError(SupervisionError):
    """The process ended without a last event; the message is its exit status or signal.

    Attributes:
        signal_name: Name of the signal that ended it; empty when it exited.
    """

    def __init__(self, status: int) -> None:
        """Name the signal of a negative status."""
        self.signal_name = signal.Signals(-status).name if status < 0 else ""
        super().__init__(f"was killed by {self.signal_name}" if self.signal_name else f"exited with status {status}")


class ServerEndedError(SupervisionError):
    """The fork server of the process ended, and the process with it."""


class TimeLimitError(SupervisionError):
    """The time limit was reached; the log ends with the stack of the process."""


class MemoryLimitError(SupervisionError):
    """The processes used more memory than the limit; the message says how much."""


class ClosedPipeError(SupervisionError):
    """The process closed the pipe of its events and kept running."""

    def __init__(self) -> None:
        """Name the cause."""
        super().__init__("closed the pipe of its events")


class InvalidEventError(SupervisionError):
    """The process sent something that is not an event, or an event that is too long."""


class SupervisedProcess:
    """A task in a process of its own; a context manager that kills the process and everything that it started.

    Its temporary files are in a private directory, which is removed at the end: in a shared one, PyTorch would use the
    headers that another user put into ``torchinductor_USER``, and compile and run what they contain.

    Args:
        task: What to run.
        cancelled: When set, ``events`` raises ``KeyboardInterrupt``.
        server: Forks the process if it can; otherwise the process is started directly.

    Raises:
        KeyboardInterrupt: It was cancelled.
        OSError: The directory for temporary files cannot be created.
        SpecError: Another user could replace that directory.
    """

    def __init__(self, task: Task, cancelled: threading.Event | None = None, server: ForkServer | None = None) -> None:
        """Start the process, without a limit."""
        self._task = task
        self._cancelled = cancelled
        self._deadline = float("inf")
        self._memory_kib: int | None = None
        self._next_memory_check = 0.0
        self._resources = contextlib.ExitStack()
        with self._resources:
            temporary = self._resources.enter_context(temporary_directory())
            read_end, write_end = os.pipe()
            self._events = self._resources.enter_context(os.fdopen(read_end, "rb", buffering=0))
            environment = {**private_places(temporary), **ENVIRONMENT, **task.environment}
            forked = None
            try:
                with task.log.open("wb") as log:
                    if server is not None:
                        forked = server.start(task.module, environment, (log.fileno(), write_end), cancelled)
                    self._process: subprocess.Popen[bytes] | ForkedProcess = forked or _started(
                        task, environment, log, write_end
                    )
            finally:
                os.close(write_end)
            self._resources = self._resources.pop_all()
        self._forked = forked

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process and everything that it started."""
        with self._resources:
            self._kill()
        if self._forked is not None:
            self._forked.close()

    @property
    def log(self) -> WorkerLog:
        """The end of what the process has printed so far."""
        return read_log(self._task.log, self._task.root)

    @property
    def pid(self) -> int:
        """ID of the process, which is an ancestor of every process of the task."""
        return self._process.pid

    def limit_time(self, seconds: float) -> None:
        """Limit the time from now on; a limit that was set before no longer applies."""
        self._deadline = time.monotonic() + seconds

    def limit_memory(self, megabytes: int) -> None:
        """Limit the resident memory of the worker and of everything that it started, together."""
        self._memory_kib = megabytes * 1024

    def events(self, adapter: TypeAdapter[_Event]) -> Iterator[_Event]:
        """Send the job and yield the events; the caller stops at the last.

        Raises:
            SupervisionError: The process ended, sent an invalid event, or exceeded a limit.
            KeyboardInterrupt: It was cancelled.
        """
        self._send_job()
        incomplete = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                self._check_limits()
                # A process that user code forked may hold the pipe open after the worker ended.
                ended = self._process.poll() is not None
                if not selector.select(0 if ended else _POLL_SECONDS):
                    if ended:
                        raise self._ended_error()
                    continue
                chunk = self._events.read(65536)
                if not chunk:
                    raise self._ended_error()
                *lines, incomplete = (incomplete + chunk).split(b"\n")
                if len(incomplete) > _MAX_EVENT_BYTES:
                    raise InvalidEventError(f"sent an event of more than {_MAX_EVENT_BYTES} bytes")
                for line in lines:
                    yield _decode(line, adapter)

    def _send_job(self) -> None:
        if self._process.stdin is None:
            return
        try:
            with self._process.stdin:
                self._process.stdin.write(self._task.job)
        except BrokenPipeError as error:
            raise self._ended_error() from error

    def _check_limits(self) -> None:
        if self._cancelled is not None and self._cancelled.is_set():
            raise KeyboardInterrupt
        if time.monotonic() > self._deadline:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(_STACK_DUMP_SECONDS)
            raise TimeLimitError
        if self._memory_kib is not None and time.monotonic() >= self._next_memory_check:
            self._next_memory_check = time.monotonic() + _POLL_SECONDS
            if (use := memory_above(self._process.pid, self._memory_kib)) is not None:
                raise MemoryLimitError(str(use))

    def _ended_error(self) -> SupervisionError:
        try:
            status = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return ClosedPipeError()
        if self._forked is not None and self._forked.lost:
            return ServerEndedError("ended with the process that forked it")
        return ProcessEndedError(status)

    def _kill(self) -> int:
        """Make the child's supervisor kill everything; return the exit status of the process."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        if self._process.returncode in {None, -signal.SIGKILL}:  # the child's supervisor may have been killed itself
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def _started(task: Task, environment: Mapping[str, str], log: IO[bytes], write_end: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a queue.py in the user's working directory must not replace the standard library's.
        [sys.executable, "-P", "-m", task.module, str(write_end), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=(write_end,),
        start_new_session=True,
        env={**without_secrets(), **environment},
    )


def _decode(line: bytes, adapter: TypeAdapter[_Event]) -> _Event:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        raise InvalidEventError("sent something that is not an event") from error
