"""Reads the files of a spec's directory of templates: nothing outside of it, and nothing that blocks or is large."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from repogen.files import open_inside
from repogen.files.tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES = 2**20
"""Size limit of a template; repogen's own have a few KiB."""

MAX_FILES = 1000
"""Limit on the files of a directory of templates; all of them are hashed, because a template may include any."""


def rejection(path: Path, directory: Path) -> str:
    """Return why a file is not read as a template, as the end of a sentence; empty if it may be read.

    Args:
        path: The file, which is not opened.
        directory: The directory of templates.
    """
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            return "is a link that leaves the directory of templates"
        status = path.stat()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        return f"can't be read: {error.strerror if isinstance(error, OSError) else 'a loop of links'}"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return f"has more than {MAX_BYTES} bytes" if status.st_size > MAX_BYTES else ""


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory of templates that can be read, in a fixed order, its own first."""
    for folder, _, names in walk(directory):  # a linked directory is below this one, or can't be used
        yield from (path for path in (folder / name for name in names) if not rejection(path, directory))


def read_template(path: Path, directory: Path) -> str:
    """Return the text of a template.

    Args:
        path: The file.
        directory: The directory of templates; a link may not leave it.

    Raises:
        ValueError: The file is not a template; the message is the end of a sentence.
        OSError: It can't be read.
    """
    if reason := rejection(path, directory):
        raise ValueError(reason)
    with open_inside(path, directory) as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:  # a file of /proc has the size 0
        raise ValueError(f"has more than {MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error
