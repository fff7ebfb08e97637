"""Files that are scanned and then loaded by their names cannot be exchanged in between."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.files.private_file import private_file

if TYPE_CHECKING:
    from pathlib import Path

OTHER_USER = 65534


def test_own_file_is_not_copied(tmp_path: Path) -> None:
    """Archives may be large."""
    path = tmp_path / "model.pt2"
    path.write_bytes(b"model")
    with private_file(path) as file:
        assert file == path


@pytest.mark.parametrize("place", ["file", "owner", "directory", "link"])
def test_file_that_other_users_can_change_or_replace(tmp_path: Path, place: str) -> None:
    """The copy has its name, and does not change with it."""
    path = tmp_path / "shared" / "model.pt2"
    path.parent.mkdir()
    path.write_bytes(b"model")
    if place == "link":
        (tmp_path / "public").mkdir()
        (tmp_path / "public").chmod(0o777)
        (tmp_path / "public" / "hop").symlink_to(path)
        path = tmp_path / "model.pt2"
        path.symlink_to(tmp_path / "public" / "hop")
    elif place == "owner":
        os.chown(path, OTHER_USER, -1)
    else:
        (path if place == "file" else path.parent).chmod(0o777)
    with private_file(path) as file:
        path.resolve().write_bytes(b"exchanged")
        assert (file.name, file.read_bytes()) == ("model.pt2", b"model")
    assert not file.exists()
