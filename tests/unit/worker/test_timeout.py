"""The time limit of an exporter, and that no timer is left behind."""

from __future__ import annotations

import signal
import time

import pytest

from repogen.errors import ExportError
from repogen.worker.timeout import time_limit


def test_block_is_interrupted_at_the_limit() -> None:
    """Also if it catches the first exception."""

    def stubborn() -> None:
        try:
            time.sleep(30)
        except ExportError:
            time.sleep(30)

    with pytest.raises(ExportError) as caught, time_limit(0.05):
        stubborn()
    assert caught.value.code == "export.timeout"


def test_timer_and_handler_are_restored() -> None:
    """When the block ends before the limit."""
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before
