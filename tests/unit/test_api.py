"""``import repogen``: light, complete, and not shadowed by packages of the same names."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import repogen

FUNCTIONS = [name for name in repogen.__all__ if name != "__version__"]


def run(program: str) -> str:
    """Return what a fresh interpreter prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_nothing_else() -> None:
    """Importing the package costs nothing until a function is used."""
    program = "import sys, repogen; print(sorted(name for name in sys.modules if name.startswith('repogen')))"
    assert run(program) == "['repogen', 'repogen.version']"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented_and_typed(name: str) -> None:
    """A first sentence, arguments, and a return type."""
    function = inspect.unwrap(getattr(repogen, name))
    assert (function.__doc__ or "").splitlines()[0].endswith(".")
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    missing = [each for each in signature.parameters if f"{each}:" not in (function.__doc__ or "")]
    assert missing == []


def test_packages_of_the_same_names_do_not_shadow_functions() -> None:
    """``repogen.build`` is the function, whatever was imported before."""
    program = (
        "import repogen, repogen.build.pipeline, repogen.check.checker, repogen.smoke.run_checks\n"
        "from repogen.build.pipeline import build as pipeline\n"
        "print([callable(getattr(repogen, name)) for name in ('build', 'check', 'smoke')], callable(pipeline))"
    )
    assert run(program) == "[True, True, True] True"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="module 'repogen' has no attribute 'deplpy'"):
        _ = repogen.deplpy  # type: ignore[attr-defined]


def test_dir_lists_the_functions() -> None:
    """Completion in a shell or a notebook shows them."""
    assert set(FUNCTIONS) <= set(dir(repogen))


def test_a_report_of_another_kind_is_a_type_error() -> None:
    """Only reports have a JSON form."""
    with pytest.raises(TypeError, match="repogen has no JSON form of int"):
        repogen.as_dict(3)
