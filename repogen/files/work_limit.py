"""Limits the processor time and the memory for reading files that others wrote.

Readers have limits on sizes and counts, but a file of a few megabytes can still need hours in a library, and thousands
of links can lead to one large file. Whatever such files contain, a block in ``work_limit`` ends.

A timer of processor time interrupts the block in the main thread. In other threads, and where the system has no such
timer, nothing is limited: a signal can interrupt only the main thread. There, too, a file is read once in a block.
"""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from repogen.errors import ExitCode, RepogenError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MODEL_SECONDS = 60.0
"""Processor time for one model; a usual one needs less than a second."""
COMMAND_SECONDS = 600.0
"""Processor time for all models of a command."""
_MEMORY = 6 * 2**30
_BYTES_PER_SECOND = 64 * 2**20
"""Bytes on the disk for which a block gets another second: hashing and parsing large files takes longer."""
_MEMORY_PER_BYTE = 8
"""As for ONNX files of small numbers; see ``onnx_graph.facts``."""
_INTERVAL = 0.25
"""Seconds of processor time between two comparisons."""
_PAUSE = 1.0
"""Seconds of processor time before an error that a library ignored is raised again; clean-up may need some."""
_WITH_LOCKS = ("concurrent.futures", "importlib", "logging", "queue", "threading")
"""Modules that no error interrupts: a lock that is not released, or a half-imported module, has an effect later."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WorkLimitError(RepogenError):
    """Reading files needs too much processor time or memory (exit 7)."""

    exit_code = ExitCode.PUBLISH
    default_code = "work-limit"


@dataclass(eq=False)
class _Limit:
    """A block whose work is limited.

    Attributes:
        subject: What is read, for the message.
        seconds: Processor time.
        started: Processor time of the process at the start of the block.
        memory: Bytes in memory at that time.
        files: The files that were opened, by device and inode.
        size: Bytes of these files on the disk.
        shared: What ``shared`` returns.
        excess: What the block exceeded; empty if nothing.
        quiet_until: Processor time before which no error is raised.
        frame: The one that contains the block.
    """

    subject: str
    seconds: float
    started: float
    memory: int
    files: set[tuple[int, int]] = field(default_factory=set)
    size: int = 0
    shared: dict[str, dict[Any, Any]] = field(default_factory=dict)
    excess: str = ""
    quiet_until: float = 0.0
    frame: FrameType | None = None

    def measure(self, now: float, memory: int) -> None:
        """Set what the block exceeded."""
        seconds = self.seconds + self.size / _BYTES_PER_SECOND
        if now - self.started > seconds:
            self.excess = f"{seconds:.6g} s of processor time"
        elif memory - self.memory > _MEMORY + _MEMORY_PER_BYTE * self.size:
            self.excess = f"{_MEMORY // 2**30} GiB of memory"

    def error(self) -> WorkLimitError:
        return WorkLimitError(
            f"{self.subject} needs more than {self.excess} to be read",
            "examine the number and the content of its files; if they are as intended, name fewer models in a command",
        )


_LIMITS: list[_Limit] = []
"""Those of the blocks that run now, the outermost first."""
_THREAD = threading.local()
"""Has what ``shared`` returns in the blocks of a thread in which nothing is limited."""


@contextmanager
def work_limit(subject: str, seconds: float = MODEL_SECONDS) -> Iterator[None]:
    """Limit the processor time and the memory of a block; blocks may be nested.

    The block also gets a second for each 64 MiB of the files that it opens, and 8 bytes of memory for each byte: space
    on the disk, each file counted once. In threads other than the main one, nothing is limited.

    Args:
        subject: What is read, for the message.
        seconds: Processor time of all threads of the process, in seconds.

    Raises:
        WorkLimitError: The block needs more, or 6 GiB more memory than at its start. An error that the block ignored,
            or replaced by another one, is raised at its end.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        with _thread_memory():
            yield
        return
    raise_if_exceeded()
    limit, depth = _Limit(subject, seconds, time.process_time(), _resident()), len(_LIMITS)
    previous: Any = None
    try:
        limit.frame = _caller()
        _LIMITS.append(limit)
        previous = _start() if depth == 0 else None
        yield
    except Exception as error:
        if limit.excess and not isinstance(error, WorkLimitError):
            raise limit.error() from error
        raise
    finally:
        del _LIMITS[depth:]
        if depth == 0:
            _stop(previous)
    if limit.excess:
        raise limit.error()


def raise_if_exceeded() -> None:
    """Raise an error again that concerns a block around this code, which ends, and not only one in it.

    Raises:
        WorkLimitError: A block around this code exceeded its limit.
    """
    for limit in _LIMITS:
        if limit.excess:
            raise limit.error()


def shared(name: str) -> dict[Any, Any]:
    """Return a dictionary that exists until the outermost block ends; a new one outside of all blocks."""
    dictionaries = _LIMITS[0].shared if _LIMITS else getattr(_THREAD, "shared", None)
    return {} if dictionaries is None else dictionaries.setdefault(name, {})


def is_counted() -> bool:
    """Return whether a block counts the files that it opens."""
    return bool(_LIMITS)


def count_file(status: os.stat_result, size: int) -> None:
    """Count a file that was opened.

    Args:
        status: Its status.
        size: Its bytes on the disk.
    """
    key = (status.st_dev, status.st_ino)
    for limit in _LIMITS:
        if key not in limit.files:
            limit.files.add(key)
            limit.size += size


@contextmanager
def _thread_memory() -> Iterator[None]:
    """Keep what ``shared`` returns in this thread until the outermost block ends."""
    if hasattr(_THREAD, "shared"):
        yield
        return
    _THREAD.shared = {}
    try:
        yield
    finally:
        del _THREAD.shared


def _start() -> Any:  # noqa: ANN401 - of the signal module
    """Start the timer; return the handler and the timer that it replaces."""
    handler = signal.signal(signal.SIGPROF, _interrupt)
    return handler, signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)


def _stop(previous: Any) -> None:  # noqa: ANN401 - as above
    """Stop the timer, and restore another one, such as that of a profiler.

    Without another one, the handler stays: a signal that is already pending would end the process.
    """
    signal.setitimer(signal.ITIMER_PROF, 0)
    if previous is not None and callable(previous[0]) and previous[0] is not _interrupt:
        signal.signal(signal.SIGPROF, previous[0])
        signal.setitimer(signal.ITIMER_PROF, *previous[1])


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's arguments
    """Raise the error of the outermost block that exceeds its limit; not while a block begins or ends."""
    if frame is not None and frame.f_globals.get("__name__") in {__name__, "contextlib"}:
        return
    now, memory = time.process_time(), _resident()
    for limit in _LIMITS:
        limit.measure(now, memory)
        if limit.excess and now >= limit.quiet_until and not _has_locks(frame):
            limit.quiet_until = now + _PAUSE
            raise limit.error()


def _has_locks(frame: FrameType | None) -> bool:
    """Return whether the code that runs in the outermost block may hold locks, which an error would not release."""
    while frame is not None and frame is not _LIMITS[0].frame:
        if frame.f_globals.get("__name__", "").startswith(_WITH_LOCKS):
            return True
        frame = frame.f_back
    return False


def _caller() -> FrameType | None:
    """Return the frame of the code that begins a block."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") in {__name__, "contextlib"}:
        frame = frame.f_back
    return frame


def _resident() -> int:
    """Return the bytes of the process in memory; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as stream:  # noqa: PTH123 - as fast as possible
            return int(stream.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
