"""What a path leads to, where paths and links may be hostile."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shutil
import stat
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_NAME_BYTES = 255
_MAX_PATH = 4096
"""Characters; Linux opens no path of more bytes, and the time to follow its links grows with the square."""
_ATTEMPTS = 20
MAX_LINKS = 40
"""Number of symlinks that are followed on the way to a path, as in Linux."""
FOREIGN_LINK = "is a symlink of another user, who does not own what it leads to"
"""What messages say about a ``foreign_link``."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})


def reason(error: OSError) -> str:
    """Return what failed, and the file if the error has one: those of shutil, and of a full disk, may have none.

    >>> reason(OSError(28, "No space left on device", "model.onnx")), reason(OSError("not a regular file"))
    ('No space left on device (model.onnx)', 'not a regular file')
    """
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")


def raise_if_exhausted(error: OSError) -> None:
    """Raise an error again that concerns the process or the disk, and not the file: open files, memory, disk space.

    A file that cannot be opened or copied for such a reason is not missing, unreadable or damaged.
    """
    if error.errno in _EXHAUSTED:
        raise error


def lack_of_space(directory: Path, required: int) -> str:
    """Return how many bytes are required and free, if the disk of a directory has too few; empty otherwise.

    >>> lack_of_space(Path("/"), 0), lack_of_space(Path("/"), 2**80)[:37]
    ('', '1208925819614629174706176 bytes, and ')
    """
    free = shutil.disk_usage(directory).free
    return f"{required} bytes, and the disk of {directory} has space for {free}" if required > free else ""


def exists(path: Path) -> bool:
    """Return whether a path leads to anything; False where that can't be determined, unlike ``Path.exists``."""
    return os.path.exists(path)  # noqa: PTH110 - Path raises for long names, loops and unreadable directories


def is_file(path: Path) -> bool:
    """Return whether a path leads to a regular file; False where that can't be determined."""
    return os.path.isfile(path)  # noqa: PTH113 - as above


def is_directory(path: Path) -> bool:
    """Return whether a path leads to a directory; False where that can't be determined."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def is_plain_name(name: str) -> bool:
    r"""Return whether text is the name of a file in any directory.

    >>> [is_plain_name(name) for name in ("model.onnx", "", "..", "a/b", "a\0b", "\ud800", "a" * 256)]
    [True, False, False, False, False, False, False]
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return name not in {"", ".", ".."} and not {"/", "\0"} & set(name) and len(encoded) <= _MAX_NAME_BYTES


def real_path(path: Path | str) -> Path:
    """Return a path without symlinks, as ``os.path.realpath``, which fails if a link is replaced while it is read."""
    for _ in range(_ATTEMPTS):
        try:
            return Path(os.path.realpath(path))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    raise OSError(errno.EAGAIN, "was replaced while it was read", str(path))


def is_inside(path: Path, directory: Path) -> bool:
    """Return whether a path leads to a file in a directory, after all symlinks are followed.

    False for a path that no file can have: one with a NUL, or of more than 4096 characters.

    The files of a snapshot in a Hugging Face cache are links to the ``blobs`` of the same model, which are inside.

    >>> is_inside(Path("/a/b/../c"), Path("/a")), is_inside(Path("/a/../c"), Path("/a"))
    (True, False)
    """
    if "\0" in str(path) or len(str(path)) > _MAX_PATH:
        return False
    return is_below(real_path(path), real_path(directory))


def is_below(target: Path, root: Path) -> bool:
    """Return whether a file is in a directory; both paths are without symlinks. See ``is_inside``."""
    snapshots = next((parent for parent in root.parents if parent.name == "snapshots"), None)
    # `blobs` is not resolved: it could be a link itself
    blobs = None if snapshots is None else snapshots.parent / "blobs"
    return target.is_relative_to(root) or (blobs is not None and target.is_relative_to(blobs))


