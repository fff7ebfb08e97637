"""Directories to write to: links of other users redirect nothing, also when they appear during the write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.errors import RepogenError, SpecError
from repogen.files import read_bytes
from repogen.files.resolve import ForeignLinkError, directory_to_write, resolved
from repogen.repository.filesystem import opened_directory
from repogen.repository.workspace import preflight
from repogen.scaffold.files import scaffold

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER_USER = 65534


def link(path: Path, target: str, owner: int = OTHER_USER) -> None:
    """Make a symlink of a user."""
    path.symlink_to(target)
    os.chown(path, owner, -1, follow_symlinks=False)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Return a directory of this user that nothing may be written to."""
    directory = tmp_path / "private"
    directory.mkdir()
    return directory


@pytest.mark.parametrize(
    "path", ["new", "new/a/b", "own-link/new", "private/../new", "chain/new", "theirs/new", "./new"]
)
def test_directory_is_created(tmp_path: Path, path: str) -> None:
    """Links of this user are followed, and those of another user to directories of that user."""
    (tmp_path / "target").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "their-directory").mkdir()
    os.chown(tmp_path / "their-directory", OTHER_USER, -1)
    link(tmp_path / "own-link", str(tmp_path / "target"), owner=0)
    link(tmp_path / "chain", "own-link", owner=0)
    link(tmp_path / "theirs", "./their-directory/../their-directory/")
    with directory_to_write(tmp_path / path) as opened:
        (opened / "file").write_text("content", encoding="utf-8")
    assert (tmp_path / path / "file").read_text(encoding="utf-8") == "content"
    assert resolved(tmp_path / path / "missing") == Path(os.path.realpath(tmp_path / path)) / "missing"
    with directory_to_write(tmp_path / path):  # it exists, and belongs to this user
        pass


@pytest.mark.parametrize("path", ["link", "link/a", "chain", "up/private", "dangling", "dangling/a", "inner/link/a"])
def test_link_of_another_user(tmp_path: Path, private: Path, path: str) -> None:
    """Nothing is created where it leads to."""
    (tmp_path / "inner").mkdir()
    link(tmp_path / "link", "private")
    link(tmp_path / "chain", "link", owner=0)
    link(tmp_path / "up", ".")
    link(tmp_path / "dangling", "private/new")
    link(tmp_path / "inner" / "link", "../private")
    with pytest.raises(ForeignLinkError, match="is a symlink of another user"), directory_to_write(tmp_path / path):
        pass
    with pytest.raises(SpecError) as caught:
        resolved(tmp_path / path)
    assert caught.value.code == "foreign-link"
    assert list(private.iterdir()) == []


def test_directory_that_is_replaced(tmp_path: Path, private: Path) -> None:
    """What was opened receives the files; an error has the path that the caller knows."""
    parent = tmp_path / "parent"
    with directory_to_write(parent / "directory") as opened:
        parent.rename(tmp_path / "moved")
        link(parent, str(private))
        (opened / "file").touch()
    assert (tmp_path / "moved" / "directory" / "file").exists()
    with (
        pytest.raises(FileExistsError, match="moved/directory/file"),
        directory_to_write(tmp_path / "moved" / "directory") as opened,
        (opened / "file").open("xb"),
    ):
        pass
    assert list(private.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "number"), [("loop", errno.ELOOP), ("file", errno.ENOTDIR), ("file/a", errno.ENOTDIR)]
)
def test_path_that_leads_to_no_directory(tmp_path: Path, path: str, number: int) -> None:
    """Errors are those of the operating system, with a path; ``resolved`` leaves them to what reads or writes there."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=str(tmp_path)) as caught, directory_to_write(tmp_path / path):
        pass
    assert caught.value.errno == number
    resolved(tmp_path / path)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Also after an error."""
    (tmp_path / "loop").symlink_to("loop")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the iterator of Path would be open itself
    for path in ("loop", "new"):
        try:
            with directory_to_write(tmp_path / path):
                pass
        except OSError:
            pass
        resolved(tmp_path / path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (lambda path: scaffold(path, force=True), "init.unwritable"),
        (lambda path: scaffold(path / "new", force=True), "init.unwritable"),
        (lambda path: preflight(path, None), "foreign-link"),
        (lambda path: preflight(path / "new", None), "foreign-link"),
        (lambda path: preflight(path.with_name("repository"), path), "foreign-link"),
        (lambda path: repogen.rollback("m", repository=path), "foreign-link"),
        (lambda path: repogen.prune(keep=1, repository=path), "foreign-link"),
        (lambda path: repogen.publish("m", source=path, target=path.with_name("target")), "foreign-link"),
        (lambda path: repogen.sign("m", key=path.with_name("key"), repository=path), "foreign-link"),
        (lambda path: repogen.report(path.with_name("repository"), output=path / "report.html"), "report.write"),
        (lambda path: repogen.report(path.with_name("repository"), results=path), "foreign-link"),
    ],
)
def test_commands_do_not_write_behind_it(
    tmp_path: Path, private: Path, command: Callable[[Path], object], code: str
) -> None:
    """Whatever a command writes, it is not written to a directory that a link of another user leads to."""
    link(tmp_path / "link", "private")
    (tmp_path / "repository").mkdir()
    with pytest.raises(RepogenError) as caught:
        command(tmp_path / "link")
    assert caught.value.code == code
    assert "another user" in caught.value.message
    assert list(private.iterdir()) == []


