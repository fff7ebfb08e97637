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
    **dict.fromkeys(("published", "passed", "ok", "kept", "deployed", "unchanged"), _GREEN),
    **dict.fromkeys(("failed", "FAILED"), _RED),
    **dict.fromkeys(("verified", "warn", "restored"), _YELLOW),
}
"""Color of a cell that is a verdict."""


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None, colors: bool | None = None
) -> str:
    """Return aligned columns with a rule below the headings, or one block per row where they exceed the width.

    Args:
        headings: One per column.
        rows: The first cell of each row is its title.
        width: Columns of the terminal; None takes those of standard output, and no limit where it is not a terminal.
        colors: Whether verdicts are colored; None colors them on a terminal, unless NO_COLOR is set.

    >>> print(table(("a", "b"), [("1", "22")]))
    a  b
    -  --
    1  22
    """
    on_terminal = sys.stdout.isatty()
    if width is None and on_terminal:
        width = shutil.get_terminal_size().columns
    colors = on_terminal and not os.environ.get("NO_COLOR") if colors is None else colors
    lines = [tuple(printable(cell, _MAX_LENGTH) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in (tuple(headings), *lines)) for i in range(len(headings))]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        return "\n".join(_block(headings, row, width, colors=colors) for row in lines)
    aligned = [tuple(headings), tuple("-" * size for size in widths), *lines]
    return "\n".join(_aligned(row, widths, colors=colors) for row in aligned)


def _aligned(row: Sequence[str], widths: Sequence[int], *, colors: bool) -> str:
    cells = [_colored(cell, cell.ljust(size), colors=colors) for cell, size in zip(row, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _block(headings: Sequence[str], row: Sequence[str], width: int, *, colors: bool) -> str:
    """Return a title and one line per cell; long cells are wrapped between words."""
    size = max(map(len, headings))
    indent = " " * (size + 4)
    lines = [row[0]]
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        parts = textwrap.wrap(cell, max(width - len(indent), 1), break_long_words=False, break_on_hyphens=False)
        lines.append(f"  {heading.ljust(size)}  " + f"\n{indent}".join(_colored(cell, p, colors=colors) for p in parts))
    return "\n".join(lines)


def _colored(cell: str, text: str, *, colors: bool) -> str:
    color = _COLORS.get(cell) if colors else None
    return text if color is None else f"\x1b[{color}m{text}\x1b[0m"
