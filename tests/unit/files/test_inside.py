"""Files in a directory, where another user replaces names by symlinks between the check and the use."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from repogen.files import inside, open_inside, read_inside
from repogen.files.paths import real_path
from repogen.files.resolve import open_file
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["proc", "no proc"])
def secret(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file that must not be read, and another one with files that may be."""
    for directory in ("secret", "root/sub"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "a").write_text(directory)
    if request.param == "no proc":
        monkeypatch.setattr("repogen.files.content._DESCRIPTORS", tmp_path / "missing")
    return tmp_path / "secret"


def test_link_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own function fails if it reads as a link what was one."""
    (tmp_path / "link").symlink_to(tmp_path)
    original, failures = os.readlink, [OSError(errno.EINVAL, "Invalid argument")] * 2

    def replaced(path: str) -> str:
        if failures:
            raise failures.pop()
        return original(path)

    monkeypatch.setattr(os, "readlink", replaced)
    assert real_path(tmp_path / "link") == tmp_path


@pytest.mark.usefixtures("secret")
def test_files_inside_are_read(tmp_path: Path) -> None:
    """Also by links within the directory, and by links to it."""
    root = tmp_path / "root"
    (root / "link").symlink_to("sub/a")
    (tmp_path / "alias").symlink_to(root)
    for path, directory in ((root / "sub" / "a", root), (root / "link", root), (tmp_path / "alias/link", root)):
        assert read_inside(path, directory) == b"root/sub"
    assert read_inside(tmp_path / "alias" / "link", tmp_path / "alias") == b"root/sub"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_inside(root / "link", root, limit=3)


def test_file_outside_is_not_opened(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a device can have an effect."""
    (tmp_path / "root" / "link").symlink_to(secret / "a")
    monkeypatch.setattr(inside, "open_regular", lambda path: pytest.fail(f"{path} was opened"))
    with pytest.raises(PermissionError, match="leads out of"):
        open_inside(tmp_path / "root" / "link", tmp_path / "root")


@pytest.mark.parametrize("replaced", ["root/sub/a", "root/sub"])
def test_link_that_replaces_a_name_before_it_is_opened(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    """The file that was opened is not in the directory."""
    path = tmp_path / "root" / "sub" / "a"
    swap_when_opened(monkeypatch, path, tmp_path / replaced, secret / "a" if replaced.endswith("a") else secret)
    with pytest.raises(PermissionError, match="leads out of"):
        open_inside(path, tmp_path / "root")


def test_link_that_is_there_only_while_the_file_is_opened(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads to the right file before and after."""
    path, original = tmp_path / "root" / "sub" / "a", open_file

    def exchanged(opened: str, *args: int) -> int:
        if os.fspath(opened) != str(path):
            return original(opened, *args)
        return original(str(secret / "a"), *args)

    monkeypatch.setattr("repogen.files.content.open_file", exchanged)
    with pytest.raises(OSError, match=r"leads out of|was replaced while it was opened"):
        open_inside(path, tmp_path / "root")


def test_link_that_replaces_the_directory(secret: Path, tmp_path: Path) -> None:
    """The directory is the one that was resolved before."""
    directory = tmp_path / "root" / "sub"
    root = directory.resolve()
    directory.rename(tmp_path / "moved")
    directory.symlink_to(secret)
    with pytest.raises(PermissionError, match="leads out of"):
        open_inside(directory / "a", directory, root)


def test_snapshot_of_a_hub_whose_blob_is_replaced(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blobs of the same model are inside; what a blob links to is not."""
    snapshot, blobs = tmp_path / "model" / "snapshots" / "c0ffee", tmp_path / "model" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1234").write_text("weights")
    (snapshot / "a").symlink_to("../../blobs/1234")
    assert read_inside(snapshot / "a", snapshot) == b"weights"
    swap_when_opened(monkeypatch, snapshot / "a", blobs / "1234", secret / "a")
    with pytest.raises(PermissionError, match="leads out of"):
        open_inside(snapshot / "a", snapshot)
