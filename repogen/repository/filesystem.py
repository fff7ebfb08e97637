"""The four operations by which publish and sync change a repository; crash tests replace them."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from repogen.errors import PublishError
from repogen.files.tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_EXCHANGE = "publish.no-exchange"
"""Code of the error that a filesystem cannot swap two directories."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # source: linux/fs.h
_RENAME_SWAP = 2  # source: sys/stdio.h of macOS
_NO_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV})


class Filesystem(Protocol):
    """The changes that publish and sync make to a repository."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically; a file replaces a file, a directory replaces at most an empty one."""

    def exchange(self, first: Path, second: Path) -> None:
        """Swap two directories atomically."""

    def write(self, path: Path, text: str) -> None:
        """Write a small file in the repository's root durably."""

    def remove(self, path: Path) -> None:
        """Remove such a file if it exists."""


class Disk:
    """The real filesystem; a rename is durable when the call returns."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename, then sync the directory that contains the new name."""
        source.rename(target)
        sync(target.parent)

    def exchange(self, first: Path, second: Path) -> None:
        """Swap by ``renameat2(RENAME_EXCHANGE)``, or ``renamex_np(RENAME_SWAP)`` on macOS.

        Raises:
            PublishError: The C library, the kernel or the filesystem does not support it.
        """
        library = ctypes.CDLL(None, use_errno=True)
        renameat2, renamex = getattr(library, "renameat2", None), getattr(library, "renamex_np", None)
        names, code = (os.fsencode(first), os.fsencode(second)), errno.ENOSYS
        if renameat2 is not None:
            status = renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
            code = ctypes.get_errno() if status else 0
        elif renamex is not None:
            code = ctypes.get_errno() if renamex(*names, _RENAME_SWAP) else 0
        if code in _NO_EXCHANGE:
            raise PublishError(
                f"the filesystem of {second} cannot swap two directories atomically ({os.strerror(code)}), and no "
                "order of two renames is safe for this change of config.pbtxt",
                "publish under another model name, or move the model's directory away while no Triton serves it; ext4, "
                "xfs, btrfs and tmpfs can swap",
                code=NO_EXCHANGE,
            )
        if code:
            raise OSError(code, os.strerror(code), str(second))
        sync(second.parent)

    def write(self, path: Path, text: str) -> None:
        """Write and sync."""
        path.unlink(missing_ok=True)  # of a killed run, or planted: it could be a link to another file, or a FIFO
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(descriptor, 0o644)
        sync(path)
        sync(path.parent)

    def remove(self, path: Path) -> None:
        """Unlink if it exists."""
        path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, readable for all users whatever the umask; it may exist.

    Raises:
        OSError: It cannot be created, or it is not a directory.
    """
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another process created it
            directory.mkdir(0o755)
            _make_readable_by_all(directory)
    if not path.is_dir():
        problem = errno.ENOTDIR if os.path.lexists(path) else errno.ENOENT  # another process removed it
        raise OSError(problem, os.strerror(problem), str(path))


def _make_readable_by_all(directory: Path) -> None:
    """Set the mode of a new directory; not that of another one, which replaced it or which a link leads to."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        status = os.fstat(descriptor)
        os.fchmod(descriptor, 0o755 | (status.st_mode & stat.S_ISGID))
    finally:
        os.close(descriptor)


@contextmanager
def opened_directory(directory: Path) -> Iterator[Path]:
    """Yield a path of a directory that stays valid, and leads nowhere else, if another user replaces the directory.

    Without Linux's ``/proc``, it is the same path.

    Raises:
        OSError: It is a symlink, or not a directory.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        path = Path("/proc/self/fd", str(descriptor))
        yield path if path.exists() else directory
    finally:
        os.close(descriptor)


def make_readable(directory: Path) -> None:
    """Make a tree readable for all users: Triton may run as a different user."""
    for path in _tree(directory):
        # not by its name, where another user could have put a link
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fchmod(descriptor, 0o755 if stat.S_ISDIR(os.fstat(descriptor).st_mode) else 0o644)
        finally:
            os.close(descriptor)


def make_readable_and_sync(directory: Path) -> None:
    """Make a tree readable for all users, and durable."""
    make_readable(directory)
    for path in _tree(directory):
        sync(path)


def _tree(directory: Path) -> Iterator[Path]:
    """Yield the files and directories of a tree, leaves first, except for symlinks."""
    for parent, _, names in reversed(list(walk(directory, strict=True))):
        for path in (*(parent / name for name in names), parent):
            if not path.is_symlink():
                yield path


def sync(path: Path) -> None:
    """Write a file's bytes, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
