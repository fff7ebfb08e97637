"""Reads members of zip archives whose headers may be wrong, and whose contents may unpack to any size."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.files.content import ContentError, open_regular, require_allocated, size_text
from repogen.files.inside import open_inside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMPRESSIONS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 0x1
_BLOCK = 2**20


@dataclass(frozen=True)
class Archive:
    """An open zip archive.

    Attributes:
        names: Names of its members; no two are equal.
        unpacked_bytes: Sum of the sizes of its members, as their headers declare them.
    """

    names: tuple[str, ...]
    unpacked_bytes: int
    _opened: zipfile.ZipFile

    def read(self, name: str, limit: int) -> bytearray:
        """Return the contents of a member; memory of its size is needed once.

        Args:
            name: One of ``names``.
            limit: Largest size in bytes; no more is unpacked.

        Raises:
            ContentError: The member is larger, is encrypted, has a compression other than deflate, or is damaged.
        """
        info = self._opened.getinfo(name)
        if info.flag_bits & _ENCRYPTED:
            raise ContentError(f"contains {name!r}, which is encrypted")
        if info.compress_type not in _COMPRESSIONS:
            raise ContentError(f"contains {name!r}, which is neither stored nor deflated")
        if info.file_size > limit:
            raise ContentError(f"contains {name!r}, which is larger than {size_text(limit)}")
        content = bytearray()
        try:
            with self._opened.open(info) as stream:
                while len(content) < info.file_size and (block := stream.read(_BLOCK)):
                    content += block
        except Exception as error:  # zipfile has no common class for damaged members
            raise ContentError(f"contains {name!r}, which is damaged: {error}") from error
        if len(content) != info.file_size:
            raise ContentError(f"contains {name!r}, which is truncated")
        return content


@contextmanager
def open_archive(path: Path, root: Path | None = None) -> Iterator[Archive]:
    """Open a zip archive while the block runs.

    Args:
        path: The archive.
        root: A directory without symlinks that the archive must be in, see ``open_inside``; None for any place.

    Raises:
        ContentError: It is not a zip archive, is damaged, or has two members of the same name.
        OSError: It can't be opened, is not a regular file, is a sparse file, or leads out of ``root``.
    """
    with open_regular(path) if root is None else open_inside(path, root, root) as stream:
        require_allocated(stream)
        try:
            opened = zipfile.ZipFile(stream)
        except Exception as error:  # the headers of a damaged archive lead to many exceptions
            raise ContentError(f"is not a zip archive, or is damaged: {error}") from error
        with opened:
            infos = opened.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) != len(names):
                raise ContentError("is a zip archive with two members of the same name")
            yield Archive(tuple(names), sum(info.file_size for info in infos), opened)
