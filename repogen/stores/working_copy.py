"""A private local copy of a repository in a store, on which commands run with the same code as on a local repository.

Small files that describe the repository are downloaded: config.pbtxt, manifests, ``repogen.json``. Every other object
is a placeholder, a sparse file with the object's size and time; ``fetch`` replaces placeholders by the objects' bytes.
The digest of a placeholder is the one in the manifest, provided that the object has the size in the manifest, and was
not written after the manifest. Versions that are being uploaded are not in the copy.

A command that does not need every version names those that it needs; the small files of the others are placeholders.

Keys of a bucket are not trusted: one that is not a plain relative path is an error.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE, MAX_CONFIG_BYTES, OWNER_FILE, UNCONFIRMED_FILE
from repogen.errors import ConfigError, PublishError, RepogenError
from repogen.files import MAX_TEXT_BYTES, is_plain_name, lack_of_space
from repogen.files.tree import walk
from repogen.repository.decode import INT64_MAX
from repogen.repository.digest import record_digest
from repogen.repository.layout import archive_dir, reservation
from repogen.repository.manifest import read_manifest
from repogen.repository.version_policy import served_versions
from repogen.stores.claim import MAX_BYTES, claimed_version, is_skipped
from repogen.stores.interface import MAX_OBJECTS
from repogen.stores.limits import TotalTime
from repogen.stores.pinned import deleted_versions, is_pinned, own_config, pinned_versions
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from repogen.artifacts.progress import Progress
    from repogen.files.url import RepositoryUrl
    from repogen.stores.interface import Store, StoredObject

_MAX_CONFIGS_BYTES = 256 * 2**20
"""Of all models together, because they are in memory."""
_METADATA = frozenset({CONFIG_FILE, MANIFEST_FILE, OWNER_FILE, UNCONFIRMED_FILE})
_MAX_TIME = 2.0**33
_MAX_KEY = 1024  # characters: the longest keys of S3, GCS and Azure
"""Seconds since 1970, about 270 years."""
_MAX_LISTINGS = 100
_READ_PER_SECOND = 100
"""Objects; few of them are small files, which are read in parallel."""
_REQUESTS = 16
_DOWNLOADS = 4
_VERSION_DEPTH = 3
"""Minimum number of parts in the path of a file in a version's directory."""

Identity = tuple[int, int, int]
Versions = Iterable[tuple[str, int]]
"""Models and versions."""

_COUNTER = count(1)


@dataclass(frozen=True)
class Entry:
    """A file of the working copy, as the store has it.

    Attributes:
        stored: The object.
        identity: Inode, size and time of the local file, which change if the file changes.
        complete: Whether the local file has the object's bytes.
    """

    stored: StoredObject
    identity: Identity
    complete: bool


@dataclass(frozen=True)
class StoredConfig:
    """The config.pbtxt of a model in the store; its local file may have another policy, see ``pinned``."""

    content: bytes
    tag: str


