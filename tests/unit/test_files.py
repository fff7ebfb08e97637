"""Reading files that repogen did not write: no waiting, no foreign directory, no unlimited size."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from repogen.files import (
    foreign_reason,
    is_foreign_in_public,
    is_inside,
    is_public,
    open_regular,
    read_bytes,
    read_text,
    require_inside,
)
from repogen.files.paths import foreign_link, is_own_group

OTHER_USER = 65534


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


def test_path_that_is_too_long_is_not_followed(tmp_path: Path) -> None:
    """A name of 2 MB took minutes: each of its parts is joined to those before it."""
    assert is_inside(tmp_path / "a" / "a", tmp_path)
    assert not is_inside(tmp_path / ("a/" * 3000), tmp_path)


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


@pytest.mark.parametrize(
    ("mode", "group", "is_expected"),
    [
        (0o755, 65534, False),
        (0o1777, 65534, True),
        (0o777, 65534, True),
        (0o775, 65534, False),  # members can replace every file, and are trusted
        (0o1775, 65534, True),
        (0o3770, 65534, True),
        (0o1775, -1, False),  # the group of this user alone
    ],
)
def test_directory_in_which_untrusted_users_can_create_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: int, *, is_expected: bool
) -> None:
    """A file of another user in it is not used."""
    (tmp_path / "planted").touch()
    os.chown(tmp_path / "planted", 65534, 65534)
    monkeypatch.setattr("repogen.files.paths.is_own_group", lambda number: number != 65534)
    os.chown(tmp_path, -1, group)
    tmp_path.chmod(mode)
    assert is_public(tmp_path) == is_foreign_in_public(tmp_path / "planted", tmp_path) == is_expected


def test_directory_that_another_user_can_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write to a directory above can rename this one, unless it is sticky, as `/tmp` is."""
    shared, own = tmp_path / "shared", tmp_path / "shared" / "cache" / "triton"
    own.mkdir(parents=True)
    for path in (own, own.parent):
        path.chmod(0o755)
    for mode, is_foreign in ((0o755, False), (0o777, True), (0o1777, False), (0o775, True), (0o1775, False)):
        shared.chmod(mode)
        monkeypatch.setattr("repogen.files.paths.is_own_group", lambda _number: False)
        expected = f"is below {shared}, which can be written by other users" if is_foreign else ""
        assert foreign_reason(own) == expected
    shared.chmod(0o775)
    monkeypatch.setattr("repogen.files.paths.is_own_group", lambda _number: True)
    assert foreign_reason(own) == ""
    shared.chmod(0o777)
    monkeypatch.setenv("HOME", str(own.parent))  # whose owner controls everything in it
    assert foreign_reason(own) == ""


def test_directory_below_a_link_that_another_user_can_exchange(tmp_path: Path) -> None:
    """The link is in a directory of other users, although its target is not."""
    shared, target = tmp_path / "shared", tmp_path / "target" / "triton"
    target.mkdir(parents=True, mode=0o755)
    shared.mkdir()
    (shared / "cache").symlink_to(target.parent)
    shared.chmod(0o777)
    assert foreign_reason(target) == ""
    assert foreign_reason(shared / "cache" / "triton") == f"is below {shared}, which can be written by other users"


def test_group_of_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the name of the user, and no other member."""
    user = pwd.getpwuid(os.geteuid())
    for name, members, is_own in (
        (user.pw_name, [], True),
        (user.pw_name, [user.pw_name], True),
        (user.pw_name, ["other"], False),
        ("staff", [], False),
    ):
        group = grp.struct_group((name, "x", 1, members))
        monkeypatch.setattr("grp.getgrgid", lambda _number, group=group: group)
        assert is_own_group(1) is is_own


@pytest.mark.parametrize(
    ("link", "target", "owner", "is_foreign"),
    [
        (OTHER_USER, "directory/file", 0, True),
        (OTHER_USER, "directory/file", OTHER_USER, False),
        (OTHER_USER, "directory", 0, True),
        (0, "directory/file", OTHER_USER, False),
        (OTHER_USER, "/proc/self/cwd", OTHER_USER, True),
        (OTHER_USER, "link", 0, False),
        (OTHER_USER, "missing", 0, False),
    ],
)
def test_link_of_another_user(tmp_path: Path, link: int, target: str, owner: int, *, is_foreign: bool) -> None:
    """It may lead to what this user owns."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").touch()
    for path in (tmp_path / "directory", tmp_path / "directory" / "file"):
        os.chown(path, owner, -1)
    (tmp_path / "link").symlink_to(target)
    os.chown(tmp_path / "link", link, -1, follow_symlinks=False)
    assert foreign_link(tmp_path / "link") == (str(tmp_path / "link") if is_foreign else "")
    assert foreign_link(tmp_path / "link", OTHER_USER) == ""


def test_parent_of_what_a_foreign_link_leads_to(tmp_path: Path) -> None:
    """The kernel does not read ``link/..`` as the directory that contains the link."""
    (tmp_path / "private" / "below").mkdir(parents=True)
    (tmp_path / "private" / "file").touch()
    (tmp_path / "shared" / "private").mkdir(parents=True)
    link = tmp_path / "shared" / "link"
    link.symlink_to(tmp_path / "private" / "below")
    os.chown(link, OTHER_USER, -1, follow_symlinks=False)
    assert foreign_link(link / ".." / "file") == str(link)
    assert foreign_link(tmp_path / "shared" / ".." / "private" / "file") == ""
