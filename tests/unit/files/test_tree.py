"""Trees that are nested deeper than Python's recursion limit."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from repogen.files.tree import remove_tree, walk
from tests.support.deep_tree import deep_tree

if TYPE_CHECKING:
    from pathlib import Path


def test_entries(tmp_path: Path) -> None:
    """Directories before what is in them, sorted; a link is not followed."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").touch()
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert list(walk(tmp_path)) == [(tmp_path, ["b", "link"], ["a", "fifo"]), (tmp_path / "b", [], ["file"])]
    assert list(walk(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    ("code", "strict", "is_error"),
    [(errno.EACCES, False, False), (errno.EACCES, True, True), (errno.EMFILE, False, True)],
)
def test_directory_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, strict: bool, is_error: bool
) -> None:
    """It is left out of a foreign tree, and not of an own one; with too many open files, no tree is complete."""
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def scandir(path: Path) -> Any:
        if path.name == "closed":
            raise OSError(code, os.strerror(code), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    if is_error:
        with pytest.raises(OSError, match="closed"):
            list(walk(tmp_path, strict=strict))
    else:
        assert list(walk(tmp_path, strict=strict)) == [(tmp_path, ["closed"], [])]


def test_deep_tree(tmp_path: Path) -> None:
    """What has a path of at most 4,096 bytes is listed; all of it is deleted, and links are not followed."""
    (tmp_path / "kept").touch()
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "link").symlink_to(tmp_path)
    with deep_tree(deep):
        assert len(list(walk(deep))) > sys.getrecursionlimit()
        remove_tree(deep)
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
