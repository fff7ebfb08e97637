"""A store that keeps each bucket in a directory, for example on a network filesystem: ``dir://bucket/models``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.stores.interface import ChangedError, StoredObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class DirectoryStore:
    """The store ``dir``; the environment variable EXAMPLE_BUCKETS names the directory of the buckets."""

    def open(self, bucket: str) -> DirectoryBucket:
        """Return a bucket that exists."""
        path = Path(os.environ["EXAMPLE_BUCKETS"]) / bucket
        if not path.is_dir():
            raise SpecError(f"{path} does not exist", code="store.no-bucket")
        return DirectoryBucket(path)


class DirectoryBucket:
    """A bucket: files are renamed into place, and conditional writes hold a lock."""

    def __init__(self, path: Path) -> None:
        """Use an existing directory."""
        self.path = path

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose keys start with a prefix."""
        for path in sorted(self.path.rglob("*")):
            key = path.relative_to(self.path).as_posix()
            if key.startswith(prefix) and (stored := _stored_object(path, key)):
                yield stored

    def read(self, key: str, limit: int) -> bytes:
        """Return at most ``limit`` bytes of an object."""
        with (self.path / key).open("rb") as stream:
            return stream.read(limit)

    def download(self, key: str, path: Path, size: int) -> None:  # noqa: ARG002 - a file has an end
        """Copy an object to a local file."""
        shutil.copyfile(self.path / key, path)

    def upload(self, path: Path, key: str, progress: Callable[[int], None]) -> None:
        """Copy a local file to an object."""
        with self._new(key) as temporary:
            shutil.copyfile(path, temporary)
        progress(path.stat().st_size)

    def create(self, key: str, content: bytes) -> str:
        """Write an object that does not exist."""
        return self._write_if(key, content, "")

    def replace(self, key: str, content: bytes, tag: str) -> str:
        """Write an object that has a tag."""
        return self._write_if(key, content, tag)

    def copy(self, source: str, target: str) -> None:
        """Copy an object."""
        with self._new(target) as temporary:
            shutil.copyfile(self.path / source, temporary)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        with self._lock():
            for key in keys:
                (self.path / key).unlink(missing_ok=True)

    def delete_if(self, key: str, tag: str) -> None:
        """Delete an object if it still has this tag."""
        with self._lock():
            if _tag(self.path / key) not in {tag, ""}:
                raise ChangedError(key)
            (self.path / key).unlink(missing_ok=True)

    def abort_uploads(self, prefix: str) -> None:
        """Do nothing: an interrupted upload leaves a temporary file outside of the bucket."""

    def _write_if(self, key: str, content: bytes, tag: str) -> str:
        with self._lock():
            if _tag(self.path / key) != tag:
                raise ChangedError(key)
            with self._new(key) as temporary:
                temporary.write_bytes(content)
            return _tag(self.path / key)

    @contextmanager
    def _new(self, key: str) -> Iterator[Path]:
        """Yield a temporary file that becomes the object."""
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".new-")
        os.close(descriptor)
        yield Path(name)
        (self.path / key).parent.mkdir(parents=True, exist_ok=True)
        Path(name).replace(self.path / key)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.path.parent / f".{self.path.name}.lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _stored_object(path: Path, key: str) -> StoredObject | None:
    """Describe an object; None if another process deleted it after it was listed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    tag = _tag(path)
    return StoredObject(key, status.st_size, tag, status.st_mtime) if tag else None


def _tag(path: Path) -> str:
    """Return an identifier of an object's content and time; empty if it does not exist."""
    try:
        return f"{hashlib.sha256(path.read_bytes()).hexdigest()}-{path.stat().st_mtime_ns}"
    except (FileNotFoundError, IsADirectoryError):
        return ""
