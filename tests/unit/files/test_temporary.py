"""Temporary directories of processes that were killed are removed by the next command."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from repogen.files.temporary import temporary_directory

if TYPE_CHECKING:
    from pathlib import Path


def test_directory_is_private_and_removed(tmp_path: Path) -> None:
    """Also after an error."""
    with suppress(ZeroDivisionError), temporary_directory(tmp_path) as directory:
        assert (directory.parent, directory.stat().st_mode & 0o777) == (tmp_path, 0o700)
        (directory / "file").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_only_directories_without_a_process_are_removed(tmp_path: Path) -> None:
    """The lock of a killed process is free. A link, a file, and directories of other programs stay."""
    (tmp_path / "target").mkdir()
    (tmp_path / "repogen-temporary-link").symlink_to(tmp_path / "target")
    (tmp_path / "repogen-temporary-file").touch()
    (tmp_path / "repogen-temporary-killed" / "models").mkdir(parents=True)
    (tmp_path / "repogen-store-of-an-earlier-release").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    with temporary_directory(tmp_path) as first, temporary_directory(tmp_path) as second:
        names = {first.name, second.name}
        assert {path.name for path in tmp_path.iterdir()} == before - {"repogen-temporary-killed"} | names
    assert {path.name for path in tmp_path.iterdir()} == before - {"repogen-temporary-killed"}


def test_directory_that_another_process_locks_first_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about to be removed."""
    flock, attempts = fcntl.flock, []

    def busy_once(descriptor: int, operation: int) -> None:
        attempts.append(descriptor)
        if len(attempts) == 1:
            raise BlockingIOError
        flock(descriptor, operation)

    monkeypatch.setattr("repogen.files.temporary.fcntl.flock", busy_once)
    with temporary_directory(tmp_path) as directory:
        assert len(attempts) == 2
        assert os.listdir(directory) == []  # noqa: PTH208 - names are compared


def test_filesystem_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory can be used there, and is not removed by another process."""

    def unsupported(descriptor: int, operation: int) -> None:
        del descriptor, operation
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("repogen.files.temporary.fcntl.flock", unsupported)
    with temporary_directory(tmp_path) as first, temporary_directory(tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted((first, second))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mode", "stays"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_directory_that_another_user_renamed(tmp_path: Path, mode: int, *, stays: bool) -> None:
    """Without a sticky bit, any user may give such a name to any other directory of this user."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    tmp_path.chmod(mode)
    (tmp_path / "thesis").rename(tmp_path / "repogen-temporary-planted")
    with temporary_directory(tmp_path):
        pass
    tmp_path.chmod(0o755)
    assert (tmp_path / "repogen-temporary-planted" / "chapter").exists() is stays
