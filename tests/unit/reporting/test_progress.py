"""Tests for the live view on a terminal, drawn into a buffer."""

from __future__ import annotations

import io
import re
import sys

import pytest

from repogen.reporting.progress import progress_view


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def new_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal of 80 columns with colors; in the test itself, because pytest replaces it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("GITHUB_ACTIONS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


@pytest.mark.parametrize("name", ["m" * 37, "m" * 128])
def test_steps_and_names_are_cut_before_times(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name leaves room for the time and the start of the step, on one line."""
    terminal = new_terminal(monkeypatch)
    with progress_view(quiet=False) as progress:
        progress.step(name, "source")
        drawn_lines = list(filter(None, plain(terminal.getvalue()).splitlines()))
    assert re.search(r"m{30,}…? 0:00:\d\d  source: load the mode", drawn_lines[-1]) is not None
    assert max(map(len, drawn_lines)) <= 80


def test_live_view_without_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is honored: bold or red text is not written, and the view is the same."""
    texts = []
    for value in ("", "1"):
        terminal = new_terminal(monkeypatch)
        monkeypatch.setenv("NO_COLOR", value)
        with progress_view(quiet=False) as progress:
            progress.step("digits", "failed")
        texts.append(terminal.getvalue())
    colored, without = texts
    assert "\x1b[31mfailed" in colored
    assert "\x1b[31m" not in without
    assert "failed" in without


def plain(text: str) -> str:
    """Return text without escape codes; what is drawn over a line is a line of its own."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


def test_live_view_shows_the_last_step_of_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed model ends as failed, a running one keeps its step, and the build has a count."""
    terminal = new_terminal(monkeypatch)
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
    ended = terminal.getvalue().replace("\r", "").rpartition("digits")[2]
    assert "failed" in ended
    assert "smoke" not in ended  # the command has ended: no step is left running
