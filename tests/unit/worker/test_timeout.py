"""An exporter that takes too long is interrupted, and nothing is left ringing."""

from __future__ import annotations

import signal
import time

import pytest

from repogen.errors import ExportError
from repogen.worker.timeout import time_limit


def test_what_takes_too_long_is_interrupted() -> None:
    """Also when something in it catches the first interruption."""

    def stubborn() -> None:
        try:
            time.sleep(30)
        except ExportError:
            time.sleep(30)

    with pytest.raises(ExportError) as caught, time_limit(0.05):
        stubborn()
    assert caught.value.code == "export.timeout"


def test_what_is_in_time_is_left_alone() -> None:
    """And so is what comes after, and whoever else minds the alarm."""
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before
