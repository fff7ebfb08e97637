"""Trees that are nested deeper than Python's recursion limit."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

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
