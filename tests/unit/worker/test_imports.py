"""The distributions whose code a build imported are recorded, and no others."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from repogen.errors import SpecError
from repogen.worker.imports import EDITED, imported_code

OTHER_USER = 65534


def _install(site: Path, distribution: str, module: str) -> None:
    """Write a distribution with one module in the namespace package ``shared_space``."""
    package = site / "shared_space"
    package.mkdir(parents=True, exist_ok=True)
    (package / f"{module}.py").write_text("")
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"shared_space/{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


def test_only_the_imported_part_of_a_namespace_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing another package into the same namespace does not change the build."""
    site = tmp_path / "site-packages"
    _install(site, "imported-part", "first")
    _install(site, "other-part", "second")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "shared_space", raising=False)
    importlib.import_module("shared_space.first")
    try:
        distributions = imported_code(tmp_path).distributions
    finally:
        for name in ("shared_space.first", "shared_space"):
            sys.modules.pop(name, None)

    assert distributions["imported-part"] == "1.0"
    assert "other-part" not in distributions


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
        names = {"layers_of_user.py", "linked_by_user.py", "this.py"}
        assert [name for name in imported_code(tmp_path).files if Path(name).name in names] == ["layers_of_user.py"]
    finally:
        del sys.modules["linked_by_user"], sys.modules["this"]


def test_file_in_the_working_directory_is_not_that_of_a_module_of_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``torch.ops`` has the relative path ``_ops.py``: the digest of a file with this name would be published."""
    (tmp_path / "_ops.py").write_text("private")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("torch_ops_of_this_test")
    module.__file__ = "_ops.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert "_ops.py" not in imported_code(tmp_path).files


def test_file_that_was_removed_counts_as_edited(tmp_path: Path) -> None:
    """For example a file of a Hugging Face directory, while the model is exported."""
    assert imported_code(tmp_path, [tmp_path / "LICENSE"]).files["LICENSE"] == EDITED


def test_link_of_another_user_is_an_error(tmp_path: Path) -> None:
    """Its target may be a file that only this user can read."""
    (tmp_path / "secret").touch()
    (tmp_path / "LICENSE").symlink_to(tmp_path / "secret")
    os.chown(tmp_path / "LICENSE", OTHER_USER, -1, follow_symlinks=False)
    with pytest.raises(SpecError, match="LICENSE is a symlink of another user") as caught:
        imported_code(tmp_path, [tmp_path / "LICENSE"])
    assert caught.value.code == "foreign-link"
