"""Writes to the standard streams, so that printed text cannot control a terminal or a GitHub runner.

Names and messages come from repositories, models and servers, and can contain any character.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from repogen.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO

# The runner reads `::` at the start of a line as a command, and `##[` anywhere in it.
_COMMAND = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
_LEGACY_COMMAND = "##["
_CODE = re.compile(r"`[^`\n]*`")
_COLORED = re.compile(r"\x1b\[3[1-3]m([^\x1b]*)\x1b\[0m")
"""A cell of a table that has a color, see `repogen.reporting.table`."""


def write_text(text: str, *, err: bool = False, wrap: bool = False) -> None:
    """Write text and a line break.

    Args:
        text: Any text; control characters, except line breaks, tabs, and the colors of tables on a terminal, are
            written as escapes.
        err: Write to standard error, which may fail: nothing else could report that.
        wrap: Wrap lines that are longer than the terminal between words. Not for text that users copy.

    Raises:
        OutputError: Standard output can't be written; not if its reader, such as ``head``, has ended.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        _write(f"{safe_text(text)}\n", err=err)
        return
    if wrap:
        width = shutil.get_terminal_size().columns
        text = "\n".join(fitted(line, width) for line in text.split("\n"))
    parts, end = [], 0
    for cell in _COLORED.finditer(text):
        parts += [safe_text(text[end : cell.start()]), cell[0].replace(cell[1], safe_text(cell[1]))]
        end = cell.end()
    _write(f"{''.join(parts)}{safe_text(text[end:])}\n", err=err)


def fitted(line: str, width: int) -> str:
    """Return a line wrapped between words, with an indent; fixes of `check` stay as they are.

    Code in backticks is not broken, so that a command can be copied. Colors do not count, and are kept.

    >>> print(fitted("  hint: run `repogen build --force` again", 26))
      hint: run
        `repogen build --force`
        again
    """
    plain = _COLORED.sub(r"\1", line)
    if len(plain) <= width or line.startswith("  + "):
        return line
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    wrapped = textwrap.fill(
        _CODE.sub(lambda code: code[0].replace(" ", "\0"), plain),
        width,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\0", " ")
    for cell in _COLORED.finditer(line):
        wrapped = wrapped.replace(cell[1], cell[0], 1)
    return wrapped


def write_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document to standard output.

    Raises:
        OutputError: As ``write_text``.
    """
    # `#` occurs in strings only, where it may be written as an escape.
    _write(json.dumps(document, indent=2).replace(_LEGACY_COMMAND, "#\\u0023[") + "\n", err=False)


def write_commands(lines: list[str], *, err: bool) -> None:
    """Write commands for a GitHub runner, one line each; ``Annotation.command`` has escaped what they contain."""
    _write("".join(f"{line}\n" for line in lines), err=err)


def safe_text(text: str) -> str:
    r"""Return text that is safe for a terminal and, in GitHub Actions, for the runner.

    >>> safe_text("a\x1b[2J\n\u202eb")
    'a\\x1b[2J\n\\u202eb'
    """
    return without_commands("\n".join(map(_safe_line, text.split("\n"))))


def without_commands(text: str) -> str:
    """Return ``text`` so that a GitHub runner reads no line of it as a command; outside of one, the text itself."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _COMMAND.sub(r"\1\\x3a", without_legacy_commands(text))


def without_legacy_commands(text: str) -> str:
    """Return ``text`` without the start of commands such as ``##[group]``."""
    return text.replace(_LEGACY_COMMAND, "#\\x23[")


def _safe_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in line)


def _write(text: str, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # it was closed before repogen started
        return
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError) as error:
        _discard(stream)
        if not err and not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output can't be written: {error}") from error


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that its last flush does not fail."""
    try:
        device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(device, stream.fileno())
        os.close(device)
    except (OSError, ValueError):  # not a file: a test's stream
        return
