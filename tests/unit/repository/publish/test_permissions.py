"""Published files are readable for everyone, whatever the umask: Triton often runs as a different user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.repository.filesystem import Disk
from repogen.repository.mirror import synced_repository
from repogen.repository.publish import publish
from repogen.repository.workspace import prepare_stage_root, private_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import Stage


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """Set the umask of a hardened machine while a test runs."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def modes(directory: Path) -> set[tuple[str, str]]:
    """Return the kinds and modes of everything in a tree, the tree included."""
    paths = (directory, *directory.rglob("*"))
    return {("directory" if path.is_dir() else "file", oct(path.stat().st_mode & 0o777)) for path in paths}


READABLE = {("directory", "0o755"), ("file", "0o644")}
WITH_LOCK = READABLE | {("file", "0o600")}
"""Another user who can open the lock of a repository can hold it."""


@pytest.mark.usefixtures("strict_umask")
def test_publish(stage: Stage, tmp_path: Path) -> None:
    """New parents, a new model, and directories that a later version adds."""
    repository = tmp_path / "deep" / "er" / "repo"
    publish(stage(), repository, breaking=False)
    publish(stage(b"2", labels=("a",)), repository, breaking=False)
    publish(stage(b"3", warmup=b"1234"), repository, breaking=False)
    publish(stage(b"4", warmup=b"1234", shape=("batch", 5)), repository, breaking=True)
    assert (repository / "m" / "warmup").is_dir()
    assert modes(tmp_path / "deep") == WITH_LOCK
    assert modes(repository / "m") == READABLE


@pytest.mark.usefixtures("strict_umask")
def test_stage(stage: Stage, tmp_path: Path) -> None:
    """Smoke tests run a Triton on the staged files."""
    with prepare_stage_root(tmp_path / "deep" / "repo", None) as root:
        assert modes(private_repository(root)) == {("directory", "0o755")}
        for path in (root, root.parent, root.parent.parent):
            assert path.stat().st_mode & 0o777 == 0o755
    assert modes(stage(labels=("a",), warmup=b"1234").model_dir) == READABLE


@pytest.mark.usefixtures("strict_umask")
def test_synced_repository(tmp_path: Path) -> None:
    """A new one, with its record and its lock."""
    with synced_repository(tmp_path / "deep" / "repo", "champion", Disk()):
        pass
    assert modes(tmp_path / "deep") == WITH_LOCK


def test_setgid_of_a_shared_directory_is_kept(stage: Stage, tmp_path: Path) -> None:
    """New directories belong to the group of their parent."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    publish(stage(), tmp_path / "shared" / "repo", breaking=False)
    assert (tmp_path / "shared" / "repo").stat().st_mode & 0o7777 == 0o2755
