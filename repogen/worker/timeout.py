"""A share of the time for an exporter, so that one that hangs leaves some to those after it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from repogen.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_AGAIN = 1.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt the block, which must run in the main thread, when its time is over.

    Args:
        seconds: How long it may take; once it is over it is told so again and again, in case that something caught it.

    Raises:
        ExportError: It took longer. Native code is not interrupted; the worker's own limit ends that.
    """

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise ExportError(
            f"it took more than {seconds:.0f} s, and other exporters wait",
            "raise limits.timeout_seconds, or choose another exporter: export: {exporter: torchscript}",
            code="export.timeout",
        )

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
