"""File locks: one publish at a time in a repository, and one owner of a build's directory."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from repogen.errors import PublishError
from repogen.files import is_foreign_in_public

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE = ".repogen.lock"
_MODE = 0o600
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})


def file_lock(path: Path, seconds: float = -1) -> FileLock:
    """Return a lock that only this user and root can acquire: whoever can read its file can hold it.

    Args:
        path: Its file, which is created when the lock is acquired.
        seconds: How long to wait for another process; indefinitely if negative.
    """
    with suppress(OSError):  # it does not exist, or is a link
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            # of an earlier version of repogen; any other file of this user is not empty
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_size:
                os.fchmod(descriptor, _MODE)
        finally:
            os.close(descriptor)
    return FileLock(path, timeout=seconds, mode=_MODE, thread_local=False)


@contextmanager
def locked(repository: Path, seconds: float) -> Iterator[None]:
    """Hold the repository's lock, a file in its root, where Triton ignores files.

    The file is inside the repository, so that processes that reach the repository through different mounts use the same
    file. The kernel releases the lock when its process ends; the empty file remains.

    Args:
        repository: An existing directory.
        seconds: How long to wait for another publish, which holds the lock for a few renames.

    Raises:
        PublishError: Another process held the lock for all that time, or another user could hold it.
    """
    path = repository / LOCK_FILE
    if is_foreign_in_public(path, repository):
        raise PublishError(
            f"the lock {path} belongs to another user, who could hold it",
            "remove it, or use a repository in which only trusted users can create files",
            code="publish.locked",
        )
    lock = file_lock(path, seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise PublishError(
            f"another process has been publishing into {repository} for {seconds:g} s (it holds the lock {path})",
            "wait for that process or stop it; the lock is released when it ends",
            code="publish.locked",
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # of a network filesystem; the change is made, and the lock ends with the process
            lock.release()


def try_lock(path: Path) -> FileLock | None:
    """Return an acquired lock; None if another process holds it, or removes the directory that contains it.

    Args:
        path: The lock's file, which is created if it does not exist.

    Raises:
        OSError: The file cannot be created: the directory does not exist, is full or read-only, or it is a symlink.
        PublishError: The filesystem does not support file locks.
    """
    lock = file_lock(path, 0)
    try:
        lock.acquire()
    except Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        raise PublishError(
            f"{path.parent} is on a filesystem without file locks: {error}",
            "put the repository on a local filesystem, or on a network filesystem mounted with locking",
            code="stage.no-locks",
        ) from error
    if path.exists():
        return lock
    lock.release()
    return None
