"""Detects that another user replaced an input while a build read it, for example with a link to a private file.

Libraries open weights, examples and the files of Hugging Face directories by their names, so a check before they do
cannot prevent it. But a rename changes the ctime of what is renamed, and no user can set that time back. Directories
above the spec or the repository are not compared: who can replace them can replace the spec, and a build writes there.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.build.fingerprint import input_files
from repogen.errors import SourceError
from repogen.files.paths import FOREIGN_LINK, entries_to, foreign_link, is_own_group
from repogen.files.tree import walk
from repogen.spec.paths import check_model_paths
from repogen.spec.sources import HuggingFaceSource, OnnxSource, PythonSource
from repogen.spec.structure import PartialModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from repogen.spec.models import Spec

    Identity = tuple[int, ...] | None

_MAX_FILES = 10_000


@dataclass(frozen=True)
class ObservedInputs:
    """The files that a build reads, as they were before it read the first one.

    Attributes:
        paths: The files that the spec names.
        directories: Absolute paths of the directories whose files are inputs as well.
        identities: Path -> device, inode and ctime, or None if nothing is there, for what another user could replace.
        trust: Whom and what is trusted.
    """

    paths: tuple[Path, ...]
    directories: tuple[Path, ...]
    identities: Mapping[str, Identity]
    trust: _Trust

    def require_unreplaced(self, used: Iterable[Path], name: str) -> None:
        """Require that the inputs are still the same.

        Args:
            used: Other files that were read; those that are not in ``directories`` are code.
            name: The model.

        Raises:
            SourceError: A file, or a link or directory that leads to it, was replaced or changed.
        """
        absolute = (Path(os.path.abspath(path)) for path in used)  # noqa: PTH100 - links are followed one by one
        data = [path for path in absolute if any(path.is_relative_to(folder) for folder in self.directories)]
        for file in (*self.paths, *data):
            for path, identity in self.trust.replaceable(file):
                if path not in self.identities or self.identities[path] != identity:
                    raise SourceError(
                        f"{path} changed during the build, and another user can replace it",
                        "build again; if other users change files there often, copy the files to a directory of yours",
                        code="source.replaced",
                        where=f"models.{name}",
                    )


def observe(spec: Spec, names: Sequence[str], repository: Path) -> ObservedInputs:
    """Return the inputs of models as they are now.

    Args:
        spec: The spec.
        names: A model, and those that it uses if it is an ensemble.
        repository: The repository to publish to.

    Raises:
        SourceError: A path leads to another place since the spec was loaded, for example through a new link.
    """
    paths, directories = [], []
    for name in names:
        source = spec.models[name].source
        paths += input_files(spec, name)
        if isinstance(source, PythonSource):
            paths += [spec.root / file for file in source.data]
        elif isinstance(source, HuggingFaceSource):
            directories.append(_checkpoint(source, spec.root))
        elif isinstance(source, OnnxSource):  # its external data
            directories.append((spec.root / source.path).parent)
    trust = _Trust(
        frozenset({os.geteuid(), 0, spec.root.stat().st_uid}),
        frozenset(
            os.path.realpath(each) for path in (spec.root, repository) for each in (path, *path.absolute().parents)
        ),
    )
    identities: dict[str, Identity] = {}
    for file in (*paths, *directories, *islice(_files(directories, trust), _MAX_FILES)):
        identities |= trust.replaceable(file)
    _require_same_places(spec, names, (*paths, *directories))
    absolute = (Path(os.path.abspath(directory)) for directory in directories)  # noqa: PTH100 - links are kept
    return ObservedInputs(tuple(paths), tuple(absolute), identities, trust)


def _require_same_places(spec: Spec, names: Sequence[str], paths: Iterable[Path]) -> None:
    """Require that no link of another user leads elsewhere, also not one that is new since the spec was loaded."""
    for path in paths:
        if link := foreign_link(path, spec.root.stat().st_uid):
            raise SourceError(
                f"{link} {FOREIGN_LINK}",
                "specify the path that it leads to, if you trust it",
                code="source.replaced",
                where=f"models.{names[-1]}",
            )
    for name in names:
        for finding in check_model_paths(PartialModel(spec.models[name], frozenset()), spec.root):
            raise SourceError(finding.what, finding.hint, code="source.replaced", where=f"models.{name}")


def _checkpoint(source: HuggingFaceSource, root: Path) -> Path:
    """Return the directory of a model, in the cache of the Hub if it is not a local one."""
    if (root / source.model).is_dir():
        return root / source.model
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    return Path(cache, f"models--{str(source.model).replace('/', '--')}").expanduser()


def _files(directories: Iterable[Path], trust: _Trust) -> Iterator[Path]:
    """Yield the files of directories; of one in which no other user can replace an entry, not those further below."""
    for directory in directories:
        is_private = not list(trust.replaceable(directory / "file"))
        for folder, _, names in walk(directory):
            yield from (folder / name for name in names)
            if is_private:
                break


@dataclass(frozen=True)
class _Trust:
    """Users who may replace inputs, and directories that are not compared."""

    users: frozenset[int]
    directories: frozenset[str]

    def replaceable(self, path: Path) -> Iterator[tuple[str, Identity]]:
        """Yield each directory, link and file on the way to a file that another user could replace."""
        for entry, status in entries_to(path):
            if entry in self.directories:
                continue
            directory = os.lstat(os.path.dirname(entry))  # noqa: PTH120 - strings are faster
            if status is not None and self._can_be_replaced(directory, status):
                yield entry, (status.st_dev, status.st_ino, status.st_ctime_ns)
            # a file that is created later counts as replaced, unless only trusted users can do so
            if status is None and (directory.st_uid not in self.users or _is_shared(directory)):
                yield entry, None

    def _can_be_replaced(self, directory: os.stat_result, entry: os.stat_result) -> bool:
        """Return whether a user who is not trusted could replace or change an entry of a directory."""
        if not {directory.st_uid, entry.st_uid} <= self.users:
            return True
        is_file = stat.S_ISREG(entry.st_mode)
        is_sticky = bool(directory.st_mode & stat.S_ISVTX)
        return (not is_sticky and _is_shared(directory)) or (is_file and _is_shared(entry))


def _is_shared(status: os.stat_result) -> bool:
    """Return whether other users can write to a file or directory."""
    group = 0 if is_own_group(status.st_gid) else stat.S_IWGRP
    return bool(status.st_mode & (group | stat.S_IWOTH))
