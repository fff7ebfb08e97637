"""Trees of directories that others may have created: nested deeper than Python's recursion limit, or unreadable."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from repogen.files.paths import raise_if_exhausted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def walk(directory: Path, *, strict: bool = False) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each directory of a tree, with the sorted names of its directories and of its other entries.

    Links are not followed; a link to a directory is among the directories, as in ``os.walk``, which is recursive before
    Python 3.12.

    Args:
        directory: Root of the tree.
        strict: Whether a directory that cannot be read is an error; it is left out otherwise.

    Raises:
        OSError: A directory cannot be read; without ``strict``, only because of too many open files, or no memory.
    """
    queue = [directory]
    while queue:
        parent = queue.pop()
        try:
            with os.scandir(parent) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise_if_exhausted(error)
            if strict:
                raise
            continue
        folders = [entry.name for entry in listed if _is_directory(entry, follow=True)]
        names = set(folders)
        yield parent, folders, [entry.name for entry in listed if entry.name not in names]
        queue += [parent / entry.name for entry in reversed(listed) if _is_directory(entry, follow=False)]


def _is_directory(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def remove_tree(directory: Path) -> None:
    """Delete a tree as far as possible, nested as deeply as it may be; links are not followed."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except RecursionError:  # shutil is recursive before Python 3.13
        subprocess.run(["/bin/rm", "-rf", "--", directory], check=False, capture_output=True)
