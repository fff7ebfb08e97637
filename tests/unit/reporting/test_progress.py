"""Tests for the live view on a terminal, drawn into a buffer."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from repogen.reporting.progress import progress_view

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_live_view_shows_the_last_step_of_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed model ends as failed, a running one keeps its step, and the build has a count."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_view(quiet=False) as progress:
        progress.step("", "1 of 3 models")
        progress.step("digits", "done")
        progress.step("resnet", "failed")
        progress.step("text", "smoke")
        progress.download("triton.whl", 10**6, 2 * 10**6)
    last_view = terminal.getvalue().replace("\r", "").rpartition("repogen")[2]
    lines = {line.split()[0]: line for line in f"repogen{last_view}".splitlines() if line.split()}
    assert "1 of 3 models" in lines["repogen"]
    assert "failed" in last_view
    assert "smoke: load and test on Triton" in last_view
    assert "1 of 2 MB" in last_view
