"""Detects that another user replaced a file while a library read it by its name.

A rename changes the ctime of what is renamed, and no user can set that time back. The directory of the spec and those
above it are not compared: who can replace them can replace the spec.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from repogen.files.paths import entries_to, shared_bits
from repogen.files.tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MAX_FILES = 10_000

Identity = tuple[int, ...] | None
"""Device, inode and ctime; None if nothing is there."""


@dataclass(frozen=True)
class Trust:
    """Users who may replace files, and directories that are not compared.

    Attributes:
        users: Numbers of the users.
        directories: Paths of the directories, without symlinks.
    """

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

    def identities(self, paths: Iterable[Path]) -> dict[str, Identity]:
        """Return what is on the way to files, and could be replaced by another user, with its identity."""
        return {entry: identity for path in paths for entry, identity in self.replaceable(path)}

    def files(self, directories: Iterable[Path]) -> Iterator[Path]:
        """Yield at most 10,000 files of directories; those below one only if other users can change it."""
        return islice(self._files(directories), _MAX_FILES)

    def _files(self, directories: Iterable[Path]) -> Iterator[Path]:
        for directory in directories:
            is_private = not list(self.replaceable(directory / "file"))
            for folder, _, names in walk(directory):
                yield from (folder / name for name in names)
                if is_private:
                    break

    def _can_be_replaced(self, directory: os.stat_result, entry: os.stat_result) -> bool:
        """Return whether a user who is not trusted could replace or change an entry of a directory."""
        if not {directory.st_uid, entry.st_uid} <= self.users:
            return True
        is_file = stat.S_ISREG(entry.st_mode)
        is_sticky = bool(directory.st_mode & stat.S_ISVTX)
        return (not is_sticky and _is_shared(directory)) or (is_file and _is_shared(entry))


def trust_of(root: Path, *others: Path) -> Trust:
    """Return whom and what a command trusts that reads files which a spec names.

    Args:
        root: Directory of the spec; its owner is trusted, and so are this user and root.
        others: Other directories that are not compared, such as a repository; nor are those above them.
    """
    return Trust(
        frozenset({os.geteuid(), 0, root.stat().st_uid}),
        frozenset(os.path.realpath(each) for path in (root, *others) for each in (path, *path.absolute().parents)),
    )


def _is_shared(status: os.stat_result) -> bool:
    """Return whether other users can write to a file or directory."""
    return bool(status.st_mode & shared_bits(status))
