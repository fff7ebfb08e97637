"""The code that a worker records."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.worker.imports import _distributions_of, imported_code

if TYPE_CHECKING:
    import pytest


def test_distributions_are_those_of_the_standard_library() -> None:
    """Its function parses the metadata of every installed distribution, which takes a third of a second."""
    packages = importlib.metadata.packages_distributions()
    used = {"numpy", "torch", "onnx", "google", "yaml", "pydantic", "_yaml", "repogen"}
    names = {name for package in used for name in packages.get(package, ())}
    expected = {name: importlib.metadata.version(name) for name in sorted(names)}
    assert {"numpy", "torch", "PyYAML"} <= set(expected)
    assert _distributions_of(used) == expected


def test_code_behind_a_symlink_is_recorded_with_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's module is recorded; the standard library, which may be reached through a symlink, is not."""
    (tmp_path / "layers_of_user.py").write_text("VALUE = 1\n")
    (tmp_path / "linked_by_user.py").symlink_to(tmp_path / "layers_of_user.py")
    (tmp_path / "lib").symlink_to(Path(importlib.metadata.__file__).parents[2])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    try:
        importlib.import_module("linked_by_user")
        importlib.import_module("this")  # of the standard library; nothing else imports it
        assert Path(str(sys.modules["this"].__file__)).is_relative_to(tmp_path)
        assert [name for name in imported_code(tmp_path).files if "user" in name or "this" in name] == [
            "layers_of_user.py"
        ]
    finally:
        del sys.modules["linked_by_user"], sys.modules["this"]
