"""Tar archives of model directories: the same files give the same bytes."""

from __future__ import annotations

import tarfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from gzip import GzipFile
    from pathlib import Path

# 1980-01-01, as in wheels and zip files: GNU tar warns about times before 1970, and some tools about 1970 itself
_TIME = 315_532_800
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644


def write_tar(stream: IO[bytes] | GzipFile, members: Mapping[str, Path | None]) -> None:
    """Write an uncompressed archive. Names are sorted; times, owners and modes do not depend on the files.

    Args:
        stream: Where the archive is written to, from its beginning to its end.
        members: Name in the archive -> a directory with its files, or None for an empty directory.

    Raises:
        OSError: A file can't be read, or the stream can't be written.
    """
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(members):
            for path, member in _tree(name, members[name]):
                info = tarfile.TarInfo(member)
                info.mtime = _TIME
                if path is None or path.is_dir():
                    info.type, info.mode = tarfile.DIRTYPE, _DIRECTORY_MODE
                    archive.addfile(info)
                    continue
                with path.open("rb") as file:
                    info.size, info.mode = path.stat().st_size, _FILE_MODE
                    archive.addfile(info, file)


def _tree(name: str, directory: Path | None) -> Iterator[tuple[Path | None, str]]:
    """Yield a directory and what is below it, sorted, with the names in the archive."""
    yield directory, name
    if directory is not None:
        for path in sorted(directory.rglob("*")):
            yield path, f"{name}/{path.relative_to(directory).as_posix()}"
