"""The four operations by which publish and sync change a repository; crash tests replace them."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING, Protocol

from repogen.errors import PublishError

if TYPE_CHECKING:
    from pathlib import Path

NO_EXCHANGE = "publish.no-exchange"
"""Code of the error that a filesystem cannot swap two directories."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # source: linux/fs.h
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
        """Swap by ``renameat2(RENAME_EXCHANGE)``.

        Raises:
            PublishError: The C library, the kernel or the filesystem does not support it.
        """
        renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        code = errno.ENOSYS
        if renameat2 is not None:
            status = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
            code = ctypes.get_errno() if status else 0
        if code in _NO_EXCHANGE:
            raise PublishError(
                f"the filesystem of {second} cannot swap two directories atomically ({os.strerror(code)}), and no "
                "order of two renames is safe for this change of config.pbtxt",
                "Publish under another model name, or move the model's directory away while no Triton serves it; ext4, "
                "xfs, btrfs and tmpfs can swap.",
                code=NO_EXCHANGE,
            )
        if code:
            raise OSError(code, os.strerror(code), str(second))
        sync(second.parent)

    def write(self, path: Path, text: str) -> None:
        """Write and sync."""
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        sync(path)
        sync(path.parent)

    def remove(self, path: Path) -> None:
        """Unlink if it exists."""
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write a file's bytes, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
