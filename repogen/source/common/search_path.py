"""Adds directories of user code to ``sys.path``, without the files of other users in a directory such as ``/tmp``."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SourceError
from repogen.files import is_foreign_in_public, is_public

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def add_to_search_path(directory: Path) -> None:
    """Add a directory to the start of ``sys.path``.

    If any user can create files in it, importing a module that another user created there is an error: it could have
    the name of one that PyTorch imports, or compiled code in a ``__pycache__``.
    """
    sys.path.insert(0, str(directory))
    if is_public(directory):
        sys.pycache_prefix = os.devnull  # compiled code is neither read nor written
        sys.meta_path.insert(0, _OwnModules(directory))


def require_own(file: Path, base: Path) -> None:
    """Require that a file of user code was not created by another user, in a directory in which any user can.

    Args:
        file: The file.
        base: Directory of the spec.

    Raises:
        SourceError: It was.
    """
    if is_foreign_in_public(file, base):
        raise SourceError(
            f"{file.name} belongs to another user, and any user can create files in its directory",
            "move the spec and its code to your own directory",
            code="working-directory.foreign",
            where=file.name,
        )


class _OwnModules:
    """Finds no module; raises an error for one of another user in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the interface of Python
    ) -> ModuleSpec | None:
        # a package without __init__.py, such as google, may have parts in several directories
        places = [str(self._directory)] if path is None else list(path)
        for place in (place for place in places if Path(place).is_relative_to(self._directory)):
            spec = PathFinder.find_spec(fullname, [place])
            if spec is not None:
                location = spec.origin or next(iter(spec.submodule_search_locations or ()))
                require_own(Path(location), self._directory)
        return None
