"""File locks: one publish at a time in a repository, and one owner of a build's directory."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from repogen.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE = ".repogen.lock"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})


@contextmanager
def locked(repository: Path, seconds: float) -> Iterator[None]:
    """Hold the repository's lock, a file in its root, where Triton ignores files.

    The file is inside the repository, so that processes that reach the repository through different mounts use the same
    file. The kernel releases the lock when its process ends; the empty file remains.

    Args:
        repository: An existing directory.
        seconds: How long to wait for another publish, which holds the lock for a few renames.

    Raises:
        PublishError: Another process held the lock for all that time.
    """
    path = repository / LOCK_FILE
    lock = FileLock(path, timeout=seconds, mode=0o644)
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
        lock.release()


def try_lock(path: Path) -> FileLock | None:
    """Return an acquired lock; None if another process holds it, or removes the directory that contains it.

    Args:
        path: The lock's file, which is created if it does not exist.

    Raises:
        OSError: The file cannot be created: the directory does not exist, is full or read-only, or it is a symlink.
        PublishError: The filesystem does not support file locks.
    """
    lock = FileLock(path, timeout=0, mode=0o644, thread_local=False)
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
