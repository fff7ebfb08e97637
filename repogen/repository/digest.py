"""SHA-256 of files and bytes, the one digest that manifests and fingerprints are made of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of the file's bytes; the GIL is released while it is read and hashed.

    Args:
        path: A regular file; a symlink is followed.

    Raises:
        OSError: It can't be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_bytes(b: bytes) -> str:
    """Return the hex SHA-256 of ``b``."""
    return hashlib.sha256(b).hexdigest()
