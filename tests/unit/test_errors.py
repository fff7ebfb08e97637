"""Errors as people and programs get them."""

from __future__ import annotations

import pytest

from repogen import errors
from repogen.errors import ErrorRecord, ExitCode, RepogenError, error_from_record


def children(kind: type[RepogenError] = RepogenError) -> list[type[RepogenError]]:
    """Return every error class of repogen.errors below ``kind``."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return below + [grandchild for child in below for grandchild in children(child)]


@pytest.mark.parametrize("kind", [RepogenError, *children()])
def test_an_error_survives_its_record(kind: type[RepogenError]) -> None:
    """What crossed a process border says the same and asks for the same exit code."""
    error = kind("what", "do this", where="models.py:3", details="long")
    again = error_from_record(error.record)
    assert again.record == error.record
    assert str(again) == "what"


@pytest.mark.parametrize("kind", children())
def test_each_error_has_an_exit_code_and_a_code_of_its_own(kind: type[RepogenError]) -> None:
    """No room's error passes for a bug."""
    assert kind.exit_code not in {ExitCode.BUG, ExitCode.OK}
    assert kind("x").code == kind.default_code != "bug"


def test_a_record_without_more_is_a_bug() -> None:
    """Nobody meant it."""
    assert ErrorRecord("c", "m").exit_code == 70
