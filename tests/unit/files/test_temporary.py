"""Temporary directories of processes that were killed are removed by the next command."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.files.temporary import system_directory, temporary_directory

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


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o1777, 65534), (0o770, 0)])
def test_directory_in_which_others_can_rename_files_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, *, above: bool
) -> None:
    """Another user could put a directory with code in the place of a private one; also from a directory above it."""
    shared = tmp_path / "shared"
    directory = shared / "own" if above else shared
    directory.mkdir(parents=True)
    shared.chmod(mode)
    os.chown(shared, owner, 65534)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    with pytest.raises(SpecError, match="the directory of temporary files, ") as caught, temporary_directory():
        pass
    assert caught.value.code == "temporary-directory.foreign"
    assert list(directory.iterdir()) == []


def test_directory_such_as_tmp_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sticky bit prevents others from renaming a private directory."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert system_directory() == tmp_path


def test_mounted_volume_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emptyDir of Kubernetes has mode 0777; a volume that belongs to another user is not used."""
    volume = tmp_path / "volume"
    directory = volume / "own"
    directory.mkdir(parents=True)
    volume.chmod(0o777)
    monkeypatch.setattr("os.path.ismount", lambda path: path == volume)
    assert system_directory(volume) == volume
    assert system_directory(directory) == directory
    os.chown(volume, 65534, 65534)
    with pytest.raises(SpecError, match=r"is below .*volume, which belongs to another user"):
        system_directory(directory)
