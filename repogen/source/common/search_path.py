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

    If untrusted users can create files in it, or in a package below it, importing a module that one of them created
    there is an error: it could have the name of one that PyTorch imports. Compiled code is then neither read nor
    written.
    """
    sys.path.insert(0, str(directory))
    modules = _OwnModules(directory)
    modules.is_exposed(str(directory))
    sys.meta_path.insert(0, modules)


def require_own(file: Path, base: Path) -> None:
    """Require that a file of user code was not created by another user, in a directory in which untrusted users can.

    Args:
        file: The file.
        base: Directory of the spec.

    Raises:
        SourceError: It was.
    """
    if is_foreign_in_public(file, base):
        name = str(file.relative_to(base)) if file.is_relative_to(base) else file.name
        raise SourceError(
            f"{name} belongs to another user, and other users can create files in its directory",
            "move the spec and its code to your own directory",
            code="working-directory.foreign",
            where=name,
        )


class _OwnModules:
    """Finds no module; raises an error for one of another user in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._exposed: dict[str, bool] = {}  # by directory

    def is_exposed(self, place: str) -> bool:
        """Return whether untrusted users can create files in a directory of modules, or in one above it."""
        if place not in self._exposed:
            directories = [each for each in (Path(place), *Path(place).parents) if each.is_relative_to(self._directory)]
            self._exposed[place] = any(map(_is_public, directories))
            if self._exposed[place]:
                sys.pycache_prefix = os.devnull  # they could create a __pycache__
        return self._exposed[place]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the interface of Python
    ) -> ModuleSpec | None:
        # a package without __init__.py, such as google, may have parts in several directories
        places = [str(self._directory)] if path is None else list(path)
        for place in filter(self.is_exposed, places):
            spec = PathFinder.find_spec(fullname, [place])
            if spec is not None:
                location = spec.origin or next(iter(spec.submodule_search_locations or ()))
                require_own(Path(location), self._directory)
        return None


def _is_public(directory: Path) -> bool:
    try:
        return is_public(directory)
    except OSError:  # an entry of a package's path need not exist
        return False
