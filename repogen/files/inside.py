"""Opens files in a directory in which another user may replace names by symlinks at any time."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.content import open_regular
from repogen.files.paths import is_below, leads_out, require_inside

if TYPE_CHECKING:
    from io import BufferedReader

_DESCRIPTORS = Path("/proc/self/fd")


def open_inside(path: Path, directory: Path, root: Path | None = None) -> BufferedReader:
    """Open a regular file in a directory for reading, see ``is_inside`` and ``open_regular``.

    What was opened is compared, not only its name: another user may replace a part of the path after the comparison.

    Args:
        path: The file.
        directory: The directory, as messages name it.
        root: Where the directory led to earlier, without symlinks, if another one may have replaced it since; None to
            follow them now.

    Raises:
        OSError: It leads to another directory, cannot be opened, or is not a regular file.
    """
    root = Path(os.path.realpath(directory)) if root is None else root
    require_inside(path, directory)
    stream = open_regular(path)
    try:
        is_outside = not is_below(_opened_path(stream.fileno()) or _same_path(stream, path), root)
    except BaseException:
        stream.close()
        raise
    if is_outside:
        stream.close()
        raise leads_out(path, directory)
    return stream


def _opened_path(descriptor: int) -> Path | None:
    """Return the path of what was opened, as the kernel knows it; None without Linux's ``/proc``."""
    try:
        return Path(os.readlink(_DESCRIPTORS / str(descriptor)))  # noqa: PTH115 - tests replace it
    except OSError:
        return None


def _same_path(stream: BufferedReader, path: Path) -> Path:
    """Return where a path leads, if that is still the file that was opened.

    Raises:
        OSError: It is another file.
    """
    target = Path(os.path.realpath(path))
    if not os.path.samestat(os.fstat(stream.fileno()), target.lstat()):
        raise OSError(errno.EAGAIN, "was replaced while it was opened", str(path))
    return target
