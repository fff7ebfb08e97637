"""Tests of ``import repogen``: fast, complete, and not shadowed by its subpackages."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import repogen
from repogen.errors import RepogenError

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTIONS = [name for name in repogen.__all__ if name != "__version__"]


def run(program: str) -> str:
    """Return the output of a new interpreter."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_is_lazy() -> None:
    """Importing the package loads no other module until a function is used."""
    program = "import sys, repogen; print(sorted(name for name in sys.modules if name.startswith('repogen')))"
    assert run(program) == "['repogen', 'repogen.version']"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented_and_typed(name: str) -> None:
    """Every function has a summary, documented arguments, and a return type."""
    function = inspect.unwrap(getattr(repogen, name))
    assert (function.__doc__ or "").splitlines()[0].endswith(".")
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    undocumented = [parameter for parameter in signature.parameters if f"{parameter}:" not in (function.__doc__ or "")]
    assert undocumented == []


def test_subpackages_do_not_shadow_functions() -> None:
    """``repogen.build`` is the function even after its package was imported."""
    program = (
        "import repogen, repogen.build.pipeline, repogen.check.checker, repogen.smoke.run_checks\n"
        "from repogen.build.pipeline import build as pipeline\n"
        "print([callable(getattr(repogen, name)) for name in ('build', 'check', 'smoke')], callable(pipeline))"
    )
    assert run(program) == "[True, True, True] True"


def test_unknown_name_is_an_attribute_error() -> None:
    """An unknown name is an AttributeError."""
    with pytest.raises(AttributeError, match="module 'repogen' has no attribute 'deplpy'"):
        _ = repogen.deplpy  # type: ignore[attr-defined]


def test_dir_lists_the_functions() -> None:
    """`dir()` lists the functions for completion."""
    assert set(FUNCTIONS) <= set(dir(repogen))


def test_json_of_another_type_is_a_type_error() -> None:
    """Only reports have a JSON form."""
    with pytest.raises(TypeError, match="repogen has no JSON form of int"):
        repogen.as_dict(3)


@pytest.mark.parametrize("form", [str, Path, repogen.load_spec])
def test_releases_accept_a_spec_and_its_file(
    form: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The functions of the registry read the MLflow server from the spec, whichever form it has."""
    monkeypatch.setenv("REPOGEN_WEBHOOK_SECRET", "c2VjcmV0" * 8)
    path = tmp_path / "repogen.yaml"
    model = "m:\n    source: {kind: onnx, path: m.onnx}\n"
    path.write_text(f"models:\n  {model}mlflow: {{tracking_uri: 'sqlite:///other.db'}}\n", encoding="utf-8")
    for name in ("m.onnx", "other.db"):
        (tmp_path / name).write_bytes(b"not what it should be")
    spec: Any = form(path)
    calls: list[Callable[[], object]] = [
        lambda: repogen.promote("m", spec=spec),
        lambda: repogen.rollback_alias("m", spec=spec),
        lambda: repogen.history("m", spec=spec),
        lambda: repogen.sync(tmp_path / "repository", alias="champion", spec=spec),
        lambda: next(repogen.follow(tmp_path / "repository", alias="champion", listen="127.0.0.1:0", spec=spec)).error,
        lambda: repogen.diff("m", against="models:/m@champion", repository=tmp_path, spec=spec),
    ]
    for call in calls:
        assert "other.db" in _message(call)


def _message(call: Callable[[], object]) -> str:
    """Return the message of the error that a function raises or returns."""
    try:
        result = call()
    except RepogenError as error:
        return error.message
    assert isinstance(result, RepogenError)
    return result.message
