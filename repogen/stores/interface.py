"""What a store must do: the Protocols behind the entry points ``repogen.stores``, one for each scheme of a URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

MAX_OBJECTS = 200_000
"""Maximum number of objects in a repository; a store may stop listing after one more."""


class ChangedError(Exception):
    """The condition of a write does not hold: another process wrote, created or deleted the object."""


@dataclass(frozen=True)
class StoredObject:
    """An object of a bucket.

    Attributes:
        key: Its name.
        size: Bytes.
        tag: Changes with the content of the object: an ETag or a generation. It may stay the same if the same bytes are
            written again.
        modified: Time of the last write by the store's clock, in seconds since 1970.
    """

    key: str
    size: int
    tag: str
    modified: float


class Store(Protocol):
    """One bucket. Methods are called from several threads.

    Every method may raise ``RepogenError`` for a request that failed, after its own retries; the message must not
    contain credentials. A write is atomic: other processes see the old object or the new one.
    """

    def list(self, prefix: str) -> Iterable[StoredObject]:
        """Return the objects whose keys start with ``prefix``, as of now; no listing is cached."""

    def read(self, key: str, limit: int) -> bytes:
        """Return an object's bytes, at most ``limit`` of them.

        Raises:
            FileNotFoundError: There is no such object.
        """

    def download(self, key: str, path: Path, size: int) -> None:
        """Write an object to a new local file; memory does not grow with its size.

        Args:
            key: Its name.
            path: The file.
            size: Bytes that the object had when it was listed. If the store sends more, the download
                fails with a ``RepogenError``, because a response could be endless.

        Raises:
            FileNotFoundError: There is no such object.
        """

    def upload(self, path: Path, key: str, progress: Callable[[int], None]) -> None:
        """Write a local file to an object, in parallel parts if it is large; memory does not grow with its size.

        Args:
            path: The file.
            key: The object's name; an existing object is replaced.
            progress: Called with the number of bytes that were sent since the last call.
        """

    def create(self, key: str, content: bytes) -> str:
        """Write a small object that does not exist, and return its tag.

        Of several processes that create an object at the same time, one succeeds.

        Raises:
            ChangedError: It exists.
        """

    def replace(self, key: str, content: bytes, tag: str) -> str:
        """Write a small object that has the tag ``tag``, and return its new tag.

        Raises:
            ChangedError: It has another tag, or does not exist.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the bucket; the bytes are not downloaded."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order; those that do not exist are skipped."""

    def delete_if(self, key: str, tag: str) -> None:
        """Delete an object if it still has the tag ``tag``; without effect if it does not exist.

        Raises:
            ChangedError: It has another tag.
        """

    def abort_uploads(self, prefix: str) -> None:
        """Remove the parts of interrupted uploads to keys that start with ``prefix``, if the store keeps such parts."""


@runtime_checkable
class StorePlugin(Protocol):
    """An entry point of ``repogen.stores``; its name is the scheme of the store's URLs."""

    def open(self, bucket: str) -> Store:
        """Return a bucket. Credentials come from the environment, never from the URL.

        Raises:
            RepogenError: A distribution is not installed.
        """
