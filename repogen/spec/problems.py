"""One problem of a spec as data and as a line of text, and the error that carries all of them."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repogen.triton_config.sections.base import KeyPath

"""Keys and list positions from the top of the file down to a value."""

MAX_SHOWN = 100
_MAX_TEXT = 80
_MAX_MESSAGE = 400


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a spec.

    Attributes:
        file: The spec as the user named it.
        line: Line, from 1; 0 when the problem is the whole file.
        column: Column in characters, from 1; 0 when the problem is the whole file.
        key_path: For example ``models.digits.inputs.image.shape[1]``; empty at the top.
        what: What is wrong.
        hint: What to do; may be empty.
    """

    file: str
    line: int
    column: int
    key_path: str
    what: str
    hint: str = ""

    @property
    def where(self) -> str:
        """``file:line:col``, or the file alone."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def __str__(self) -> str:
        """Return ``file:line:col key.path: what (hint)``."""
        place = f"{self.where} {self.key_path}" if self.key_path else self.where
        return f"{place}: {self.what} ({self.hint})" if self.hint else f"{place}: {self.what}"


class SpecProblemsError(SpecError):
    """A spec with problems, all of them.

    Args:
        problems: At least one; kept in the order of the file.

    Attributes:
        problems: The same as data, for JSON and annotations; the message shows the first 100.
    """

    default_code = "spec.problems"
    problems: tuple[Problem, ...] = ()

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Sort the problems by place, drop repetitions, and write one line for each."""
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column)))
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        left = len(self.problems) - len(lines)
        super().__init__("\n".join([*lines, *([f"and {left} more problems"] if left else [])]))

    def __reduce__(self) -> tuple[type[SpecProblemsError], tuple[tuple[Problem, ...]]]:
        """Pickle by the problems, so that the error survives a process border."""
        return (type(self), (self.problems,))


def key_text(path: KeyPath) -> str:
    """Return ``path`` as people write it.

    >>> key_text(("models", "digits", "outputs", 0))
    'models.digits.outputs[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(text: str) -> str:
    """Return a whole message safe for a terminal: whatever the spec's text put into it, one line of bounded length."""
    return printable(text, _MAX_MESSAGE)


def printable(text: str, limit: int = _MAX_TEXT) -> str:
    r"""Return ``text`` short enough and safe for a terminal.

    >>> printable("a\x1b[2J")
    'a\\x1b[2J'
    """
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def value_text(value: object) -> str:
    """Return a value as YAML would say it, containers by kind only.

    >>> value_text(True), value_text("a"), value_text([1]), value_text(None)
    ('true', '"a"', 'a list', 'null')
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the hint for an unknown ``word``: the nearest known one, or the list of all of them.

    >>> nearest("dtyp", ["dtype", "shape"])
    'did you mean "dtype"?'
    """
    match = closest(word, known)
    return f'did you mean "{match}"?' if match else f"known: {', '.join(known)}"


def closest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word nearest to ``word``, or None when none is near."""
    # difflib is quadratic in the length of its words, and no key of ours is long.
    matches = difflib.get_close_matches(word[:_MAX_TEXT].lower(), known, n=1, cutoff=0.6)
    return matches[0] if matches else None
