"""SHA-256 digests of files and bytes, used in manifests and fingerprints."""

from __future__ import annotations

import errno
import hashlib
import os
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from repogen.files import open_regular, raise_if_exhausted, require_allocated
from repogen.files.work_limit import raise_if_exceeded, shared

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import BufferedReader
    from pathlib import Path

    from repogen.repository.remembered import Remembered

# For less, starting threads costs more than it saves.
_MIN_BYTES_FOR_THREADS = 8_000_000

_FILES_AT_ONCE = 256

_RECORDED: dict[tuple[int, ...], str] = {}
"""Digests of placeholders, by what identifies an unchanged file."""


def sha256_file(path: Path, remembered: Remembered | None = None, stop: Event | None = None) -> str:
    """Return the hex SHA-256 of a file's bytes; the GIL is released while it is read and hashed.

    In ``work_limit``, a file to which several links lead is read once.

    Args:
        path: A regular file; a symlink is followed.
        remembered: Digests of earlier runs, for a file that is not read if it is unchanged.
        stop: Reading ends with an error when it is set.

    Raises:
        OSError: It can't be read, is not a regular file, or is a sparse file: one of many terabytes needs no space.
    """
    with open_regular(path) as stream:
        status = os.fstat(stream.fileno())
        recorded = _RECORDED.get(_identity(status)) if _RECORDED else None
        if recorded is None and remembered is not None:
            recorded = remembered.find(status)
        digests, key = shared("digests"), (*_identity(status), status.st_ctime_ns)
        recorded = recorded or digests.get(key)
        if recorded is not None:
            return recorded
        require_allocated(stream)
        digest = hashlib.file_digest(stream if stop is None else _Stoppable(stream, stop), "sha256").hexdigest()
        after = os.fstat(stream.fileno())
        if key == (*_identity(after), after.st_ctime_ns):
            digests[key] = digest
            if remembered is not None:
                remembered.add(status, digest)
        return digest


def record_digest(path: Path, sha256: str) -> None:
    """Record the digest of an object in a store, for the placeholder that represents it in a working copy.

    The bytes are not downloaded, so their digest cannot be computed; a file that replaces the placeholder is hashed.
    """
    _RECORDED[_identity(path.stat())] = sha256


def has_recorded_digest(path: Path) -> bool:
    """Return whether a file is a placeholder whose digest was recorded; False if it does not exist."""
    try:
        return _identity(path.stat()) in _RECORDED
    except OSError:
        return False


def sha256_files(paths: Iterable[Path], remembered: Remembered | None = None) -> list[str | None]:
    """Return the hex SHA-256 of each file, None for one that can't be read; large files are hashed in parallel.

    A signal that raises an exception in the main thread ends the other threads as well.

    Raises:
        WorkLimitError: A block around this code exceeded its limit.
    """
    paths = list(paths)
    stop = Event()
    digest = partial(_digest, remembered, stop)
    if sum(map(_size, paths)) < _MIN_BYTES_FOR_THREADS:
        return list(map(digest, paths))
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - takes 10 ms, which small models do not need

    digests: list[str | None] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            for start in range(0, len(paths), _FILES_AT_ONCE):
                raise_if_exceeded()  # a limit does not interrupt the pool
                digests += pool.map(digest, paths[start : start + _FILES_AT_ONCE])
        except BaseException:
            stop.set()
            raise
    return digests


class _Stoppable:
    """A stream that is read until an event is set; ``hashlib`` needs these two methods."""

    def __init__(self, stream: BufferedReader, stop: Event) -> None:
        self._stream, self._stop = stream, stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        if self._stop.is_set():
            raise OSError(errno.ECANCELED, "reading was interrupted")
        return self._stream.readinto(buffer)


def sha256_bytes(content: bytes) -> str:
    """Return the hex SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _digest(remembered: Remembered | None, stop: Event, path: Path) -> str | None:
    try:
        return sha256_file(path, remembered, stop)
    except OSError as error:
        raise_if_exhausted(error)
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
