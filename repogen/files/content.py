"""Reads text and bytes of at most a given size."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

MAX_TEXT_BYTES = 16 * 2**20
"""Limit for text that has no smaller one: JSON, code, class names. Real files have kilobytes."""

_MAX_VALUES = 1_000_000
_MAX_HOLES = 2**30
"""Bytes of a file that may be without space on the disk, in addition to as many as have space."""


class ContentError(ValueError):
    """The content of a file cannot be used; the message is the reason, without the file's name: ``is not UTF-8``."""


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


def require_few_values(json: str | bytes | bytearray, limit: int = _MAX_VALUES) -> None:
    """Require that a JSON text has a limited number of values, before it is decoded.

    pydantic needs a kilobyte for each value of a wrong type, and a value needs two bytes. Lists and objects are counted
    as well: one in another needs no comma.

    Raises:
        ContentError: It has more.
    """
    if any((json.count(sign) if isinstance(json, str) else json.count(sign.encode())) > limit for sign in ",[{"):
        raise ContentError(f"has more than {limit:,} values")


def require_allocated(stream: BufferedReader) -> None:
    """Require that not much more than half of a file is without space on the disk.

    The number of blocks that the filesystem reports is not used: compression makes it smaller.

    Raises:
        OSError: More is.
    """
    descriptor, offset, data = stream.fileno(), 0, 0
    size = os.fstat(descriptor).st_size
    if size <= _MAX_HOLES:
        return
    while offset < size:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a filesystem without holes
                break
            start = end = size
        data += end - start
        if start - data > _MAX_HOLES + data:
            raise OSError(errno.EFBIG, "is a sparse file", stream.name)
        offset = end
    os.lseek(descriptor, 0, os.SEEK_SET)


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: The file.
        limit: Largest size in bytes.

    Raises:
        ContentError: It is larger, or it grew while it was read.
        OSError: It can't be read, or is not a regular file.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise ContentError(f"is larger than {size_text(limit)}")
        content = stream.read(size + 1)  # read() allocates as many bytes as requested
    if len(content) > size:
        raise ContentError("grew while it was read")
    return content


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a UTF-8 file, with line feeds as the only line ends.

    Raises:
        ContentError: It is larger than ``limit`` bytes, or not UTF-8.
        OSError: It can't be read.
    """
    try:
        text = read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise ContentError("is not UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def size_text(size: int) -> str:
    """Return a number of bytes in the largest binary unit that divides it.

    >>> size_text(2**31), size_text(2**20), size_text(1000)
    ('2 GiB', '1 MiB', '1000 bytes')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"
