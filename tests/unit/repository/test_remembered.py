"""Digests of large files that did not change since an earlier run."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from repogen.repository import remembered
from repogen.repository.digest import sha256_file, sha256_files
from repogen.repository.remembered import remembered_digests

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"weights" * 2**18


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a large file; files count as old enough at once."""
    monkeypatch.setattr(remembered, "RACY_SECONDS", -1.0)
    path = tmp_path / "weights"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return where digests are stored."""
    return tmp_path / "cache" / "digests.json"


def digest(path: Path, store: Path | None) -> str | None:
    """Return the digest of a file in a run of its own."""
    with remembered_digests(store) as digests:
        return sha256_files([path], digests)[0]


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a test fail if a file is hashed."""

    def file_digest(*_: object) -> None:
        raise AssertionError("the file was read")

    monkeypatch.setattr(hashlib, "file_digest", file_digest)


def test_unchanged_file_is_not_read_again(weights: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except by a command that verifies, which does not use remembered digests."""
    expected = hashlib.sha256(CONTENT).hexdigest()
    assert digest(weights, store) == expected
    forbid_reading(monkeypatch)
    assert digest(weights, store) == expected
    with pytest.raises(AssertionError, match="was read"):
        sha256_file(weights)


@pytest.mark.parametrize("change", ["in place", "renamed", "touched"])
def test_changed_file_is_read(weights: Path, store: Path, change: str) -> None:
    """Also if its size and modification time are restored: the time of the inode's last change cannot be."""
    digest(weights, store)
    status = weights.stat()
    changed = CONTENT[:-1] + b"S"
    if change == "in place":
        weights.write_bytes(changed)
    elif change == "renamed":
        other = weights.with_name("other")
        other.write_bytes(changed)
        other.replace(weights)
    else:
        changed = CONTENT
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(weights, store) == hashlib.sha256(changed).hexdigest()


def test_file_that_changed_just_before_is_not_remembered(tmp_path: Path, store: Path) -> None:
    """A second change could have the same time, as in git's index."""
    path = tmp_path / "weights"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(0, 0))  # only the time of the inode is new
    digest(path, store)
    assert not store.exists()


def test_small_files_are_not_remembered(weights: Path, store: Path) -> None:
    """Reading them takes less time."""
    weights.write_bytes(b"small")
    digest(weights, store)
    assert not store.exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"1 2 3 4 5": "not a digest"}'])
def test_damaged_store_is_replaced(weights: Path, store: Path, content: str) -> None:
    """It counts as absent."""
    store.parent.mkdir()
    store.write_text(content)
    assert digest(weights, store) == hashlib.sha256(CONTENT).hexdigest()
    assert hashlib.sha256(CONTENT).hexdigest() in store.read_text()


@pytest.mark.parametrize("path", ["digests.json", "."])
def test_store_of_other_users_is_not_used(
    weights: Path, store: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Another user could write a digest for a file that was exchanged."""
    digest(weights, store)
    (store.parent / path).chmod(0o777)
    forbid_reading(monkeypatch)
    with pytest.raises(AssertionError, match="was read"):
        digest(weights, store)


def test_number_of_entries_is_limited(weights: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, those that a run did not use are forgotten."""
    monkeypatch.setattr(remembered, "_MAX_ENTRIES", 2)
    for number in range(3):
        weights.write_bytes(CONTENT + bytes(number))
        digest(weights, store)
    assert store.read_text().count(":") == 1


def test_store_that_cannot_be_written_is_ignored(weights: Path, tmp_path: Path) -> None:
    """And so is a cache that is turned off."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "digests.json", None):
        assert digest(weights, place) == hashlib.sha256(CONTENT).hexdigest()
