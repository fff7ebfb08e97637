"""Tests of ``import repogen``: fast, complete, and not shadowed by its subpackages."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import repogen

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
