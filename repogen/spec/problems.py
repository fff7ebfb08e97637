"""A problem of a spec as data and as a line of text, and the error that contains all problems."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_SHOWN = 100
_MAX_TEXT = 80
_MAX_MESSAGE = 400
_MAX_CHOICES = 50
"""Choices that a hint lists; a spec can have thousands of models, inputs and dims."""
MAX_COMPARED = 50
"""Choices that a word is compared with."""


@dataclass(frozen=True)
class Problem:
    """One problem of a spec.

    Attributes:
        file: The spec's path as the user wrote it.
        line: Line, from 1; 0 if the problem is about the whole file.
        column: Column in characters, from 1; 0 if the problem is about the whole file.
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
    """A spec with problems.

    Args:
        problems: At least one problem.

    Attributes:
        problems: All problems in the order of the file; the message contains the first 100.
    """

    default_code = "spec.problems"
    problems: tuple[Problem, ...] = ()

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Sort the problems by position, remove duplicates, and write one line for each."""
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column)))
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        omitted = len(self.problems) - len(lines)
        super().__init__("\n".join([*lines, *([f"and {omitted} more problems"] if omitted else [])]))

    def __reduce__(self) -> tuple[type[SpecProblemsError], tuple[tuple[Problem, ...]]]:
        """Pickle by the problems, so that the error can be sent to another process."""
        return (type(self), (self.problems,))


def message_text(text: str) -> str:
    """Return a message that is safe for a terminal: one line of limited length, without control characters."""
    return printable(text, _MAX_MESSAGE)


def printable(text: str, limit: int = _MAX_TEXT) -> str:
    r"""Return ``text`` shortened and safe for a terminal.

    >>> printable("a\x1b[2J")
    'a\\x1b[2J'
    """
    excerpt = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in excerpt)


def value_text(value: object) -> str:
    """Return a value in YAML notation, and only the kind of a container.

    >>> value_text(True), value_text("a"), value_text([1]), value_text(None)
    ('true', '"a"', 'a list', 'null')
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def nearest(word: str, choices: Sequence[str]) -> str:
    """Return the hint for an unknown ``word``: the most similar choice, or all choices.

    >>> nearest("dtyp", ["dtype", "shape"])
    'did you mean "dtype"?'
    """
    match = closest(word, choices)
    more = " and more" if len(choices) > _MAX_CHOICES else ""
    return f'did you mean "{match}"?' if match else f"use one of {', '.join(choices[:_MAX_CHOICES])}{more}"


def suggestion(words: Sequence[str], choices: Sequence[str], otherwise: str) -> str:
    """Return the hint for unknown names: the choices that are similar to them, or ``otherwise`` if there is none.

    >>> suggestion(["digitz"], ["digits", "text"], "its models are digits, text")
    'did you mean "digits"?'
    >>> suggestion(["nobody"], ["digits", "text"], "its models are digits, text")
    'its models are digits, text'
    """
    matches = dict.fromkeys(f'"{match}"' for word in words if (match := closest(word, choices)) is not None)
    return f"did you mean {', '.join(matches)}?" if matches else otherwise


def closest(word: str, choices: Sequence[str]) -> str | None:
    """Return the choice most similar to ``word``, or None if no choice is similar.

    Of very many choices, only the first ones with the same first letter are compared.
    """
    if len(choices) > MAX_COMPARED:
        first = word[:1].lower()
        choices = list(islice((choice for choice in choices if choice[:1].lower() == first), MAX_COMPARED))
    # difflib is quadratic in the length of its words, and all keys are short.
    matches = difflib.get_close_matches(word[:_MAX_TEXT].lower(), choices, n=1, cutoff=0.6)
    return matches[0] if matches else None
