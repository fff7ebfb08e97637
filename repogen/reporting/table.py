"""Tables that fit the terminal: aligned columns, or one block per row where the columns are too wide."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MAX_LENGTH = 2_000
_GREEN, _RED, _YELLOW = "32", "31", "33"
_COLORS = {
    **dict.fromkeys(("published", "passed", "ok", "kept", "deployed", "unchanged", "READY"), _GREEN),
    **dict.fromkeys(("failed", "FAILED", "FAIL", "MISSING", "not served", "error"), _RED),
    **dict.fromkeys(("verified", "warn", "restored", "warning"), _YELLOW),
}
"""Color of a text that is a verdict."""
_NOTHING = "-"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None, colors: bool | None = None
) -> str:
    """Return aligned columns with a rule below the headings, or one block per row where they exceed the width.

    Args:
        headings: One per column.
        rows: The first cell of each row is its title.
        width: Columns of the terminal; None takes those of standard output, and no limit where it is not a terminal.
        colors: Whether verdicts are colored; None colors them if ``has_colors``.

    >>> print(table(("a", "b"), [("1", "22")]))
    a  b
    -  --
    1  22
    """
    on_terminal = sys.stdout.isatty()
    if width is None and on_terminal:
        width = shutil.get_terminal_size().columns
    colors = has_colors() if colors is None else colors
    lines = [tuple(printable(cell, _MAX_LENGTH) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in (tuple(headings), *lines)) for i in range(len(headings))]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        return "\n".join(_block(headings, row, width, colors=colors) for row in lines)
    aligned = [tuple(headings), tuple("-" * size for size in widths), *lines]
    return "\n".join(_aligned(row, widths, colors=colors) for row in aligned)


def has_colors() -> bool:
    """Return whether standard output has colors: a terminal, unless NO_COLOR is set or the terminal has none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def verdict(text: str, width: int = 0) -> str:
    """Return a verdict in its color, padded to a width.

    >>> verdict("ok", 4)
    'ok  '
    """
    return _colored(text, text.ljust(width), colors=has_colors())


def hanging(start: str, text: str, width: int) -> str:
    """Return a text behind its start, wrapped between words below itself; a long word moves to the left instead.

    >>> print(hanging("gpu  ", "none; see /usr/lib/x", 16))
    gpu  none; see
         /usr/lib/x
    >>> print(hanging("gpu  ", "see /usr/lib/x86_64", 16))
    gpu  see
     /usr/lib/x86_64
    """
    words = text.split()
    indent = " " * max(min(len(start), width - max(map(len, words), default=0)), 0)
    lines = [start]
    for word in words:
        line = f"{lines[-1]}{'' if lines[-1] is start else ' '}{word}"
        if len(line) <= width:
            lines[-1] = line
        else:
            lines.append(f"{indent}{word}")
    return "\n".join(line.rstrip() for line in lines)


def notes_section(notes: Iterable[str], *, width: int | None = None) -> str:
    """Return notes below a heading; on a terminal, long ones are wrapped between words.

    Args:
        notes: The notes.
        width: As for ``table``.

    >>> print(notes_section(["digits: a note of six words"], width=20))
    notes:
      digits: a note of
        six words
    """
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    return "\n".join(["notes:", *(_wrapped(note, width) for note in notes)])


def _wrapped(note: str, width: int | None) -> str:
    if width is None:
        return f"  {note}"
    return textwrap.fill(
        note,
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _aligned(row: Sequence[str], widths: Sequence[int], *, colors: bool) -> str:
    cells = [_colored(cell, cell.ljust(size), colors=colors) for cell, size in zip(row, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _block(headings: Sequence[str], row: Sequence[str], width: int, *, colors: bool) -> str:
    """Return a title and one line per cell that is not empty; long cells are wrapped between words."""
    size = max(map(len, headings))
    lines = [row[0]]
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        start = f"  {heading.ljust(size)}  "
        if colors and cell in _COLORS:
            lines.append(start + _colored(cell, cell, colors=colors))
        elif cell != _NOTHING:
            lines.append(hanging(start, cell, width))
    return "\n".join(lines)


def _colored(cell: str, text: str, *, colors: bool) -> str:
    color = _COLORS.get(cell) if colors else None
    return text if color is None else f"\x1b[{color}m{text}\x1b[0m"
