"""Reads the files of a spec's directory of templates: nothing outside of it, and nothing that blocks or is large."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from repogen.files import open_inside

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 2**20
"""Size limit of a template; repogen's own have a few KiB."""


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
