"""The commit that a version says it came from."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from repogen.build.provenance import git_commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "models.py").write_text("x = 1\n")
    identity = ("-c", "user.name=n", "-c", "user.email=e@x.org", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)  # noqa: S607 - whichever git there is
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    """Forty hex digits."""
    assert len(git_commit(checkout)) == 40


def test_what_the_build_itself_writes_does_not_make_it_dirty(checkout: Path) -> None:
    """The staging directory and the repository are untracked files beside the spec."""
    (checkout / "model_repository").mkdir()
    (checkout / "model_repository" / "config.pbtxt").touch()
    assert len(git_commit(checkout)) == 40


def test_an_edited_file_is_said(checkout: Path) -> None:
    """``-dirty``, as git describe has it."""
    (checkout / "models.py").write_text("x = 2\n")
    assert git_commit(checkout).endswith("-dirty")


def test_outside_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty, and no error."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit(tmp_path) == ""
