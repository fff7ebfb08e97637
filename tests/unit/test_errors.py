"""Errors, and their records for other processes."""

from __future__ import annotations

import pytest

from repogen import errors
from repogen.errors import ErrorRecord, ExitCode, RepogenError, error_from_record


def children(kind: type[RepogenError] = RepogenError) -> list[type[RepogenError]]:
    """Return every error class of repogen.errors below ``kind``."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return below + [grandchild for child in below for grandchild in children(child)]


@pytest.mark.parametrize("kind", [RepogenError, *children()])
def test_error_equals_the_one_made_from_its_record(kind: type[RepogenError]) -> None:
    """Message, hint, code, place and exit code are those of the original."""
    error = kind("what", "do this", where="models.py:3", details="long")
    again = error_from_record(error.record)
    assert again.record == error.record
    assert str(again) == "what"


@pytest.mark.parametrize("kind", children())
def test_each_error_has_an_exit_code_and_a_default_code(kind: type[RepogenError]) -> None:
    """None of them is reported as a bug."""
    assert kind.exit_code not in {ExitCode.BUG, ExitCode.OK}
    assert kind("x").code == kind.default_code != "bug"


def test_record_without_an_exit_code_is_a_bug() -> None:
    """Its exit code is 70."""
    assert ErrorRecord("c", "m").exit_code == 70
