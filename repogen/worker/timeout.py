"""A time limit for one exporter or pass, so that one that does not end leaves time for the next."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from repogen.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_REPEAT_SECONDS = 1.0


@contextmanager
def time_limit(seconds: float, message: str = "") -> Iterator[None]:
    """Interrupt the block, which must run in the main thread, at its time limit.

    Args:
        seconds: The limit. From then on the block is interrupted every second, in case that it catches the exception.
        message: Message of the error; that of an export if empty.

    Raises:
        ExportError: The limit was reached. Native code is not interrupted; the worker's own limit ends it.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise ExportError(
            message or f"the export took more than {seconds:.0f} s, and other exporters remain to be tried",
            "raise limits.timeout_seconds, or choose another exporter: export: {exporter: torchscript}",
            code="export.timeout",
        )

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
