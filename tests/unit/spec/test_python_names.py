"""Tests for the names that a Python file defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.spec.python_names import defined_names

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "code",
    [
        "def build(): ...",
        "async def build(): ...",
        "class build: ...",
        "build = 1",
        "build: int = 1",
        "a, (build, c) = 1, (2, 3)",
        "import build.models",
        "from models import factory as build",
        "if True:\n    def build(): ...",
        "for build in (): ...",
    ],
)
def test_name_is_bound(tmp_path: Path, code: str) -> None:
    """Every way to define a name without running the file."""
    path = tmp_path / "models.py"
    path.write_text(code)
    assert "build" in (defined_names(path) or ())


@pytest.mark.parametrize(
    "code",
    [
        "from models import *",
        "def __getattr__(name): ...",
        "globals()['build'] = 1",
        "vars()['build'] = 1",
        "import sys\nsetattr(sys.modules[__name__], 'build', 1)",
        "def build(:",
        "",
    ],
)
def test_names_are_unknown_until_the_file_runs(tmp_path: Path, code: str) -> None:
    """Then the worker reports the missing name, or the syntax error with its line."""
    path = tmp_path / "models.py"
    path.write_text(code)
    assert defined_names(path) is None
