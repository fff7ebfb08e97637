"""Opens files in a directory in which another user may replace names by symlinks at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.files.content import closed_after_error, open_regular, opened_path
from repogen.files.paths import is_below, leads_out, real_path, require_inside

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path


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
    root = real_path(directory) if root is None else root
    require_inside(path, directory)
    stream = open_regular(path)
    with closed_after_error(stream):
        if not is_below(opened_path(stream, path), root):
            raise leads_out(path, directory)
    return stream
