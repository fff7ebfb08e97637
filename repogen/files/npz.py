"""Reads ``.npz`` files. Shapes are compared with the stored bytes before memory is allocated; pickles are rejected.

``numpy.load`` allocates the memory for the declared shape first, reads bzip2 and LZMA, and returns members that are not
arrays as bytes; damaged headers raise exceptions of many classes.
"""

from __future__ import annotations

import io
from math import prod
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from repogen.files.archive import open_archive
from repogen.files.content import ContentError, size_text

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import Array
    from repogen.files.archive import Archive

MAX_UNPACKED_BYTES = 2 * 2**30
"""Largest size of all arrays of a compressed file; no request to Triton can be larger than 2 GiB."""

_ENDING = ".npy"
_MAX_HEADER_BYTES = 2**16
_KINDS = "biufcSU"
_LENGTHS = {(1, 0): Struct("<H"), (2, 0): Struct("<I")}
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path, *, compressed: bool = True, root: Path | None = None) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file by name.

    Args:
        path: The file. Its arrays must fit into 2 GiB, or into the size of the file if that is larger.
        compressed: Whether its arrays may be larger than the file; repogen itself writes them as they are.
        root: A directory that the file must be in, see ``open_archive``.

    Raises:
        ContentError: It is not such a file, is damaged or too large, or contains something else than arrays of numbers
            and strings.
        OSError: It can't be opened.
    """
    limit = max(MAX_UNPACKED_BYTES if compressed else 0, path.stat().st_size)
    with open_archive(path, root) as archive:
        if archive.unpacked_bytes > limit:
            raise ContentError(f"contains arrays of more than {size_text(limit)} in total")
        return {name.removesuffix(_ENDING): _array(archive, name, limit) for name in archive.names}


def _array(archive: Archive, name: str, limit: int) -> Array:
    if not name.endswith(_ENDING):
        raise ContentError(f"contains {name!r}, which is not an array")
    content = archive.read(name, limit)
    stream = io.BytesIO(content[:_MAX_HEADER_BYTES])
    try:
        version = np.lib.format.read_magic(stream)
        _require_plain_header(content, version)
        shape, fortran_order, dtype = _READERS[version](stream)
    except Exception as error:  # NumPy parses the header as Python code
        raise ContentError(f"contains {name!r}, whose header cannot be read: {str(error)[:100]}") from error
    if dtype.kind not in _KINDS or not dtype.itemsize:
        what = "Python objects" if dtype.hasobject else f"the dtype {dtype!s:.40}"
        raise ContentError(f"contains {name!r} with {what}; only numbers and strings are read")
    start = stream.tell()
    if any(size < 0 for size in shape) or prod(shape) * dtype.itemsize != len(content) - start:
        raise ContentError(f"contains {name!r}, whose shape does not match its {len(content) - start} bytes")
    try:
        flat = np.frombuffer(content, dtype, offset=start)
        array = flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    except ValueError as error:  # more dims than NumPy supports, or a dim that is too large
        raise ContentError(f"contains {name!r}, whose shape is not supported: {error}") from error
    return array


def _require_plain_header(content: bytearray, version: tuple[int, int]) -> None:
    """Require a header without the suffix L of Python 2's integers: NumPy needs a hundred times as long for those.

    Raises:
        ValueError: It may have one.
    """
    length = _LENGTHS[version]
    (size,) = length.unpack_from(content, np.lib.format.MAGIC_LEN)
    if b"L" in content[(start := np.lib.format.MAGIC_LEN + length.size) : start + size]:
        raise ValueError("it was written with Python 2; save the file again")
