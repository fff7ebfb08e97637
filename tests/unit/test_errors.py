"""Errors, and their records for other processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repogen import errors
from repogen.errors import ErrorRecord, ExitCode, ParityError, RepogenError, ServerError, error_from_record
from repogen.repository.decode import MalformedRecordError
from repogen.spec.problems import Problem, SpecProblemsError
from repogen.triton_config.text.parse import PbtxtError


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
    assert type(again) is kind
    assert str(again) == "what"


def test_an_error_of_another_module_keeps_its_class() -> None:
    """Also one whose constructor takes other arguments than RepogenError's."""
    syntax = error_from_record(PbtxtError("unexpected token", "remove it", line=3, column=4).record)
    problems = error_from_record(SpecProblemsError([Problem("repogen.yaml", 1, 2, "models", "is missing")]).record)
    malformed = error_from_record(MalformedRecordError("`size` is missing").record)
    assert [type(error) for error in (syntax, problems, malformed)] == [
        PbtxtError,
        SpecProblemsError,
        MalformedRecordError,
    ]
    assert (syntax.code, syntax.message, problems.code) == ("config.syntax", "unexpected token", "spec.problems")


def test_an_error_whose_class_is_not_defined_here_becomes_its_base_class() -> None:
    """As a plug-in's own error class, which only the worker imports."""
    record = replace(ServerError("no server").record, classes=("plugin.NoServerError", *ServerError("").record.classes))
    assert type(error_from_record(record)) is ServerError


def test_the_exit_code_selects_the_class_of_a_record_without_one() -> None:
    """A record that was not made from an exception."""
    assert type(error_from_record(ErrorRecord("parity.drift", "m", exit_code=4))) is ParityError
    assert type(error_from_record(ErrorRecord("bug", "m"))) is RepogenError


@pytest.mark.parametrize("kind", children())
def test_each_error_has_an_exit_code_and_a_default_code(kind: type[RepogenError]) -> None:
    """None of them is reported as a bug."""
    assert kind.exit_code not in {ExitCode.BUG, ExitCode.OK}
    assert kind("x").code == kind.default_code != "bug"


def test_record_without_an_exit_code_is_a_bug() -> None:
    """Its exit code is 70."""
    assert ErrorRecord("c", "m").exit_code == 70