def is_private_hard_link(path: Path) -> bool:
    """Return whether a file has other names, and not every user may read it: another name may be that of a secret.

    Publishing a copy makes the content readable for every user.

    Raises:
        OSError: It does not exist.
    """
    status = path.stat()
    return status.st_nlink > 1 and not status.st_mode & stat.S_IROTH


def has_trusted_owner(path: Path, directory: Path) -> bool:
    """Return whether a file or a directory, and a symlink to it, belong to this user, to root, or to another owner.

    Any user can create files in a directory such as ``/tmp``.

    Args:
        path: It exists, or is a link.
        directory: Its owner is trusted as well.

    Raises:
        OSError: It does not exist.
    """
    # in a user namespace, root may have another number
    trusted = {os.geteuid(), 0, Path("/").stat().st_uid, directory.stat().st_uid}
    return path.lstat().st_uid in trusted and (not exists(path) or path.stat().st_uid in trusted)


def foreign_link(path: Path, owner: int | None = None) -> str:
    """Return a symlink on the way to a path if it belongs to another user, who does not own what it leads to.

    Another user can make a link to a private file or directory of this user, which would then be published. A link to a
    process, as in ``/proc/1/cwd``, can lead to another place at any time.

    Args:
        path: A file or directory.
        owner: A user whose links are trusted, as are those of this user and of root.

    Returns:
        The link; empty if there is none, or if the path does not exist.
    """
    trusted = {os.geteuid(), 0, os.stat("/").st_uid, owner}  # noqa: PTH116 - in a user namespace, root is another user
    links: dict[str, int] = {}
    status = None
    for entry, status in entries_to(path):
        if status is not None and stat.S_ISLNK(status.st_mode):
            if links and entry.startswith("/proc/"):
                return next(iter(links))
            if status.st_uid not in trusted:
                links[entry] = status.st_uid
    if status is None or stat.S_ISLNK(status.st_mode):
        return ""
    return next((link for link, user in links.items() if user != status.st_uid), "")


def foreign_link_in(directory: Path) -> str:
    """Return a ``foreign_link`` to a directory, to an entry of it, or to an entry of a directory in it; "" if none.

    A directory that cannot be read has no entries.
    """
    entries = _entries(directory)
    inner = [path for entry in entries if is_directory(entry) for path in _entries(entry)]
    links = (path for path in (*entries, *inner) if path.is_symlink())
    return next(filter(None, map(foreign_link, (directory, *links))), "")


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def require_no_foreign_link(path: Path) -> None:
    """Require that a path that is read does not lead through a ``foreign_link``.

    Raises:
        SpecError: It does.
    """
    if link := foreign_link(path):
        raise foreign_link_error(link)


def foreign_link_error(link: str) -> SpecError:
    """Return the error for a ``foreign_link``."""
    return SpecError(
        f"{link} {FOREIGN_LINK}",
        "specify the path that it leads to, if you trust the files there",
        code="foreign-link",
    )


