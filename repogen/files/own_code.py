"""Whether other users of the machine can change code before it is run."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.paths import exists, has_trusted_owner, is_foreign_in_public, is_like_tmp, is_public, real_path

if TYPE_CHECKING:
    from collections.abc import Iterable

FOREIGN_CODE = "but belongs to another user, or other users can add files to it or replace it"
"""What messages say about a ``foreign_code``."""


def foreign_code(directory: Path, files: Iterable[Path], base: Path) -> Path | None:
    """Return a file or a directory of code that another user planted, can change or can replace; None without one.

    Symlinks are examined, and what they lead to. Files and directories of this user, of root, and of the owners of
    ``directory`` and ``base`` are trusted, as long as no other user can write to them. A group that can write to them
    is trusted.

    Args:
        directory: The directory with the code.
        files: The files of the code, also in directories below; with ``directory`` as a prefix. For a file that does
            not exist, only its directory is examined.
        base: Directory of the spec. Users who can rename files in it, or above it, are trusted.

    Raises:
        OSError: A file was deleted at this moment.
    """
    if is_below_foreign(directory, base):
        return directory
    directories: dict[Path, bool] = {}
    for file in (directory / "any", *files):
        below = [path for path in file.parents if path != directory and path.is_relative_to(directory)]
        for path in filter(exists, (directory, *reversed(below), real_path(file).parent)):
            if path not in directories:
                directories[path] = not _has_trusted_owner(path, directory, base) or is_replaceable(path, base)
            if directories[path]:
                return path
        if exists(file) and _is_changeable(file, directory, base):
            return file
    return None


def is_replaceable(directory: Path, base: Path) -> bool:
    """Return whether another user planted a directory, can add files to it, or can rename it or one above it.

    A mounted volume may be writable by all users: in a container, as with an emptyDir of Kubernetes, it has no other
    users.

    Args:
        directory: It exists; it is examined with and without symlinks.
        base: Directory of the spec. Users who can rename files in it, or above it, are trusted.

    Raises:
        OSError: It does not exist.
    """
    for path in dict.fromkeys((directory.absolute(), real_path(directory))):
        if is_like_tmp(path) or is_foreign_in_public(path, Path("/")):
            return True
        if any(_is_writable(each) and not _is_trusted(each, base) for each in (path, *path.parents)):
            return True
    return False


def is_below_foreign(directory: Path, base: Path) -> bool:
    """Return whether a directory above belongs to another user, who could rename what is in it, except for mounts.

    Args:
        directory: A directory of code. Its owner is trusted, as are this user, root and the owner of ``base``.
        base: Directory of the spec. The owners of directories above it are trusted.

    Raises:
        OSError: It does not exist.
    """
    paths = (directory.absolute(), real_path(directory))
    above = {parent for path in paths for parent in path.parents if not os.path.ismount(parent)}
    return not all(_is_trusted(path, base) or _has_trusted_owner(path, directory, base) for path in above)


def _is_changeable(file: Path, directory: Path, base: Path) -> bool:
    """Return whether another user planted a file, or can write to it."""
    if not _has_trusted_owner(file, directory, base) or is_foreign_in_public(real_path(file), Path("/")):
        return True
    return bool(file.stat().st_mode & stat.S_IWOTH) and not _is_trusted(file, base)


def _has_trusted_owner(path: Path, directory: Path, base: Path) -> bool:
    return has_trusted_owner(path, directory) or has_trusted_owner(path, base)


def _is_writable(directory: Path) -> bool:
    """Return whether other users can rename what is in a directory."""
    return is_public(directory) and not is_like_tmp(directory) and not os.path.ismount(directory)


def _is_trusted(path: Path, base: Path) -> bool:
    """Return whether users who can replace a path are trusted, because they can also replace the spec."""
    path, base = real_path(path), real_path(base)
    if base.is_relative_to(path):
        return True
    return path.is_relative_to(base) and any(map(_is_writable, (base, *base.parents)))
