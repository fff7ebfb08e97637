"""Tests for tables on terminals of several widths."""

from __future__ import annotations

import io
import sys

import pytest

from repogen.artifacts.environment import Check
from repogen.reporting.output import fitted, safe_text, write_text
from repogen.reporting.table import table
from repogen.reporting.text import doctor_text, findings_text
from repogen.triton_config.rules.findings import Finding

HEADINGS = ("model", "status", "details")
ROWS = [("digits", "published", "four words that wrap"), ("resnet", "FAILED", "a-hyphenated-word")]


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_long_lines_are_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between words and outside of code; elsewhere, and for text to copy, lines stay as they are."""
    line = "error: digits was not built; run `repogen build --model digits` again"
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    write_text(line, wrap=True)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    write_text(line)
    write_text(line, wrap=True)
    write_text(f"  + {line}", wrap=True)
    assert stream.getvalue().splitlines() == [
        line,
        line,
        "error: digits was not built; run",
        "  `repogen build --model digits` again",
        f"  + {line}",
    ]


def test_wide_terminal_has_columns() -> None:
    """Columns are aligned, without trailing spaces."""
    assert table(HEADINGS, ROWS, width=80, colors=False).splitlines() == [
        "model   status     details",
        "------  ---------  --------------------",
        "digits  published  four words that wrap",
        "resnet  FAILED     a-hyphenated-word",
    ]


def test_narrow_terminal_has_one_block_per_row() -> None:
    """No line is longer than the terminal, and no word is broken."""
    text = table(HEADINGS, ROWS, width=30, colors=False)
    assert text.splitlines() == [
        "digits",
        "  status   published",
        "  details  four words that",
        "           wrap",
        "resnet",
        "  status   FAILED",
        "  details  a-hyphenated-word",
    ]


def test_long_words_are_not_broken() -> None:
    """A path that does not fit next to its heading starts further left."""
    rows = [("digits", "ok", "in /usr/lib/x86_64-linux-gnu")]
    assert table(HEADINGS, rows, width=28, colors=False).splitlines() == [
        "digits",
        "  status   ok",
        "  details  in",
        "   /usr/lib/x86_64-linux-gnu",
    ]


def test_blocks_omit_what_a_row_does_not_have() -> None:
    """A model that failed early has few values; in columns, a dash stands for each of the others."""
    rows = [("digits", "failed", "-")]
    assert table(HEADINGS, rows, width=20, colors=False) == "digits\n  status   failed"
    assert table(HEADINGS, rows, width=80, colors=False).endswith("digits  failed  -")


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colors_can_be_turned_off(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In tables, in lines with a verdict, and when there is no terminal."""
    check = Check("torch", "not installed", ok=False, group="build")
    finding = Finding("RG112", "warning", "several groups", "", "instance_group", path="m/config.pbtxt")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def colored() -> list[bool]:
        texts = (table(HEADINGS, ROWS), doctor_text([check]), findings_text([finding], 1))
        return ["\x1b" in text for text in texts]

    assert colored() == [False] * 3
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert colored() == [True] * 3
    monkeypatch.setenv(*variable)
    assert colored() == [False] * 3


def test_colored_lines_are_wrapped() -> None:
    """The escape codes do not count, and stay around their word."""
    line = "  \x1b[31mFAIL\x1b[0m golden batch=2: the output differs from the golden tensors"
    assert fitted(line, 40).splitlines() == [
        "  \x1b[31mFAIL\x1b[0m golden batch=2: the output",
        "    differs from the golden tensors",
    ]
    assert fitted(line[:40], 31) == line[:40]


def test_verdicts_are_colored_without_moving_columns() -> None:
    """Only cells that are a verdict have a color, and their padding does not count the escape codes."""
    plain, colored = (table(HEADINGS, ROWS, width=80, colors=colors) for colors in (False, True))
    assert "\x1b[32mpublished\x1b[0m" in colored
    assert "\x1b[31mFAILED   \x1b[0m" in colored
    assert plain == colored.replace("\x1b[32m", "").replace("\x1b[31m", "").replace("\x1b[0m", "")


def test_colors_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the function that escapes every other control character; elsewhere they are escaped as well."""
    colored = table(HEADINGS, ROWS, width=80, colors=True)
    for is_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda answer=is_terminal: answer)
        monkeypatch.setattr(sys, "stdout", stream)
        write_text(f"{colored}\n\x1b[2J\x1b[31mred\x1b[1mbold")
        escaped = "\\x1b[2J\\x1b[31mred\\x1b[1mbold\n"
        assert stream.getvalue() == (f"{colored}\n{escaped}" if is_terminal else safe_text(colored) + f"\n{escaped}")
    assert "\x1b" not in stream.getvalue()
