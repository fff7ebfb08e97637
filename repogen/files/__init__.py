"""Reads files that repogen did not write: regular files only, up to a size, and only inside of a directory.

A FIFO or a device in place of a file would block a build or `repogen check`, and a symlink may lead to any file of the
machine. Every error of the functions here is an ``OSError`` whose ``strerror`` completes "FILE cannot be read: ".
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from repogen.files import content
from repogen.files.content import MAX_TEXT_BYTES, ContentError, open_regular, read_stream, require_allocated
from repogen.files.inside import open_inside
from repogen.files.paths import (
    cache_directory,
    exists,
    foreign_reason,
    has_trusted_owner,
    is_directory,
    is_file,
    is_foreign_in_public,
    is_inside,
    is_like_tmp,
    is_plain_name,
    is_private_hard_link,
    is_public,
    is_shared,
    lack_of_space,
    no_home_directory,
    raise_if_exhausted,
    reason,
    require_inside,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MAX_GRAPH_BYTES", "MAX_TEXT_BYTES", "cache_directory", "exists", "foreign_reason", "has_trusted_owner",
    "is_directory", "is_file", "is_foreign_in_public", "is_inside", "is_like_tmp", "is_plain_name",
    "is_private_hard_link", "is_public", "is_shared", "lack_of_space", "no_home_directory", "open_inside",
    "open_regular", "raise_if_exhausted", "read_bytes", "read_inside", "read_text", "reason", "require_allocated",
    "require_inside",
]  # fmt: skip

MAX_GRAPH_BYTES = 2**31
"""Limit for ONNX files and raw tensors; protobuf messages cannot be larger."""


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: The file.
        limit: Size in bytes that it must not exceed.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger.
    """
    try:
        return content.read_bytes(path, limit)
    except ContentError as error:
        raise _too_large(path, error) from error


def read_inside(path: Path, directory: Path, root: Path | None = None, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file in a directory, see ``open_inside`` and ``read_bytes``.

    Raises:
        OSError: It leads to another directory, cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_inside(path, directory, root) as stream:
            return read_stream(stream, limit)
    except ContentError as error:
        raise _too_large(path, error) from error


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a regular file in UTF-8, see ``read_bytes``; line endings are kept.

    Raises:
        OSError: As ``read_bytes``.
        UnicodeDecodeError: It is not UTF-8.
    """
    return read_bytes(path, limit).decode()


def _too_large(path: Path, error: ContentError) -> OSError:
    return OSError(errno.EFBIG, str(error).removeprefix("is "), str(path))
