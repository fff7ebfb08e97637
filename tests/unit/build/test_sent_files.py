"""An executor copies the spec's directory, so other users may not add files to it, or links."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.build.sent_files import require_own_directories
from repogen.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

OTHER_USER = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory of a spec, with directories below it and a loop of links."""
    root = tmp_path / "spec"
    (root / "data" / "images").mkdir(parents=True)
    (root / "data" / "again").symlink_to(root)
    (root / "repogen.yaml").touch()
    (root / "model_repository").mkdir()
    return root


def code(root: Path, *packages: Path) -> str:
    """Return the code of the error; empty without one."""
    try:
        require_own_directories((root, *packages), root, ("model_repository",))
    except SpecError as error:
        return error.code
    return ""


def test_own_directories(root: Path, tmp_path: Path) -> None:
    """What is not copied is not examined; a package can be a file."""
    (root / "model_repository").chmod(0o1777)
    (tmp_path / "module.py").touch()
    assert code(root, tmp_path / "module.py") == ""


@pytest.mark.parametrize("place", ["", "data", "data/images", "elsewhere", "package"])
def test_directory_in_which_other_users_can_create_files(root: Path, tmp_path: Path, place: str) -> None:
    """The tasks would import modules of those users, and the copy would contain what their links lead to."""
    elsewhere, package = tmp_path / "elsewhere", tmp_path / "package"
    elsewhere.mkdir()
    package.mkdir()
    (root / "data" / "link").symlink_to(elsewhere)
    assert code(root, package) == ""
    {"elsewhere": elsewhere, "package": package}.get(place, root / place).chmod(0o1777)
    assert code(root, package) == "working-directory.foreign"


def test_directory_of_another_user(root: Path, tmp_path: Path) -> None:
    """That user can add links to it."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", OTHER_USER, -1)
    (root / "theirs").symlink_to(tmp_path / "theirs")
    assert code(root) == "working-directory.foreign"


def test_link_of_another_user(root: Path, tmp_path: Path) -> None:
    """For example of a member of the group that can write to the directory."""
    (tmp_path / "secret").touch()
    (root / "data" / "link").symlink_to(tmp_path / "secret")
    os.chown(root / "data" / "link", OTHER_USER, -1, follow_symlinks=False)
    assert code(root) == "foreign-link"
