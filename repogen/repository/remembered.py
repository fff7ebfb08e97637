"""Digests of large files from earlier runs, by what identifies an unchanged file: they need not be read again.

A digest is stored only if the file had not been changed for a while when it was read. Otherwise a later change within
the resolution of the file system's times would not be seen; git has the same rule for its index. The time of the last
change of the inode counts as well, which a program cannot set.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter, ValidationError

from repogen.files import foreign_reason, read_bytes
from repogen.repository.filesystem import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_BYTES = 2**20
"""A smaller file is read in less time than it takes to look up its digest."""
RACY_SECONDS = 2.0
"""More than the resolution of the times of any file system."""
_MAX_ENTRIES = 50_000
_MAX_FILE_BYTES = 32 * 2**20
_DIGESTS = TypeAdapter(dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]])


@dataclass
class Remembered:
    """Digests by the identity of a file.

    Attributes:
        digests: Those of earlier runs.
        used: Those that this run looked up or computed.
    """

    digests: dict[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)

    def find(self, status: os.stat_result) -> str | None:
        """Return the digest of an unchanged file; None if it has to be read."""
        key = _key(status)
        digest = self.digests.get(key)
        if digest is not None:
            self.used[key] = digest
        return digest

    def add(self, status: os.stat_result, digest: str) -> None:
        """Keep the digest of a file that was read completely, if it had not been changed just before.

        Args:
            status: The status of the file before and after it was read, which was the same.
            digest: The digest.
        """
        if status.st_size >= MIN_BYTES and time.time() - max(status.st_mtime, status.st_ctime) > RACY_SECONDS:
            self.used[_key(status)] = digest


@contextmanager
def remembered_digests(file: Path | None) -> Iterator[Remembered]:
    """Yield the digests of earlier runs, and store those of this one; failures to read or write are ignored.

    Args:
        file: Where they are stored, in a directory to which only this user can write; None to store nothing.
    """
    remembered = Remembered(_read(file))
    yield remembered
    if file is not None and not remembered.used.items() <= remembered.digests.items():
        entries = {**remembered.digests, **remembered.used}
        _write(file, entries if len(entries) <= _MAX_ENTRIES else remembered.used)


def _key(status: os.stat_result) -> str:
    values = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return " ".join(map(str, values))


def _read(file: Path | None) -> dict[str, str]:
    try:
        return {} if file is None or not _is_own(file) else _DIGESTS.validate_json(read_bytes(file, _MAX_FILE_BYTES))
    except (OSError, ValidationError):
        return {}


def _write(file: Path, entries: dict[str, str]) -> None:
    with suppress(OSError):
        make_directory(file.parent.parent)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_DIGESTS.dump_json(entries))
            Path(name).replace(file)
        finally:
            Path(name).unlink(missing_ok=True)


def _is_own(file: Path) -> bool:
    """Return whether only this user, or root, can write a file and its directory."""
    status = file.lstat()
    is_writable = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in {os.geteuid(), 0} and not is_writable and not foreign_reason(file.parent)
