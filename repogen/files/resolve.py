"""Follows paths, and opens files and directories, where another user may put a symlink on the way at any time."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.paths import FOREIGN_LINK, MAX_LINKS, foreign_link_error, real_path

if TYPE_CHECKING:
    from collections.abc import Iterator


class ForeignLinkError(PermissionError):
    """A symlink of another user, who does not own what it leads to, is on the way."""

    def __init__(self, link: str) -> None:
        """Store the path of the link."""
        super().__init__(errno.EPERM, f"{link} {FOREIGN_LINK}")
        self.link = link

    def __str__(self) -> str:
        """Return the message without the number of the error."""
        return str(self.strerror)


@contextmanager
def directory_to_write(directory: Path) -> Iterator[Path]:
    """Yield a path of a directory that leads nowhere else, even if another user replaces a part of its own path.

    The directory is created if it does not exist. Without Linux's ``/proc``, the path is ``directory`` itself, and
    links are followed.

    Raises:
        ForeignLinkError: A symlink of another user, who does not own what it leads to, is on the way.
        OSError: It cannot be created or opened, or is not a directory.
    """
    if not hasattr(os, "O_PATH"):
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    walk = _Walk(directory)
    try:
        walk.go(create=True)
        opened = f"/proc/self/fd/{walk.descriptor}"
        try:
            yield Path(opened)
        except OSError as error:
            if str(error.filename).startswith(f"{opened}/"):
                error.filename = str(directory / str(error.filename).removeprefix(f"{opened}/"))
            raise
    finally:
        os.close(walk.descriptor)


def open_file(path: str, flags: int) -> int:
    """Return a descriptor of a file that exists, opened with these flags.

    Without Linux's ``O_PATH`` and ``/proc``, links of any user are followed.

    Raises:
        ForeignLinkError: A symlink of another user, who does not own what it leads to, is on the way.
        OSError: It cannot be opened.
    """
    os.stat(path)  # noqa: PTH116 - mounts what is mounted on demand, and fails as ``os.open`` does
    if not hasattr(os, "O_PATH") or not os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - fast
        return os.open(path, flags)
    walk = _Walk(Path(path))
    try:
        walk.go(create=False)
        return os.open(f"/proc/self/fd/{walk.descriptor}", flags)
    except ForeignLinkError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(walk.descriptor)


def resolved(path: Path) -> Path:
    """Return a path without symlinks. Names that do not exist, or cannot be read, stay at its end.

    Without Linux's ``O_PATH``, links of any user are followed.

    Raises:
        SpecError: A symlink of another user, who does not own what it leads to, is on the way.
    """
    if not hasattr(os, "O_PATH"):
        return real_path(path)
    walk = _Walk(path)
    try:
        walk.go(create=False)
    except ForeignLinkError as error:
        raise foreign_link_error(error.link) from None
    except OSError:  # what reads or writes there reports it
        return real_path(path)
    finally:
        os.close(walk.descriptor)
    return Path(walk.path)


class _Walk:
    """Follows a path, one name at a time, in directories that are open: none can be replaced after it was examined.

    Attributes:
        descriptor: What was reached.
        path: Its path, without symlinks.
    """

    def __init__(self, path: Path) -> None:
        """Start at the root directory, or at a directory of ``/proc/self/fd``, which is open already."""
        self._names = _names(os.path.join("" if path.is_absolute() else os.getcwd(), path))  # noqa: PTH109, PTH118 - links are kept
        self.descriptor = os.open("/", os.O_PATH | os.O_CLOEXEC)
        self.path = "/"
        if self._names[:3] == ["proc", "self", "fd"] and self._names[3:]:
            start = "/".join(["", *self._names[:4]])
            self._enter(os.open(start, os.O_PATH | os.O_CLOEXEC), os.readlink(start))  # noqa: PTH115 - the name is text
            del self._names[:4]
        # path and owner of each link that is being followed, and how many names remain when its target is reached
        self._links: list[tuple[str, int, int]] = []
        self._trusted = {os.geteuid(), 0, os.stat("/").st_uid}  # noqa: PTH116 - root is another user in a user namespace

    def go(self, *, create: bool) -> None:
        """Go to the end of the path.

        Raises:
            ForeignLinkError: A symlink leads to what its owner does not own.
            OSError: A name does not exist, or cannot be opened.
        """
        count = 0
        while self._names:
            name = self._names.pop(0)
            descriptor = self._open(name, create=create)
            status = os.fstat(descriptor)
            if not stat.S_ISLNK(status.st_mode):
                self._enter(descriptor, name)
                self._require_own_targets(status)
                continue
            count += 1
            try:
                target = os.readlink("", dir_fd=descriptor)
            finally:
                os.close(descriptor)
            if count > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
            if status.st_uid not in self._trusted:
                self._links.append((os.path.join(self.path, name), status.st_uid, len(self._names)))  # noqa: PTH118
            self._names[:0] = _names(target)
            if target.startswith("/"):
                self._enter(os.open("/", os.O_PATH | os.O_CLOEXEC), "/")
        status = os.fstat(self.descriptor)
        self._require_own_targets(status)  # a link to the directory that contains it
        if create and not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)

    def _open(self, name: str, *, create: bool) -> int:
        """Open a name in the current directory, without following it.

        Raises:
            ForeignLinkError: It does not exist, and a link of another user would cause it to be created.
        """
        path, flags = os.path.join(self.path, name), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # noqa: PTH118
        try:
            try:
                return os.open(name, flags, dir_fd=self.descriptor)
            except FileNotFoundError:
                if self._links:
                    raise ForeignLinkError(self._links[0][0]) from None
                if not create:
                    raise
                with suppress(FileExistsError):  # another process created it
                    os.mkdir(name, 0o775, dir_fd=self.descriptor)
                return os.open(name, flags, dir_fd=self.descriptor)
        except ForeignLinkError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def _enter(self, descriptor: int, name: str) -> None:
        os.close(self.descriptor)
        self.descriptor = descriptor
        self.path = os.path.normpath(os.path.join(self.path, name))  # noqa: PTH118

    def _require_own_targets(self, status: os.stat_result) -> None:
        """Require that the links whose targets were reached belong to the owner of the target."""
        while self._links and len(self._names) <= self._links[-1][2]:
            link, owner, _ = self._links.pop()
            if owner != status.st_uid:
                raise ForeignLinkError(link)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]