class WorkingCopy:
    """The local copy of a repository, and of the archive next to it.

    Attributes:
        url: The repository's URL.
        store: Its bucket.
        path: Directory of the copy. It does not exist if the store has no object of the repository.
        entries: The files, by key.
        configs: The stored config.pbtxt of each model, by key.
        finished: Keys of claims of versions that are published: their owner was killed before it deleted them.
        skipped: Keys of claims that mark numbers which are not used, by model and version.
        deleted: Keys of versions that another command was deleting, by model.
    """

    def __init__(
        self, url: RepositoryUrl, store: Store, root: Path, progress: Progress, older: Versions | None = None
    ) -> None:
        """Prepare a copy in an empty private directory; ``refresh`` fills it.

        Args:
            url: The repository's URL.
            store: Its bucket.
            root: The directory.
            progress: Receives progress events.
            older: Versions whose small files are read, in addition to those of the newest, the served and the
                unconfirmed ones; None to read those of every version.
        """
        self.url = url
        self.store = store
        self.progress = progress
        self.path = root.joinpath(*url.parts[1:])
        self.entries: dict[str, Entry] = {}
        self.configs: dict[str, StoredConfig] = {}
        self.finished: list[str] = []
        self.skipped: dict[tuple[str, int], str] = {}
        self.deleted: dict[str, list[str]] = {}
        self.root = root
        self._bucket = root / url.bucket
        self._older = None if older is None else frozenset(older)
        self._needed: set[tuple[str, int]] = set()

    def refresh(self, model: str = "") -> None:
        """Make the copy equal to the store; only one model of it, if ``model`` is set.

        Raises:
            RepogenError: The store does not respond, or has a key that cannot be the path of a file.
        """
        total = self._total_time()
        previous: dict[str, StoredObject] | None = None
        for _ in range(_MAX_LISTINGS):
            visible = self._listing(model, total)
            if not self._is_torn(visible, previous, total):
                break
            previous = visible
        else:
            raise _changed_meanwhile(self.url, model or "the repository")
        for key in [key for key in self.entries if self._is_of(key, model) and key not in visible]:
            del self.entries[key]
        self._remove_unknown(model, visible)
        self._needed |= self._needed_versions(visible)
        changed = [each for key, each in visible.items() if not self._is_current(key, each)]
        self._require_space(filter(self._is_small, changed))
        with ThreadPoolExecutor(_REQUESTS) as pool:
            list(pool.map(partial(self._materialize, total=total), changed))
        self._restore_configs(visible)
        self._record_digests(changed)
        for name, number in sorted(self.skipped):
            self.path.mkdir(parents=True, exist_ok=True)
            reservation(self.path / name).write_text(str(number))

    def describe(self, versions: Versions) -> None:
        """Read the small files of versions that are placeholders.

        Raises:
            RepogenError: The store does not respond.
        """
        self._needed.update(versions)
        pending = [each.stored for each in self.entries.values() if not each.complete and self._is_small(each.stored)]
        self._require_space(pending)
        total = self._total_time()
        total.require(len(self.entries))
        with ThreadPoolExecutor(_REQUESTS) as pool:
            list(pool.map(partial(self._materialize, total=total), pending))
        self._record_digests(pending)

    def fetch(self, paths: Iterable[Path]) -> None:
        """Download the files, and the files in directories, of the copy that are placeholders.

        Raises:
            RepogenError: The store does not respond.
        """
        prefixes = tuple(f"{self.key_of(path)}/" for path in paths)
        pending = [
            entry for key, entry in self.entries.items() if not entry.complete and f"{key}/".startswith(prefixes)
        ]
        self._require_space(entry.stored for entry in pending)
        with ThreadPoolExecutor(_DOWNLOADS) as pool:
            list(pool.map(self._download, pending))

    def local(self, key: str) -> Path:
        """Return the local file of an object."""
        return self._bucket / key

    def key_of(self, path: Path) -> str:
        """Return the key of a local file."""
        return path.relative_to(self._bucket).as_posix()

    def model_of(self, key: str) -> str:
        """Return the model of a key in the repository or the archive; empty for a file in their roots."""
        parts = self._relative(key)
        return parts[0] if len(parts) > 1 else ""

    def version_of(self, key: str) -> int | None:
        """Return the version of a key in the repository; None for other files."""
        parts = self._relative(key)
        is_version = len(parts) >= _VERSION_DEPTH and parts[1].isdecimal() and self.is_served(key)
        return int(parts[1]) if is_version else None

    def is_served(self, key: str) -> bool:
        """Return whether a key is in the repository, and not in the archive."""
        return self.local(key).is_relative_to(self.path)

    def is_config(self, key: str) -> bool:
        """Return whether a key is the config.pbtxt of a model in the repository."""
        return self._relative(key)[1:] == (CONFIG_FILE,) and self.is_served(key)

    def files(self, model: str) -> dict[str, Identity]:
        """Return the local files of a model, or those in the root that are stored: key -> identity."""
        if not model:
            path = self.path / OWNER_FILE
            return {self.key_of(path): identity_of(path)} if path.is_file() else {}
        return {
            self.key_of(path): identity_of(path)
            for root in (self.path, archive_dir(self.path))
            for path in _files_in(root / model)
        }

    def models(self) -> set[str]:
        """Return the models of the copy and of the store."""
        roots = (self.path, archive_dir(self.path))
        local = {path.name for root in roots if root.is_dir() for path in root.iterdir() if path.is_dir()}
        return local | {model for key in self.entries if (model := self.model_of(key))}

    def placed(self, stored: StoredObject, *, complete: bool = True) -> None:
        """Record that the local file of an object has its bytes."""
        self.entries[stored.key] = Entry(stored, identity_of(self.local(stored.key)), complete)

    def _total_time(self) -> TotalTime:
        return TotalTime(f"the listing of {self.url}, with the small files,", _READ_PER_SECOND)

    def _listing(self, model: str, total: TotalTime) -> dict[str, StoredObject]:
        """Return the objects without claims, and without the versions that are claimed before or after the listing."""
        objects = self._objects(model)
        total.require(len(objects))
        self._read_configs(objects, total)
        later = {each.key: each for each in self.store.list(self._key(".repogen."))}
        claims = {pair: each for each in (objects | later).values() if (pair := self._claim_of(each.key)) is not None}
        self.finished = [each.key for pair, each in claims.items() if self._serves(*pair)]
        self.skipped = {
            pair: each.key
            for pair, each in claims.items()
            if not self._serves(*pair) and is_skipped(self._read_claim(each, total))
        }
        deleted = [key for key in objects if self._is_deleted(key)]
        for name in {self.model_of(key) for key in objects}:
            self.deleted[name] = [key for key in deleted if self.model_of(key) == name]
        return {
            key: each
            for key, each in objects.items()
            if self._claim_of(key) is None and not self._is_incomplete(key, claims) and not self._is_deleted(key)
        }

    def _is_torn(
        self, visible: dict[str, StoredObject], previous: dict[str, StoredObject] | None, total: TotalTime
    ) -> bool:
        """Return whether a version was published while the objects were listed, so that a part of it is listed.

        Its manifest is not listed, but exists now; or the config.pbtxt that was read later names it. If the previous
        listing is equal, the config.pbtxt names a version that does not exist.
        """
        versions = {(self.model_of(key), number) for key in visible if (number := self.version_of(key)) is not None}
        listed = {each for each in versions if self._key(*each, MANIFEST_FILE) in visible}
        built = {model for model, _ in listed}
        for model, number in versions - listed:
            total.require()
            is_new = model in built or self._key(model, CONFIG_FILE) not in visible
            manifest = self._key(model, number, MANIFEST_FILE)
            if is_new and any(each.key == manifest for each in self.store.list(manifest)):
                return True
        return visible != previous and any(
            (self.model_of(key), number) not in versions
            for key, config in self.configs.items()
            if key in visible and is_pinned(config.content)
            for number in pinned_versions(config.content)
        )

    def _key(self, *parts: object) -> str:
        return "/".join((self.key_of(self.path), *map(str, parts))).removeprefix("./")

    def _objects(self, model: str) -> dict[str, StoredObject]:
        """Return the objects of the repository and the archive, or those that concern one model."""
        prefix = f"{self.url.key}/" if self.url.key else ""
        prefixes = [prefix, f"{self.url.key}.unserved/"] if self.url.key else [prefix]
        if model:
            claims, owner = f"{prefix}.repogen.{model}.", f"{prefix}{OWNER_FILE}"
            prefixes = [claims, *(f"{each}{model}/" for each in prefixes), owner]
        objects: dict[str, StoredObject] = {}
        for each in prefixes:
            for stored in self.store.list(each):
                objects[stored.key] = stored
                if len(objects) > MAX_OBJECTS:
                    raise PublishError(
                        f"{self.url} has more than {MAX_OBJECTS:,} objects",
                        "add the prefix of the repository to the URL",
                        code="store.too-large",
                    )
        for stored in objects.values():
            self._require_plain(stored)
        return objects

    def _require_plain(self, stored: StoredObject) -> None:
        parts = stored.key.removesuffix("/").split("/")
        if len(stored.key) > _MAX_KEY or not all(map(is_plain_name, parts)):
            raise PublishError(
                f"{self.url} has the object {stored.key!r}, which cannot be the path of a file",
                "delete or rename the object: repogen and Triton read a repository as directories and files",
                code="store.key",
            )
        if not (0 <= stored.size <= INT64_MAX and abs(stored.modified) < _MAX_TIME):
            raise PublishError(
                f"{self.url} has the object {stored.key!r} with a size or a time that no file can have",
                "check the endpoint: the store's response is not valid",
                code="store.key",
            )

    def _relative(self, key: str) -> tuple[str, ...]:
        path = self.local(key)
        root = self.path if path.is_relative_to(self.path) else archive_dir(self.path)
        return path.relative_to(root).parts

    def _claim_of(self, key: str) -> tuple[str, int] | None:
        parts = self._relative(key) if self.is_served(key) else ()
        return claimed_version(parts[0]) if len(parts) == 1 else None

    def _is_incomplete(self, key: str, claims: Container[tuple[str, int]]) -> bool:
        """Return whether a file belongs to a version that is claimed, and that the stored config does not serve."""
        model, version = self.model_of(key), self.version_of(key)
        return version is not None and (model, version) in claims and not self._serves(model, version)

    def _read_claim(self, stored: StoredObject, total: TotalTime) -> bytes:
        try:
            return self._read(stored, MAX_BYTES, total)
        except FileNotFoundError:  # its owner released it
            return b""

    def _is_deleted(self, key: str) -> bool:
        """Return whether a file belongs to a version that the stored config names as deleted."""
        model, version = self.model_of(key), self.version_of(key)
        config = None if version is None else self.configs.get(self._key(model, CONFIG_FILE))
        return config is not None and version in deleted_versions(config.content)

    def _serves(self, model: str, version: int) -> bool:
        config = self.configs.get(self._key(model, CONFIG_FILE))
        return config is not None and version in pinned_versions(config.content)

    def _is_small(self, stored: StoredObject) -> bool:
        """Return whether an object is a small file that the command needs."""
        if stored.key.rpartition("/")[2] not in _METADATA or stored.size > MAX_TEXT_BYTES:
            return False
        if self._older is None:
            return True
        version = self.version_of(stored.key)
        return self.is_served(stored.key) and (version is None or (self.model_of(stored.key), version) in self._needed)

    def _needed_versions(self, visible: Iterable[str]) -> set[tuple[str, int]]:
        """Return the versions whose small files are read, unless they are read of every version."""
        if self._older is None:
            return set()
        numbers: dict[str, set[int]] = defaultdict(set)
        built: dict[str, set[int]] = defaultdict(set)
        needed = set(self._older)
        for key in visible:
            model, number, name = self.model_of(key), self.version_of(key), key.rpartition("/")[2]
            if number is not None:
                numbers[model].add(number)
                if name == MANIFEST_FILE:
                    built[model].add(number)
                elif name == UNCONFIRMED_FILE:
                    needed.add((model, number))
        for model, existing in numbers.items():
            newest = {max(existing), max(built[model], default=max(existing))}
            needed |= {(model, number) for number in newest | self._served(model, existing)}
        return needed

    def _served(self, model: str, numbers: Iterable[int]) -> set[int]:
        """Return the versions that a model's stored config.pbtxt serves; none if it cannot be parsed."""
        stored = self.configs.get(self._key(model, CONFIG_FILE))
        with suppress(ConfigError, UnicodeDecodeError):
            config = None if stored is None else parse(stored.content.decode(), f"{model}/{CONFIG_FILE}")
            return set(served_versions(config, numbers))
        return set()

    def _require_space(self, objects: Iterable[StoredObject]) -> None:
        """Require disk space for objects before they are downloaded.

        Raises:
            PublishError: The disk has less free space.
        """
        if problem := lack_of_space(self.root, sum(each.size for each in objects)):
            raise PublishError(
                f"the files to download from {self.url} have {problem}",
                "free disk space, or use another directory: set TMPDIR, or --stage-dir if the command has it",
                code="store.copy",
            )

    def _is_of(self, key: str, model: str) -> bool:
        return not model or self.model_of(key) == model

    def _is_current(self, key: str, stored: StoredObject) -> bool:
        entry = self.entries.get(key)
        if entry is None or entry.stored.tag != stored.tag or (not entry.complete and self._is_small(stored)):
            return False
        with suppress(OSError):
            return key.endswith("/") or identity_of(self.local(key)) == entry.identity
        return False

    def _read_configs(self, objects: dict[str, StoredObject], total: TotalTime) -> None:
        """Read the models' config.pbtxt, before it is decided which versions are complete."""
        configs = {key: each for key, each in objects.items() if self.is_config(key)}
        if sum(min(each.size, MAX_CONFIG_BYTES) for each in configs.values()) > _MAX_CONFIGS_BYTES:
            raise PublishError(
                f"the config.pbtxt files of {self.url} are larger than {_MAX_CONFIGS_BYTES >> 20} MiB in total",
                "choose the prefix of a model repository",
                code="store.too-large",
            )
        for key in [key for key in self.configs if key not in configs]:
            if any(self.model_of(each) == self.model_of(key) for each in objects) or key not in self.entries:
                del self.configs[key]
        changed = [each for key, each in configs.items() if getattr(self.configs.get(key), "tag", "") != each.tag]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for each, content in zip(changed, pool.map(partial(self._content, total=total), changed), strict=True):
                if content is not None:
                    self.configs[each.key] = StoredConfig(content, each.tag)

    def _content(self, stored: StoredObject, total: TotalTime) -> bytes | None:
        try:  # the reader of the file reports one that is larger
            return self._read(stored, MAX_CONFIG_BYTES + 1, total)
        except FileNotFoundError:
            return None

    def _read(self, stored: StoredObject, limit: int, total: TotalTime) -> bytes:
        total.require()
        content = self.store.read(stored.key, limit)
        total.require(received=len(content))
        return content

    def _remove_unknown(self, model: str, visible: dict[str, StoredObject]) -> None:
        """Remove local files that the store does not have, such as those of a publish that another process preceded."""
        for root in (self.path, archive_dir(self.path)):
            for path in _files_in(root / model if model else root):
                if self.key_of(path) not in visible and not path.name.startswith(".repogen"):
                    path.unlink()
            if model:
                _remove_empty_directories(root / model)

    def _materialize(self, stored: StoredObject, total: TotalTime) -> None:
        path = self.local(stored.key)
        try:
            if stored.key.endswith("/"):  # consoles create such objects for directories
                path.mkdir(parents=True, exist_ok=True)
                self.entries[stored.key] = Entry(stored, (0, 0, 0), complete=True)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            complete = self._write(stored, path, total)
            # the digest of a placeholder is recorded by its time, which no other file has
            nanoseconds = int(stored.modified) * 10**9 + (0 if complete else next(_COUNTER))
            os.utime(path, ns=(nanoseconds, nanoseconds))
        except FileNotFoundError:  # deleted since it was listed
            return
        except OSError as error:
            raise _cannot_copy(self.url, stored.key, error) from error
        self.placed(stored, complete=complete)

    def _write(self, stored: StoredObject, path: Path, total: TotalTime) -> bool:
        """Write an object's bytes, or a placeholder; return whether the file has the bytes."""
        is_small = self._is_small(stored)
        with path.open("xb") as stream:
            if self.is_config(stored.key) and stored.key in self.configs:
                stream.write(self.configs[stored.key].content)
            elif is_small and stored.size:
                stream.write(self._read(stored, MAX_TEXT_BYTES + 1, total))
            else:
                stream.truncate(stored.size)
        return is_small or not stored.size

    def _download(self, entry: Entry) -> None:
        path = self.local(entry.stored.key)
        temporary = path.with_name(f".{path.name[:200]}.download")
        done = 0
        try:
            self.store.download(entry.stored.key, temporary, entry.stored.size)
            done = temporary.stat().st_size
            if done != entry.stored.size:
                raise _changed_meanwhile(self.url, entry.stored.key)
            os.utime(temporary, (entry.stored.modified, entry.stored.modified))
            temporary.replace(path)
        except FileNotFoundError as error:
            raise _changed_meanwhile(self.url, entry.stored.key) from error
        except OSError as error:
            raise _cannot_copy(self.url, entry.stored.key, error) from error
        finally:
            temporary.unlink(missing_ok=True)
        self.placed(entry.stored)

    def _restore_configs(self, visible: dict[str, StoredObject]) -> None:
        """Replace each model's config.pbtxt by the text that it was made from."""
        for key, config in self.configs.items():
            path = self.local(key)
            if key in visible and path.is_file():
                own = own_config(path.parent, config.content)
                if path.read_bytes() != own:
                    path.write_bytes(own)
                    self.placed(visible[key])

    def _record_digests(self, changed: Iterable[StoredObject]) -> None:
        """Record the digests of placeholders, as the manifests of their versions state them."""
        directories = {self.local(each.key).parent for each in changed if self.version_of(each.key) is not None}
        for directory in directories:
            manifest = self.entries.get(self.key_of(directory / MANIFEST_FILE))
            with suppress(OSError, RepogenError):
                for record in read_manifest(directory).files if manifest is not None and manifest.complete else ():
                    entry = self.entries.get(self.key_of(directory / record.path))
                    if entry is None or entry.complete or manifest is None:
                        continue
                    written_before = entry.stored.modified <= manifest.stored.modified
                    if entry.stored.size == record.size and written_before:
                        record_digest(directory / record.path, record.sha256)


def identity_of(path: Path) -> Identity:
    """Return what changes if a file is replaced or written."""
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def by_version(copy: WorkingCopy, keys: Iterable[str]) -> dict[int | None, list[str]]:
    """Return keys by the version that they belong to."""
    groups: dict[int | None, list[str]] = defaultdict(list)
    for key in keys:
        groups[copy.version_of(key)].append(key)
    return groups


def _files_in(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (folder / name for folder, _, names in walk(directory, strict=True) for name in names)


def _remove_empty_directories(directory: Path) -> None:
    for parent, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):
            Path(parent).rmdir()


def _cannot_copy(url: RepositoryUrl, key: str, error: OSError) -> PublishError:
    return PublishError(
        f"{key} of {url} cannot be copied to a temporary directory: {error.strerror or error}",
        "free disk space, or use another directory: set TMPDIR, or --stage-dir if the command has it; rename the "
        "object if a name is both a file and a directory",
        code="store.copy",
    )


def _changed_meanwhile(url: RepositoryUrl, key: str) -> PublishError:
    return PublishError(
        f"{key} of {url} was changed while it was downloaded", "run the command again", code="store.changed"
    )
