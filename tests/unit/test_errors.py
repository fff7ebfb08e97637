"""Tests of errors and the records that other processes receive."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen import errors
from repogen.errors import (
    ErrorRecord,
    ExitCode,
    MachineError,
    ParityError,
    RepogenError,
    ServerError,
    TrackingError,
    error_from_record,
    first_line,
    machine_errors,
    scrubbed,
)
from repogen.repository.decode import MalformedRecordError
from repogen.spec.problems import Problem, SpecProblemsError
from repogen.triton_config.text.parse import PbtxtError

if TYPE_CHECKING:
    from pathlib import Path


def children(kind: type[RepogenError] = RepogenError) -> list[type[RepogenError]]:
    """Return every error class below ``kind`` in repogen.errors."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return below + [grandchild for child in below for grandchild in children(child)]


@pytest.mark.parametrize("kind", [RepogenError, *children()])
def test_error_round_trip(kind: type[RepogenError]) -> None:
    """Message, hint, code, position and exit code are kept."""
    error = kind("what", "do this", where="models.py:3", details="long")
    again = error_from_record(error.record)
    assert again.record == error.record
    assert type(again) is kind
    assert str(again) == "what"


def test_error_of_another_module_keeps_its_class() -> None:
    """An error class of another module, with another constructor, is kept."""
    syntax = error_from_record(PbtxtError("unexpected token", "remove it", line=3, column=4).record)
    problems = error_from_record(SpecProblemsError([Problem("repogen.yaml", 1, 2, "models", "is missing")]).record)
    malformed = error_from_record(MalformedRecordError("`size` is missing").record)
    assert [type(error) for error in (syntax, problems, malformed)] == [
        PbtxtError,
        SpecProblemsError,
        MalformedRecordError,
    ]
    assert (syntax.code, syntax.message, problems.code) == ("config.syntax", "unexpected token", "spec.problems")


def test_unknown_error_class_becomes_its_base_class() -> None:
    """A plug-in's error class that only the worker imports becomes its base class."""
    record = replace(ServerError("no server").record, classes=("plugin.NoServerError", *ServerError("").record.classes))
    assert type(error_from_record(record)) is ServerError


def test_exit_code_selects_the_error_class() -> None:
    """A record without a class gets the class of its exit code."""
    assert type(error_from_record(ErrorRecord("parity.drift", "m", exit_code=4))) is ParityError
    assert type(error_from_record(ErrorRecord("bug", "m"))) is RepogenError


@pytest.mark.parametrize("kind", children())
def test_each_error_has_an_exit_code_and_a_default_code(kind: type[RepogenError]) -> None:
    """No error class is reported as a bug."""
    assert kind.exit_code not in {ExitCode.BUG, ExitCode.OK}
    assert kind("x").code == kind.default_code != "bug"


def test_record_without_an_exit_code_is_a_bug() -> None:
    """A record without an exit code has exit code 70."""
    assert ErrorRecord("c", "m").exit_code == 70


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x"), "No space left on device: x"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (ImportError("a.so: failed to map segment from shared object"), "failed to map segment"),
        (ImportError("a.so: cannot open shared object file: Too many open files"), "Too many open files"),
        (_caused(ImportError("numpy failed to import"), OSError("Cannot allocate memory")), "Cannot allocate memory"),
    ],
)
def test_exhausted_machine_is_not_a_bug(error: Exception, text: str) -> None:
    """Each limit of a machine has a message that says what is missing, and an exit code other than 70."""
    with pytest.raises(MachineError, match=text) as caught, machine_errors():
        raise error
    assert (caught.value.code, caught.value.exit_code) == ("machine", 7)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        RuntimeError("x"),
        KeyError("x"),
        ImportError("cannot import name 'x'"),
        ImportError("a.so: cannot open shared object file: No such file or directory"),
    ],
)
def test_other_errors_are_unchanged(error: Exception) -> None:
    """They are reported by the code that knows them, or are bugs."""
    with pytest.raises(type(error)) as caught, machine_errors():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_TOKEN", "5ecret-0f-mlflow\n"),
        ("MLFLOW_TRACKING_PASSWORD", "5ecret-0f-mlflow"),
        ("MLFLOW_TRACKING_PASSWORD", "/5ecret-0f-mlflow"),
        ("AWS_SECRET_ACCESS_KEY", "5ecret-0f-mlflow"),
        ("HF_TOKEN", "5ecret-0f-mlflow\r\n"),
        ("REPOGEN_SERVER_HEADER", "authorization=5ecret-0f-mlflow"),
        ("REPOGEN_CONTROL_HEADER", "key=5ecret-0f-mlflow"),
        ("https_proxy", "http:/user:5ecret-0f-mlflow@proxy:8080"),
        ("MLFLOW_TRACKING_URI", "postgresql://user:5ecret-0f-mlflow@database:5432/mlflow"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=5ecret-0f-mlflow;BlobEndpoint=b"),
        ("AZURE_STORAGE_CONNECTION_STRING", "accountname=a;accountkey = 5ecret-0f-mlflow"),
        ("AZURE_STORAGE_KEY", "5ecret-0f-mlflow"),
        ("ORAS_PASS", "5ecret-0f-mlflow"),
        ("DOCKER_AUTH_CONFIG", '{"auths": {"host": {"auth": "5ecret-0f-mlflow"}}}'),
        ("AZURE_STORAGE_SAS_TOKEN", "sig=5ecret-0f-mlflow&se=\udcff"),
    ],
)
def test_no_error_contains_a_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Libraries quote it, for example in the message that a header cannot be sent, with escapes and quotes."""
    monkeypatch.setenv(name, value)
    cause = ValueError(f"cannot send {value!r}, {value.encode(errors='surrogateescape')!r} or 5ecret-0f-mlflow")
    record = TrackingError(f"failed: {cause}", str(cause), where=str(cause), details=f"x\n{cause}").record
    for text in (record.message, record.hint, record.where, record.details, first_line(cause)):
        assert "5ecret" not in text
        assert "cannot send" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_URI", "postgresql://mlflow@database:5432/mlflow"),
        ("MLFLOW_TRACKING_URI", "http://mlflow:5000"),
        ("NO_PROXY", "mlflow,database"),
        ("TOKENIZERS_PARALLELISM", "failed"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/failed"),
        ("SOME_PASSWORD", "m"),
    ],
)
def test_texts_without_secrets_are_unchanged(name: str, value: str) -> None:
    """Names of users and servers, settings, and paths are not secrets."""
    text = "failed: mlflow at database:5432/mlflow, /failed, true"
    assert scrubbed(text, {name: value}) == text


def test_path_in_a_variable_is_not_a_secret(tmp_path: Path) -> None:
    """A message about a file must name it, also if the file is missing; a secret may start with a slash."""
    file = tmp_path / "token"
    for value in (str(tmp_path), str(file)):
        assert scrubbed(f"{value} cannot be read", {"HF_TOKEN": value}) == f"{value} cannot be read"
    assert scrubbed("cannot send /ab+c/d=", {"HF_TOKEN": "/ab+c/d="}) == "cannot send ***"
    assert scrubbed("/" + "ab/" * 9000, {"HF_TOKEN": "/" + "ab/" * 9000}) == "***"
    assert scrubbed("cannot send /abcd", {"HF_TOKEN": "/abcd"}) == "cannot send ***"


def test_a_first_line_does_not_end_with_a_colon() -> None:
    """What it introduces is not copied."""
    error = TrackingError("2 of 3 failed:\n  a: b")
    assert error.record.summary == first_line(error) == "2 of 3 failed"
    assert first_line(ValueError("\n")) == "ValueError"
