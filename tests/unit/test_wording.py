"""The wording check of ``make lint``: phrases, also across line breaks, and names of variables."""

from __future__ import annotations

import re

import pytest

from tools.check_wording import NAMES, name_problems, phrase_problems, phrases

REJECTED = [(re.compile(r"\bmend the file\b", re.IGNORECASE), "fix")]  # wording: ok


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("first\nMend the file", 2),  # wording: ok
        ('    """Read it, or mend the\n    file."""', 1),  # wording: ok
        ("# or mend\n    # the file", 1),  # wording: ok
    ],
)
def test_phrase_is_rejected(text: str, line: int) -> None:
    """A line break or a comment sign may separate its words."""
    (problem,) = phrase_problems(text, "a.py", REJECTED)
    assert problem.startswith(f"a.py:{line}: ")
    assert problem.endswith(": write fix")


@pytest.mark.parametrize("text", ["mend the file  # wording: ok", "mend\n\nthe file", "mend\n- the file"])
def test_phrase_is_allowed(text: str) -> None:
    """With the comment; words of two paragraphs or list items are not a phrase."""
    assert list(phrase_problems(text, "a.md", REJECTED)) == []


@pytest.mark.parametrize(
    "code", ["found = 1", "self.kept = 1", "def told(): ...", "def f(given): ...", "f = lambda given: 1"]
)
def test_participle_is_not_a_name(code: str) -> None:
    """Of a variable, an attribute, a function or a parameter."""
    assert len(list(name_problems(code, "a.py"))) == 1


def test_other_names_are_allowed() -> None:
    """Nouns, compounds, constants, and names that are only read."""
    assert list(name_problems("staged = found_files = FOUND = wanted\nmade = 1  # wording: ok\n", "a.py")) == []


def test_every_phrase_has_a_valid_expression() -> None:
    """The list is read as a whole; names are lowercase."""
    assert len(phrases()) > 40
    assert all(name.islower() for name in NAMES)
