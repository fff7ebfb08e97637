"""The directories that an executor copies to other machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.files import raise_if_exhausted
from repogen.files.own_code import is_replaceable
from repogen.files.paths import foreign_link, foreign_link_error, has_trusted_owner, real_path

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator


def require_own_directories(directories: Iterable[Path], root: Path, unused: Iterable[str]) -> None:
    """Require that no other user can add files to the directories that an executor copies.

    The tasks would import the files of other users, and receive the private files that their links lead to: executors
    follow links.

    Args:
        directories: The directory of the spec, and those of packages; a file is accepted. Directories below them are
            examined, and those that links lead to.
        root: Directory of the spec. Users who can rename files in it, or above it, are trusted.
        unused: Entries below ``root`` that are not copied.

    Raises:
        SpecError: Another user can add files to one of the directories, or made a link in it.
    """
    left_out = {root / path for path in unused}
    pending, visited = [path for path in directories if path.is_dir()], set()
    while pending:
        directory = pending.pop()
        if (key := real_path(directory)) in visited:
            continue
        visited.add(key)
        try:
            if is_replaceable(directory, root) or not has_trusted_owner(directory, root):
                raise _foreign(directory)
            pending += _subdirectories(directory, left_out)
        except OSError as error:  # the executor reports it
            raise_if_exhausted(error)


def _subdirectories(directory: Path, left_out: Container[Path]) -> Iterator[Path]:
    """Yield the directories in a directory, also those that links lead to.

    Raises:
        SpecError: A link belongs to another user.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path in left_out:
                continue
            if entry.is_symlink() and (link := foreign_link(path)):
                raise foreign_link_error(link)
            if entry.is_dir():
                yield path


def _foreign(directory: Path) -> SpecError:
    return SpecError(
        f"other users can create files in {directory}, and the executor would copy them to other machines",
        "move the spec to a directory in which only you can create files",
        code="working-directory.foreign",
    )
