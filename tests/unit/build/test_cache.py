"""The cache of verified models: limits, damage, and concurrent use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.build.cache import Cache, digest, user_cache

if TYPE_CHECKING:
    from pathlib import Path

KEY = digest({"spec": "a"})


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Path]:
    """Return the files of an entry, 100 bytes."""
    (tmp_path / "graph").write_bytes(b"g" * 60)
    (tmp_path / "data").write_bytes(b"d" * 40)
    return {"model.onnx": tmp_path / "graph", "model.onnx.data": tmp_path / "data"}


def stored(cache: Cache, target: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Return document and files of the entries that can be copied."""
    result = []
    for number, entry in enumerate(cache.entries(KEY)):
        if cache.copy(entry, target / str(number)):
            files = {path.name: path.read_bytes() for path in (target / str(number)).iterdir()}
            result.append((entry.document, files))
    return result


def test_round_trip(tmp_path: Path, source: dict[str, Path]) -> None:
    """Copies, so that a change of the original or of the copy does not reach the cache."""
    cache = Cache(tmp_path / "cache", 10_000)
    cache.store(KEY, "one", '{"a": 1}', source)
    source["model.onnx"].write_bytes(b"changed")
    expected = {"model.onnx": b"g" * 60, "model.onnx.data": b"d" * 40}
    assert stored(cache, tmp_path / "first") == [('{"a": 1}', expected)]
    (tmp_path / "first" / "0" / "model.onnx").write_bytes(b"changed")
    assert stored(cache, tmp_path / "second") == [('{"a": 1}', expected)]
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    assert list(cache.entries(digest({"spec": "b"}))) == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_directory_of_other_users_is_not_used(tmp_path: Path, source: dict[str, Path], mode: int) -> None:
    """Anyone could store an entry, which a build would publish without verifying it."""
    cache = Cache(tmp_path / "cache", 10_000)
    cache.store(KEY, "planted", "{}", source)
    (tmp_path / "cache").chmod(mode)
    assert list(cache.entries(KEY)) == []
    cache.store(KEY, "own", "{}", source)
    assert [path.name for path in (tmp_path / "cache" / KEY).iterdir()] == ["planted"]


@pytest.mark.parametrize("damage", ["content", "file", "document", "size", "escape"])
def test_damaged_entry_is_removed(tmp_path: Path, source: dict[str, Path], damage: str) -> None:
    """It counts as missing, and the next build stores it again."""
    cache = Cache(tmp_path / "cache", 10_000)
    cache.store(KEY, "one", "{}", source)
    entry = tmp_path / "cache" / KEY / "one"
    match damage:
        case "content":
            (entry / "model.onnx").write_bytes(b"x" * 60)
        case "file":
            (entry / "model.onnx.data").unlink()
        case "document":
            (entry / "entry.json").write_text("{")
        case "size":
            (entry / "model.onnx").write_bytes(b"g" * 10)
        case _:
            (entry / "entry.json").write_text('{"document": "{}", "files": {"../../graph": "00"}}')
    assert stored(cache, tmp_path / "target") == []
    assert not entry.exists()
    assert not (tmp_path / "target" / "0").exists()
    cache.store(KEY, "one", "{}", source)
    assert len(stored(cache, tmp_path / "again")) == 1


def test_least_recently_used_entries_are_removed(tmp_path: Path, source: dict[str, Path]) -> None:
    """The limit is kept; an entry larger than it is not stored."""
    cache = Cache(tmp_path / "cache", 1000)
    for number in range(3):
        cache.store(digest({"n": str(number)}), "one", "{}", source)
        os.utime(tmp_path / "cache" / digest({"n": str(number)}) / "one", (number, number))
    (first,) = cache.entries(digest({"n": "0"}))
    assert cache.copy(first, tmp_path / "used")
    cache.store(digest({"n": "3"}), "one", "{}", source)
    remaining = {str(n) for n in range(4) if list(cache.entries(digest({"n": str(n)})))}
    assert {"0", "3"} <= remaining
    assert "1" not in remaining
    assert not (tmp_path / "cache" / digest({"n": "1"})).exists()
    Cache(tmp_path / "small", 50).store(KEY, "one", "{}", source)
    assert not (tmp_path / "small").exists()


def test_cache_that_cannot_be_written(tmp_path: Path, source: dict[str, Path]) -> None:
    """A build does not fail because of it."""
    (tmp_path / "cache").write_text("a file")
    cache = Cache(tmp_path / "cache", 10_000)
    cache.store(KEY, "one", "{}", source)
    assert list(cache.entries(KEY)) == []


@pytest.mark.parametrize(("size", "is_on"), [("", True), ("0", False), ("-1", False), ("2.5", True), ("nan", False)])
def test_environment(tmp_path: Path, size: str, *, is_on: bool) -> None:
    """A size of 0 turns it off."""
    cache = user_cache({"REPOGEN_CACHE_GB": size, "REPOGEN_CACHE_DIR": str(tmp_path)})
    assert (cache is not None) == is_on
