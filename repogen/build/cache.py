"""A cache of verified models in the user's cache directory: what was exported and verified once is not exported again.

An entry is ``<root>/<key>/<fingerprint>/``: files, and ``entry.json`` with a document and the SHA-256 of each file. The
key is a digest of what is known before a model is loaded; the document's reader decides whether the rest still holds.
An entry that is incomplete or damaged is removed and counts as missing. A directory to which another user can write is
not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from repogen.errors import SpecError
from repogen.files import cache_directory, foreign_reason, is_plain_name, raise_if_exhausted
from repogen.repository.digest import sha256_file
from repogen.repository.filesystem import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORY_VARIABLE = "REPOGEN_CACHE_DIR"
SIZE_VARIABLE = "REPOGEN_CACHE_GB"
_DEFAULT_GB = 10.0
_ENTRY_FILE = "entry.json"
_MAX_DOCUMENT_BYTES = 16 * 2**20
_COPY_BYTES = 2**20


@dataclass(frozen=True)
class Entry:
    """An entry.

    Attributes:
        document: JSON from the code that stored the entry.
        files: SHA-256 of each file, by its name in the entry.
        directory: The entry's directory.
    """

    document: str
    files: dict[str, str]
    directory: Path = Path()


_ENTRY = TypeAdapter(Entry)


class Cache:
    """A cache with a limited size; any process may use it at any time.

    Args:
        root: Its directory; created when something is stored.
        max_bytes: The least recently used entries are removed above this size.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        """Store the arguments; nothing is read or written."""
        self.root = root
        self._max_bytes = max_bytes

    def entries(self, key: str) -> Iterator[Entry]:
        """Yield the readable entries of a key, the most recently used first."""
        if not _is_own(self.root):
            return
        for directory in sorted(_subdirectories(self.root / key), key=_last_use, reverse=True):
            entry = _read(directory)
            if entry is None:
                shutil.rmtree(directory, ignore_errors=True)
            else:
                yield entry

    def copy(self, entry: Entry, target: Path) -> bool:
        """Copy the files of an entry into a directory, and compare their digests.

        Returns:
            Whether all are intact; otherwise the directory is removed, and so is an entry that is damaged.
        """
        try:
            target.mkdir(parents=True)
            for name, digest in entry.files.items():
                if _copy(entry.directory / name, target / name) != digest:
                    raise OSError(f"{name} is damaged")  # noqa: TRY301 - handled like a file that cannot be read
            os.utime(entry.directory)
        except OSError as error:
            with suppress(OSError):
                raise_if_exhausted(error)  # the disk may be full, and the entry intact
                shutil.rmtree(entry.directory, ignore_errors=True)
            shutil.rmtree(target, ignore_errors=True)
            return False
        return True

    def store(self, key: str, name: str, document: str, files: Mapping[str, Path]) -> None:
        """Store an entry, unless its files exceed the limit; a cache that cannot be written is left as it is.

        Args:
            key: Key of the entry.
            name: Its name among those of the key; an existing entry of this name is replaced.
            document: JSON to store with it.
            files: Files to copy, by plain name.
        """
        try:
            if sum(path.stat().st_size for path in files.values()) > self._max_bytes:
                return
            make_directory(self.root.parent)
            self.root.mkdir(mode=0o700, exist_ok=True)
            if not _is_own(self.root):
                return
            (self.root / key).mkdir(mode=0o700, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=self.root))
        except OSError:
            return
        try:
            digests = {file: _copy(path, new / file) for file, path in files.items()}
            (new / _ENTRY_FILE).write_bytes(_ENTRY.dump_json(Entry(document, digests), exclude={"directory"}))
            target = self.root / key / name
            shutil.rmtree(target, ignore_errors=True)
            with suppress(OSError):  # another process stored it at the same time
                new.rename(target)
        except OSError:
            pass
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self._evict()

    def _evict(self) -> None:
        """Remove the least recently used entries until the limit is kept."""
        keys = (key for key in _subdirectories(self.root) if not key.name.startswith("."))
        entries = sorted((entry for key in keys for entry in _subdirectories(key)), key=_last_use, reverse=True)
        size = 0
        for entry in entries:
            size += sum(file.stat().st_size for file in entry.iterdir() if file.is_file()) if entry.exists() else 0
            if size > self._max_bytes:
                shutil.rmtree(entry, ignore_errors=True)
                with suppress(OSError):  # it has other entries
                    entry.parent.rmdir()


def digests_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of remembered digests; None if the environment turns the cache off with a size of 0."""
    cache = user_cache(environment)
    return None if cache is None else cache.root.with_name("digests.json")


def user_cache(environment: Mapping[str, str] = os.environ) -> Cache | None:
    """Return the user's cache of verified models.

    None if the environment turns it off with a size of 0, or if there is no directory for it.
    """
    try:
        gigabytes = float(environment.get(SIZE_VARIABLE) or _DEFAULT_GB)
    except ValueError:
        gigabytes = _DEFAULT_GB
    if not gigabytes > 0:
        return None
    try:
        root = cache_directory(environment.get(DIRECTORY_VARIABLE))
    except SpecError:
        return None
    return Cache(root / "verified", int(min(gigabytes, 1e6) * 1e9))


def _is_own(root: Path) -> bool:
    """Return whether only this user, or root, can write to a directory: an entry of another user is not verified."""
    try:
        return not foreign_reason(root)
    except OSError:
        return False


def _read(directory: Path) -> Entry | None:
    try:
        with (directory / _ENTRY_FILE).open("rb") as stream:
            content = stream.read(_MAX_DOCUMENT_BYTES)
        entry = _ENTRY.validate_json(content)
    except (OSError, ValidationError):
        return None
    if any(not is_plain_name(name) or name == _ENTRY_FILE for name in entry.files):
        return None
    return Entry(entry.document, entry.files, directory)


def _copy(source: Path, target: Path) -> str:
    """Copy a file and return the digest of the copy."""
    shutil.copyfile(source, target)
    return sha256_file(target)


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _last_use(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def digest(values: Mapping[str, str]) -> str:
    """Return a digest of keys and values, short enough for a directory's name."""
    hasher = hashlib.sha256()
    for key, value in sorted(values.items()):
        hasher.update(f"{len(key)}:{key}={len(value)}:{value}\n".encode())
    return hasher.hexdigest()[:40]
