"""Reads text and bytes of at most a given size."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING

from repogen.files.paths import is_below, leads_out, real_path
from repogen.files.resolve import open_file
from repogen.files.work_limit import count_file, is_counted, shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

MAX_TEXT_BYTES = 16 * 2**20
"""Limit for text that has no smaller one: JSON, code, class names. Real files have kilobytes."""

_MAX_VALUES = 1_000_000
_MAX_HOLES = 2**30
"""Bytes of all files of a command that may be without space on the disk, in addition to as many as have space."""
_BLOCK = 512
"""Bytes of a block in the status of a file, on any filesystem."""

_COPY_BYTES = 2**20
"""Bytes that are copied at a time."""

_DESCRIPTORS = Path("/proc/self/fd")
_DIRECTORIES: ContextVar[tuple[Path, ...]] = ContextVar("directories", default=())
"""The directories in which files may be opened, without symlinks; none for any."""


class ContentError(ValueError):
    """The content of a file cannot be used; the message is the reason, without the file's name: ``is not UTF-8``."""


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading, without waiting for the writer of a FIFO.

    A symlink of another user, who does not own what it leads to, is not followed: it may lead to private files.

    The limits of ``work_limit`` grow with its size on the disk.

    Args:
        path: The file.
        follow: Whether it may be a symlink.

    Raises:
        OSError: It cannot be opened, or it is a directory, a FIFO, a socket or a device, or it is not in a directory of
            ``only_files_in``; ``ForeignLinkError`` for a symlink of another user.
    """
    stream = open(path, "rb", opener=_open if follow else _open_no_link)  # noqa: SIM115 - Path.open has no opener; the caller closes it
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if directories := _DIRECTORIES.get():
        with closed_after_error(stream):
            target = opened_path(stream, path)
            if not any(is_below(target, directory) for directory in directories):
                raise leads_out(path, directories[0])
    if is_counted():
        count_file(status, status.st_size - _holes(stream.fileno(), status))
    return stream


@contextmanager
def only_files_in(*directories: Path) -> Iterator[None]:
    """Let ``open_regular`` open only files in one of these directories while the block runs in this thread.

    What was opened is compared, not its name: another user may exchange a part of the path for a symlink at any time.

    Args:
        directories: Paths without symlinks.
    """
    token = _DIRECTORIES.set(directories)
    try:
        yield
    finally:
        _DIRECTORIES.reset(token)


@contextmanager
def closed_after_error(stream: BufferedReader) -> Iterator[None]:
    """Close a file if the block raises an error."""
    try:
        yield
    except BaseException:
        stream.close()
        raise


def opened_path(stream: BufferedReader, path: Path) -> Path:
    """Return the path of an open file, without symlinks; ``path`` is its name if the system has no ``/proc``.

    Raises:
        OSError: The system has no ``/proc``, and the name now leads to another file.
    """
    try:
        return Path(os.readlink(_DESCRIPTORS / str(stream.fileno())))  # noqa: PTH115 - tests replace it
    except OSError:
        target = real_path(path)
    if not os.path.samestat(os.fstat(stream.fileno()), target.lstat()):
        raise OSError(errno.EAGAIN, "was replaced while it was opened", str(path))
    return target


def _open(path: str, flags: int) -> int:
    return open_file(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)


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
    """Require that not much more than half of the bytes of a file are without space on the disk.

    In ``work_limit``, the holes of all files of a command are added up, those of each file once: an archive of a few
    kilobytes can contain thousands of sparse files.

    Raises:
        OSError: More are.
    """
    status = os.fstat(stream.fileno())
    holes = _holes(stream.fileno(), status)
    excess = max(0, 2 * holes - status.st_size)
    if excess == 0:
        return
    earlier, key = shared("sparse files"), (status.st_dev, status.st_ino)
    if key not in earlier:
        total = excess + earlier.get("total", 0)
        if total > _MAX_HOLES:
            raise OSError(errno.EFBIG, "is a sparse file", stream.name)
        earlier |= {key: excess, "total": total}


def _holes(descriptor: int, status: os.stat_result) -> int:
    """Return the bytes of a file that are without space on the disk; the position in the file does not change.

    The number of blocks is not sufficient: compression makes it smaller, and some filesystems report none.
    """
    size, offset, data = status.st_size, 0, 0
    if size <= 2 * _BLOCK * status.st_blocks:
        return 0
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    while offset < size:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a filesystem without holes
                data = size
            break
        data += end - start
        offset = end
    os.lseek(descriptor, position, os.SEEK_SET)
    return max(0, size - data)


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
        return read_stream(stream, limit)


def read_stream(stream: BufferedReader, limit: int) -> bytes:
    """Return the bytes of an open file, see ``read_bytes``.

    Raises:
        ContentError: As ``read_bytes``.
        OSError: It can't be read.
    """
    size = os.fstat(stream.fileno()).st_size
    if size > limit:
        raise ContentError(f"is larger than {size_text(limit)}")
    content = stream.read(size + 1)  # read() allocates as many bytes as requested
    if len(content) > size:
        raise ContentError("grew while it was read")
    return content


def copy_bytes(reader: IO[bytes], writer: IO[bytes], size: int) -> None:
    """Copy at most ``size`` bytes; a copy to the end of the file would not end while another user adds bytes."""
    while size > 0 and (block := reader.read(min(_COPY_BYTES, size))):
        writer.write(block)
        size -= len(block)


def write_new(path: Path, content: bytes) -> None:
    """Write a new file in the place of any other, such as a link that another user planted, which is not followed.

    Raises:
        OSError: It cannot be written.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as stream:
        stream.write(content)


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
