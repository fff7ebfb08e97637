"""Every store keeps the promises of the Protocol: listing, transfers, and writes with a condition."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from repogen.errors import PublishError, SpecError
from repogen.files.url import location
from repogen.stores.gcs import GcsStore
from repogen.stores.interface import ChangedError
from repogen.stores.open import open_store
from repogen.stores.s3 import S3Store

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.stores.interface import Store

pytestmark = [
    pytest.mark.parametrize("url", ["dir", "s3", "gs", pytest.param("az", marks=pytest.mark.full)], indirect=True),
    pytest.mark.filterwarnings("ignore:Sending a large body directly"),  # aiohttp, of what gcsfs and adlfs do
]


@pytest.fixture
def store(url: str) -> Store:
    """Return an empty bucket."""
    return open_store(location(url))  # type: ignore[arg-type]


def test_conditional_writes(store: Store) -> None:
    """A write whose condition does not hold changes nothing; the same write again counts as done."""
    first = store.create("a/c", b"1")
    assert [(each.key, each.size, each.tag) for each in store.list("a/")] == [("a/c", 1, first)]
    with pytest.raises(ChangedError):
        store.create("a/c", b"2")
    second = store.replace("a/c", b"22", first)
    assert second != first
    for key, tag in (("a/c", first), ("a/missing", first)):
        with pytest.raises(ChangedError):
            store.replace(key, b"3", tag)
    assert (store.read("a/c", 10), store.read("a/c", 1)) == (b"22", b"2")
    assert [each.key for each in store.list("")] == ["a/c"]


def test_conditional_deletion(store: Store) -> None:
    """An object that was replaced is not deleted; one that does not exist counts as deleted."""
    first = store.create("a", b"1")
    second = store.replace("a", b"2", first)
    if not isinstance(store, (GcsStore, S3Store)):  # the emulators of these ignore the condition
        with pytest.raises(ChangedError):
            store.delete_if("a", first)
        assert [each.key for each in store.list("")] == ["a"]
    store.delete_if("a", second)
    store.delete_if("a", second)
    assert list(store.list("")) == []


def test_one_of_several_writers_succeeds(store: Store) -> None:
    """Of threads that create one object, and of threads that replace it."""
    for round_number in range(5):
        key = f"claim-{round_number}"
        assert winners(lambda content, key=key: store.create(key, content)) == 1
        tag = next(each.tag for each in store.list(key))
        assert winners(lambda content, key=key, tag=tag: store.replace(key, b"new " + content, tag)) == 1


def winners(write: object) -> int:
    """Return how many of several threads succeed in a write."""
    results: list[str] = []

    def attempt(number: int) -> None:
        try:
            results.append(write(b"writer %d" % number))  # type: ignore[operator]
        except ChangedError:
            return

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(results)


def test_transfers(store: Store, tmp_path: Path) -> None:
    """Files of one and several parts, and empty ones; progress adds up to the size."""
    content = os.urandom(40_000_000)
    for name, data in (("big", content), ("small", b"x"), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
        sent: list[int] = []
        store.upload(tmp_path / name, f"m/1/{name}", sent.append)
        assert sum(sent) == len(data)
        store.download(f"m/1/{name}", tmp_path / "copy", len(data))
        assert (tmp_path / "copy").read_bytes() == data
        (tmp_path / "copy").unlink()
    assert store.read("m/1/empty", 10) == b""
    store.copy("m/1/big", "m/2/big")
    assert {each.key: each.size for each in store.list("m/2")} == {"m/2/big": len(content)}
    store.delete(["m/1/big", "m/1/missing", "m/1/small", "m/1/empty"])
    store.abort_uploads("m/")
    assert [each.key for each in store.list("")] == ["m/2/big"]


def test_missing_object_and_bucket(store: Store, url: str, tmp_path: Path) -> None:
    """They are different errors."""
    with pytest.raises(FileNotFoundError):
        store.read("missing", 10)
    with pytest.raises(FileNotFoundError):
        store.download("missing", tmp_path / "missing", 1)
    with pytest.raises((SpecError, PublishError)) as caught:
        list(open_store(location(f"{url.partition(':')[0]}://missing-bucket")).list(""))  # type: ignore[arg-type]
    assert caught.value.code == "store.no-bucket"
