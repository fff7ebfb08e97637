"""SHA-256 digests of files and bytes, used in manifests and fingerprints."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from repogen.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# For less, starting threads costs more than it saves.
_MIN_BYTES_FOR_THREADS = 8_000_000

_RECORDED: dict[tuple[int, ...], str] = {}
"""Digests of placeholders, by what identifies an unchanged file."""


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes; the GIL is released while it is read and hashed.

    Args:
        path: A regular file; a symlink is followed.

    Raises:
        OSError: It can't be read, or is not a regular file.
    """
    with open_regular(path) as stream:
        recorded = _RECORDED.get(_identity(os.fstat(stream.fileno()))) if _RECORDED else None
        return recorded or hashlib.file_digest(stream, "sha256").hexdigest()


def record_digest(path: Path, sha256: str) -> None:
    """Record the digest of an object in a store, for the placeholder that represents it in a working copy.

    The bytes are not downloaded, so their digest cannot be computed; a file that replaces the placeholder is hashed.
    """
    _RECORDED[_identity(path.stat())] = sha256


def sha256_files(paths: Iterable[Path]) -> list[str | None]:
    """Return the hex SHA-256 of each file, None for one that can't be read; large files are hashed in parallel."""
    paths = list(paths)
    if sum(map(_size, paths)) < _MIN_BYTES_FOR_THREADS:
        return list(map(_digest, paths))
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - takes 10 ms, which small models do not need

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(_digest, paths))


def sha256_bytes(content: bytes) -> str:
    """Return the hex SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _digest(path: Path) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
