"""Every test is collected: pytest ignores directories with some names, such as ``build``, unless it is configured."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_no_directory_of_tests_is_ignored(pytestconfig: pytest.Config) -> None:
    """Neither in tests/ nor among the packages, whose docstrings have examples."""
    patterns = pytestconfig.getini("norecursedirs")
    root = Path(__file__).parents[2]
    names = {path.name for top in ("tests", "repogen") for path in (root / top).rglob("*") if path.is_dir()}
    assert "build" in names
    assert [name for name in sorted(names) if any(fnmatch(name, pattern) for pattern in patterns)] == []
