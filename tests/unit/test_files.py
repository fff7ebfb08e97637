"""Reading files that repogen did not write: no waiting, no foreign directory, no unlimited size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repogen.files import is_inside, open_regular, read_bytes, read_text, require_inside


def test_regular_file_and_a_link_to_it(tmp_path: Path) -> None:
    """Both are read; whether a link may be followed is decided by ``is_inside``."""
    (tmp_path / "a").write_bytes("ä\r\n".encode())
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b") == "ä\r\n"


@pytest.mark.parametrize("path", ["fifo", "directory", "/dev/zero", "/dev/tty0", "missing"])
def test_other_files_are_errors_at_once(tmp_path: Path, path: str) -> None:
    """A FIFO would block until a writer comes, and a device may have no end."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match=r"not a regular file|Is a directory|No such file|not permitted"):
        open_regular(tmp_path / path)


def test_size_is_limited(tmp_path: Path) -> None:
    """The limit is inclusive."""
    (tmp_path / "a").write_bytes(b"1234")
    assert read_bytes(tmp_path / "a", 4) == b"1234"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_bytes(tmp_path / "a", 3)


def test_paths_inside_of_a_directory(tmp_path: Path) -> None:
    """Dots, absolute names and links are followed to the file that is read."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "file-out").symlink_to(outside / "x")
    (root / "folder-out").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    (root / "inner").symlink_to("sub/x")
    (tmp_path / "alias").symlink_to(root)
    inside = [root / "x", root / "sub/../x", root / "inner", root / "loop", tmp_path / "alias" / "x"]
    assert [is_inside(path, root) for path in inside] == [True] * len(inside)
    assert is_inside(root / "x", tmp_path / "alias")
    for path in (root / "../outside/x", Path("/etc/hostname"), root / "file-out", root / "folder-out" / "x"):
        assert not is_inside(path, root)
        with pytest.raises(PermissionError, match="leads out of"):
            require_inside(path, root)


def test_files_of_a_hub_snapshot_are_in_its_blobs(tmp_path: Path) -> None:
    """A snapshot consists of links to the blobs of the same model; a ``blobs`` that is a link is not followed."""
    for name in ("good", "evil"):
        (tmp_path / name / "snapshots" / "c0ffee" / "onnx").mkdir(parents=True)
    (tmp_path / "good" / "blobs").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "evil" / "blobs").symlink_to(tmp_path / "secret")
    for name, expected in (("good", True), ("evil", False)):
        snapshot = tmp_path / name / "snapshots" / "c0ffee"
        (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/1234")
        assert is_inside(snapshot / "onnx" / "model.onnx", snapshot) is expected
        assert is_inside(snapshot / "onnx" / "model.onnx", snapshot / "onnx") is expected
