"""Reads files that repogen did not write: regular files only, up to a size, and only inside of a directory.

A FIFO or a device in place of a file would block a build or `repogen check`, and a symlink may lead to any file of the
machine. Every error is an ``OSError`` whose ``strerror`` completes "FILE cannot be read: ".
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

MAX_TEXT_BYTES = 64 * 2**20
"""Limit for JSON records, configs, labels and other texts."""
MAX_GRAPH_BYTES = 2**31
"""Limit for ONNX files and raw tensors; protobuf messages cannot be larger."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading, without waiting for the writer of a FIFO; symlinks are followed.

    Raises:
        OSError: It cannot be opened, or it is a directory, a FIFO, a socket or a device.
    """
    stream = open(path, "rb", opener=_open)  # noqa: SIM115 - Path.open has no opener; the caller closes it
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return stream


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: The file.
        limit: Size in bytes that it must not exceed.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger.
    """
    with open_regular(path) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit // 2**20} MiB", str(path))
    return content


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a regular file in UTF-8, see ``read_bytes``; line endings are kept.

    Raises:
        OSError: As ``read_bytes``.
        UnicodeDecodeError: It is not UTF-8.
    """
    return read_bytes(path, limit).decode()


def reason(error: OSError) -> str:
    """Return what failed, and the file if the error has one: those of shutil, and of a full disk, may have none.

    >>> reason(OSError(28, "No space left on device", "model.onnx")), reason(OSError("not a regular file"))
    ('No space left on device (model.onnx)', 'not a regular file')
    """
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")


def exists(path: Path) -> bool:
    """Return whether a path leads to anything; False where that can't be determined, unlike ``Path.exists``."""
    return os.path.exists(path)  # noqa: PTH110 - Path raises for long names, loops and unreadable directories


def is_file(path: Path) -> bool:
    """Return whether a path leads to a regular file; False where that can't be determined."""
    return os.path.isfile(path)  # noqa: PTH113 - as above


def is_directory(path: Path) -> bool:
    """Return whether a path leads to a directory; False where that can't be determined."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def is_inside(path: Path, directory: Path) -> bool:
    """Return whether a path leads to a file in a directory, after all symlinks are followed.

    The files of a snapshot in a Hugging Face cache are links to the ``blobs`` of the same model, which are inside.

    >>> is_inside(Path("/a/b/../c"), Path("/a")), is_inside(Path("/a/../c"), Path("/a"))
    (True, False)
    """
    target, root = Path(os.path.realpath(path)), Path(os.path.realpath(directory))
    snapshots = next((parent for parent in root.parents if parent.name == "snapshots"), None)
    # `blobs` is not resolved: it could be a link itself
    blobs = None if snapshots is None else snapshots.parent / "blobs"
    return target.is_relative_to(root) or (blobs is not None and target.is_relative_to(blobs))


def require_inside(path: Path, directory: Path) -> Path:
    """Return a path that leads to a file in a directory, see ``is_inside``.

    Raises:
        OSError: It leads to another directory.
    """
    if not is_inside(path, directory):
        raise OSError(errno.EPERM, f"leads out of {directory}", str(path))
    return path