def entries_to(path: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield each directory, link and file on the way to a path, with its status; links are followed one by one.

    As for the kernel, ``..`` is the parent of what a link before it leads to, and not of the link.

    The last one has None if it does not exist or cannot be read, and is a link if there are more than 40.
    """
    pending, current, links = list(Path(os.getcwd(), path).parts[1:]), "/", 0  # noqa: PTH109 - fast
    while pending:
        parent, part = current, pending.pop(0)
        current = os.path.dirname(parent) if part == ".." else os.path.join(parent, part)  # noqa: PTH118, PTH120 - fast
        try:
            status = os.lstat(current)
            target = os.readlink(current) if stat.S_ISLNK(status.st_mode) else None  # noqa: PTH115 - as above
        except OSError:
            yield current, None
            return
        yield current, status
        if target is not None:
            links += 1
            if links > MAX_LINKS:
                return
            pending = [each for each in target.split("/") if each not in {"", "."}] + pending
            current = "/" if target.startswith("/") else parent


def is_public(directory: Path) -> bool:
    """Return whether untrusted users can create files in a directory, as in ``/tmp``.

    A group that can write to it is trusted, because its members can replace what is there, unless a sticky bit prevents
    that.

    Raises:
        OSError: It does not exist.
    """
    status = directory.stat()
    writable = shared_bits(status) if status.st_mode & stat.S_ISVTX else stat.S_IWOTH
    return bool(status.st_mode & writable)


def is_like_tmp(directory: Path) -> bool:
    """Return whether untrusted users can create files in a directory, but not rename those of others.

    Raises:
        OSError: It does not exist.
    """
    return is_public(directory) and bool(directory.stat().st_mode & stat.S_ISVTX)


def is_foreign_in_public(path: Path, base: Path) -> bool:
    """Return whether a file, or a directory above it, is in a public directory and belongs to an untrusted user.

    A file that does not exist does not.

    Args:
        path: The file.
        base: Directory of the spec; what is above it is not examined.
    """
    above = [parent for parent in path.parents if parent != base and parent.is_relative_to(base)]
    return any(_is_planted(each) for each in (path, *above))


def leads_through_foreign(path: Path, base: Path) -> bool:
    """Return whether an entry on the way to a path is in a public directory and belongs to an untrusted user.

    That user can exchange the entry at any time, for example for a link to another place.

    Args:
        path: A file; symlinks on the way are examined, and what they lead to.
        base: Directory of the spec, without symlinks; it and what is above it are not examined.
    """
    return any(_is_planted(Path(entry)) for entry, _ in entries_to(path) if not base.is_relative_to(entry))


def is_own_place(path: Path, owner: int | None = None) -> bool:
    """Return whether no untrusted user can put a link, or anything else, in the place of a path or of one above it.

    Groups are trusted as for ``is_public``. A mounted volume may be writable by all users, with what is below it: in a
    container, as with an emptyDir of Kubernetes, it has no other users.

    >>> is_own_place(Path("/usr/lib")), is_own_place(Path("/tmp/missing"))
    (True, False)

    Args:
        path: It may be missing.
        owner: A user who is trusted, as are this user and root.
    """
    trusted = {os.geteuid(), 0, os.stat("/").st_uid, owner}  # noqa: PTH116 - in a user namespace, root is another user
    is_volume = False
    for entry, status in entries_to(path):
        directory = Path(entry).parent
        is_shared, is_sticky = is_public(directory), is_like_tmp(directory)
        if os.path.ismount(directory):
            is_volume = is_shared and not is_sticky
        is_kept = is_volume if not is_sticky else status is not None and status.st_uid in trusted
        if directory.stat().st_uid not in trusted or (is_shared and not is_kept):
            return False
    return True


def _is_planted(path: Path) -> bool:
    try:
        return is_public(path.parent) and not has_trusted_owner(path, path.parent)
    except OSError:  # what reads it reports that
        return False


def cache_directory(configured: str | None) -> Path:
    """Return the directory of the caches.

    Args:
        configured: What the user set; None or empty for the user's directory of caches.

    Raises:
        SpecError: The user has no home directory, as in a container that runs with an arbitrary user ID.
    """
    if configured:
        return Path(configured).absolute()
    import platformdirs  # noqa: PLC0415 - few commands need it

    try:
        return Path(platformdirs.user_cache_dir("repogen")).absolute()
    except RuntimeError as error:
        raise no_home_directory(error) from error


def no_home_directory(error: RuntimeError) -> SpecError:
    """Return the error for a user without a home directory."""
    return SpecError(
        f"this user has no home directory: {error}",
        "set HOME to a directory that is writable",
        code="home-directory",
    )


def is_shared(directory: Path) -> bool:
    """Return whether another user can rename what this user has in a directory, as in ``/tmp`` without a sticky bit.

    A directory of this user that is renamed to a name that repogen uses would be taken for one of repogen's.

    Raises:
        OSError: It does not exist.
    """
    return bool(_rename_reason(directory))


def foreign_reason(directory: Path) -> str:
    """Return why another user could change what is in a directory; empty if only this user and root can.

    A symlink of this user or of root is followed: large caches are often on another disk. Who can write to a directory
    above, or owns it, can put another directory in the place of this one. Those above the home directory are not
    examined, as for the keys of SSH: their owners control everything in it.

    >>> foreign_reason(Path("/"))
    ''

    Raises:
        OSError: It does not exist.
    """
    if not stat.S_ISDIR(directory.stat().st_mode):
        return "is not a directory"
    if reason := _foreign_reason(directory, writable=stat.S_IWGRP | stat.S_IWOTH):
        return reason
    for path in _directories_above(directory):
        if reason := _rename_reason(path):
            return f"is below {path}, which {reason}"
    return ""


def rename_reason(directory: Path) -> str:
    """Return why another user could rename what is in a directory; empty if only this user and root can.

    A mounted volume may be writable by all users: in a container, as with an emptyDir of Kubernetes, it has no other
    users. Directories above the home directory are not examined, see ``foreign_reason``.

    >>> rename_reason(Path("/"))
    ''

    Raises:
        OSError: It does not exist.
    """
    for path in (directory, *_directories_above(directory)):
        if reason := _foreign_reason(path, writable=0) if os.path.ismount(path) else _rename_reason(path):
            return reason if path == directory else f"is below {path}, which {reason}"
    return ""


def is_private(path: Path) -> bool:
    """Return whether only this user and root can change a file or a directory, or replace it; False if it is missing.

    Directories above the home directory are not examined, see ``foreign_reason``.

    >>> is_private(Path("/missing"))
    False
    """
    try:
        is_foreign = _foreign_reason(path, writable=shared_bits(path.stat()))
        return not is_foreign and not any(map(_rename_reason, _directories_above(path)))
    except OSError:
        return False


def shared_bits(status: os.stat_result) -> int:
    """Return the bits of a mode that let other users write; the group's only if it is not that of this user alone."""
    return stat.S_IWOTH | (0 if is_own_group(status.st_gid) else stat.S_IWGRP)


def _rename_reason(directory: Path) -> str:
    """Return why another user could rename the entries of a directory; empty if only this user and root can."""
    status = directory.stat()
    return _foreign_reason(directory, writable=0 if status.st_mode & stat.S_ISVTX else shared_bits(status))


def _foreign_reason(path: Path, *, writable: int) -> str:
    """Return why another user could change a file or a directory; ``writable`` are the bits that allow it."""
    link, status = path.lstat(), path.stat()
    # in a user namespace, root may have another number
    if not {link.st_uid, status.st_uid} <= {os.geteuid(), 0, Path("/").stat().st_uid}:
        return "belongs to another user"
    return "can be written by other users" if status.st_mode & writable else ""


def _directories_above(directory: Path) -> Iterator[Path]:
    """Yield the directories above a path, and above the one that it leads to, up to the home directory."""
    homes = {os.path.realpath(os.path.expanduser("~")), os.path.expanduser("~")}  # noqa: PTH111 - Path.home may fail
    for path in dict.fromkeys((directory.absolute(), real_path(directory))):
        yield from takewhile(lambda parent: str(parent) not in homes, path.parents)


def is_own_group(number: int) -> bool:
    """Return whether a group is that of this user alone, as many distributions create one for each user."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def require_inside(path: Path, directory: Path) -> Path:
    """Return a path that leads to a file in a directory, see ``is_inside``.

    Raises:
        OSError: It leads to another directory.
    """
    if not is_inside(path, directory):
        raise leads_out(path, directory)
    return path


def leads_out(path: Path, directory: Path) -> OSError:
    """Return the error for a path that leads to a file in another directory."""
    return OSError(errno.EPERM, f"leads out of {directory}", str(path))
