"""Imports user code, but not what other users created in a directory such as ``/tmp``."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SourceError
from repogen.files import is_foreign_in_public, is_like_tmp
from repogen.files.own_code import is_below_foreign
from repogen.files.paths import leads_through_foreign
from repogen.files.resolve import resolved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType


class SourceLoader(SourceFileLoader):
    """Compiles a module on each import: the compiled code in a ``__pycache__`` may be that of another user."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled code of a module."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def add_to_search_path(directory: Path) -> None:
    """Add a directory of user code to the start of ``sys.path``.

    Raises:
        SourceError: Other users can create files in it. Many libraries search ``sys.path`` for more than modules, such
            as for the entry points of packages.
    """
    _require_own_directory(directory)
    sys.path.insert(0, str(directory))
    sys.meta_path.insert(0, _UserModules(directory))


def own_file(file: Path, base: Path) -> Path:
    """Return the path of a file of user code, without symlinks, which no untrusted user can replace.

    Args:
        file: The file; it may not exist.
        base: Directory of the spec.

    Raises:
        SpecError: A symlink of another user, who does not own what it leads to, is on the way.
        SourceError: Another user created the file, or can rename a directory above it.
    """
    path, base = resolved(file), base.resolve()
    if not path.is_file():
        return path
    require_own(path, base)
    if leads_through_foreign(file, base) or is_below_foreign(path.parent, base):
        raise SourceError(
            f"a directory or a symlink on the way to {path.name} belongs to another user, who could replace the code",
            "move the spec and its code to your own directory",
            code="working-directory.foreign",
            where=path.name,
        )
    return path


def require_own(file: Path, base: Path) -> None:
    """Require that a file of user code was not created by another user, in a directory in which untrusted users can.

    Args:
        file: The file.
        base: Directory of the spec.

    Raises:
        SourceError: It was, or its directory is like ``/tmp``.
    """
    _require_own_directory(file.parent)
    if is_foreign_in_public(file, base):
        name = str(file.relative_to(base)) if file.is_relative_to(base) else file.name
        raise SourceError(
            f"{name} belongs to another user, and other users can create files in its directory",
            "move the spec and its code to your own directory",
            code="working-directory.foreign",
            where=name,
        )


def _require_own_directory(directory: Path) -> None:
    if is_like_tmp(directory):
        raise SourceError(
            f"other users can create files in {directory}, and Python could import them",
            "move the code to a directory in which only you can create files",
            code="working-directory.foreign",
        )


class _UserModules:
    """Finds the modules in a directory of user code, and in packages there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        below = (Path(entry) for entry in sys.path if Path(entry).is_relative_to(directory))
        self._others = [entry for entry in below if entry != directory]  # such as those of a virtual environment

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the interface of Python
    ) -> ModuleSpec | None:
        """Return the spec of a module that is in the directory; None for others and for packages without a file.

        Raises:
            SourceError: Another user may have created it.
        """
        places = [str(self._directory)] if path is None else list(path)
        if not any(map(self._is_own, places)):
            return None
        spec = PathFinder.find_spec(fullname, places)
        if spec is None:
            return None
        # a package without __init__.py, such as google, may have parts in several directories
        for part in filter(self._is_own, spec.submodule_search_locations or ()):
            require_own(Path(part, "__init__.py"), self._directory)
        if spec.origin is None or not self._is_own(spec.origin):
            return None
        require_own(Path(spec.origin), self._directory)
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = SourceLoader(fullname, spec.origin)
        return spec

    def _is_own(self, path: str) -> bool:
        """Return whether a path is in the directory, and not in another one of ``sys.path`` below it."""
        return Path(path).is_relative_to(self._directory) and not any(map(Path(path).is_relative_to, self._others))