def test_nothing_is_left_if_init_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file is removed again where it was written, although another user has replaced its directory."""
    directory, other = tmp_path / "project", tmp_path / "other"
    other.mkdir()
    (other / "models.py").write_text("mine", encoding="utf-8")

    def failing(path: Path) -> None:
        if path.name.startswith(".repogen.yaml-"):
            directory.rename(tmp_path / "moved")
            link(directory, str(other))
            raise OSError(errno.ENOSPC, "No space left on device")

    original = type(directory).replace

    def replace(path: Path, target: Path) -> Path:
        failing(path)
        return original(path, target)

    monkeypatch.setattr(type(directory), "replace", replace)
    with pytest.raises(SpecError, match="No space left on device"):
        scaffold(directory, force=False)
    assert (other / "models.py").read_text(encoding="utf-8") == "mine"
    assert not list((tmp_path / "moved").iterdir())


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("private/file", True),
        ("own-link/file", True),
        ("theirs/file", True),
        ("file-link", False),
        ("link/file", False),
        ("link/../private/file", False),
        ("own-link-to-link/file", False),
        ("theirs/inner/file", False),
    ],
)
def test_file_behind_a_link(tmp_path: Path, private: Path, path: str, *, is_allowed: bool) -> None:
    """A file is opened only if no link of another user leads to what that user does not own."""
    (private / "file").write_text("content", encoding="utf-8")
    (tmp_path / "their-directory").mkdir()
    (tmp_path / "their-directory" / "file").write_text("content", encoding="utf-8")
    os.chown(tmp_path / "their-directory", OTHER_USER, -1)
    link(tmp_path / "own-link", "private", owner=0)
    link(tmp_path / "theirs", "their-directory")
    link(tmp_path / "their-directory" / "inner", "../private")
    link(tmp_path / "file-link", "private/file")
    link(tmp_path / "link", "private")
    link(tmp_path / "own-link-to-link", "link", owner=0)
    if is_allowed:
        assert read_bytes(tmp_path / path) == b"content"
        return
    with pytest.raises(PermissionError, match="is a symlink of another user"):
        read_bytes(tmp_path / path)


def test_file_in_an_open_directory(tmp_path: Path, private: Path) -> None:
    """It is that of the directory that was opened, wherever this directory was moved to."""
    (private / "file").write_text("content", encoding="utf-8")
    with opened_directory(private) as opened:
        private.rename(tmp_path / "moved")
        link(private, str(tmp_path))
        assert read_bytes(opened / "file") == b"content"


@pytest.mark.parametrize("lacks", ["O_PATH", "/proc"])
def test_file_on_another_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """Files are opened by their names."""
    (tmp_path / "file").write_text("content", encoding="utf-8")
    if lacks == "O_PATH":
        monkeypatch.delattr(os, "O_PATH")
    else:
        is_directory = os.path.isdir
        monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self/fd" and is_directory(path))
    assert read_bytes(tmp_path / "file") == b"content"


@pytest.mark.parametrize("path", ["missing", "file/missing", "loop"])
def test_error_of_a_file(tmp_path: Path, path: str) -> None:
    """It names the path that was passed, and is that of the operating system."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=str(tmp_path / path)) as caught:
        read_bytes(tmp_path / path)
    assert caught.value.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
