"""Temporary directories that do not stay: the next command removes those of processes that were killed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.files.paths import is_shared, rename_reason
from repogen.files.tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "repogen-temporary-"
_ATTEMPTS = 100


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new private directory, which is removed afterward.

    Args:
        parent: Existing directory; None for the system's directory of temporary files.

    Raises:
        OSError: It cannot be created.
        SpecError: As ``system_directory``.
    """
    directory, lock = locked_directory(_PREFIX, parent or system_directory())
    try:
        yield directory
    finally:
        remove_tree(directory)
        if lock is not None:
            os.close(lock)


def system_directory(path: Path | None = None) -> Path:
    """Return the system's directory of temporary files, or another one that is used instead.

    Raises:
        SpecError: Another user could rename a private directory in it, and put code in its place.
    """
    directory = path or Path(tempfile.gettempdir())
    if problem := rename_reason(directory):
        raise SpecError(
            f"{directory}, the directory of temporary files, {problem}, and repogen would run code in it",
            "set TMPDIR to a directory in which only you can rename files",
            code="temporary-directory.foreign",
        )
    return directory


def locked_directory(prefix: str, parent: Path) -> tuple[Path, int | None]:
    """Create a private directory with a lock, and remove those with the same prefix that no process holds.

    A process that is killed leaves its directory behind. It stays if another user can rename entries of ``parent``, who
    could give such a name to any other directory of this user. The lock is on the directory itself, not on a file in
    it, so that its holder can remove the directory without a race. The kernel releases it with the process.

    Returns:
        The directory, and a descriptor that holds its lock; None if the filesystem has no locks.

    Raises:
        OSError: It cannot be created.
    """
    for directory in () if is_shared(parent) else parent.glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, not a directory, or in use
            descriptor = _lock(directory)
            remove_tree(directory)
            os.close(descriptor)
    for _ in range(_ATTEMPTS):
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            descriptor = _lock(directory)
        except (BlockingIOError, FileNotFoundError):  # another process removes it, because it was not locked yet
            continue
        except OSError:
            return directory, None
        if directory.exists():
            return directory, descriptor
        os.close(descriptor)
    raise FileExistsError(f"other processes keep removing the directories that are created in {parent}")


def _lock(directory: Path) -> int:
    """Return a descriptor that holds the lock of a directory of this user.

    Other users can create any name in the directory for temporary files, so a link is not followed and a FIFO not
    opened.

    Raises:
        OSError: Another process holds the lock, or it is not a directory of this user.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{directory} belongs to another user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
