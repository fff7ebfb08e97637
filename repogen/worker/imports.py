"""The code that a build imported, recorded so that a later build can decide whether the model is up to date."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import ImportedCode
from repogen.repository.digest import sha256_file
from repogen.source.interface import PUBLISHED_MODULE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable


def imported_code(root: Path, data: Iterable[Path] = ()) -> ImportedCode:
    """Return the user's files and the distributions that this process has imported.

    Args:
        root: Directory of the spec; paths are relative to it.
        data: Other files that the model was made from, such as those of a Hugging Face directory.
    """
    # ``__main__`` is the worker itself.
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    excluded = ("__main__", PUBLISHED_MODULE_PREFIX)
    located = [(name, Path(file)) for name, file in modules if isinstance(file, str) and not name.startswith(excluded)]
    code = [path for _, path in located if path.is_file() and not _is_installed(path)]
    # Data files are not resolved: a symlink with a new target is a change.
    paths = (*(path.resolve() for path in code), *(path.absolute() for path in data))
    files = {Path(os.path.relpath(path, root.resolve())).as_posix(): sha256_file(path) for path in paths}
    packages = importlib.metadata.packages_distributions()
    installed = [(name.partition(".")[0], path) for name, path in located if "site-packages" in path.parts]
    top_level = {top for top, _ in installed}
    candidates = {top: set(packages.get(top, ())) for top in top_level}
    names = {name for owners in candidates.values() if len(owners) == 1 for name in owners}
    # Several distributions may share a namespace package; those count whose files were imported.
    shared = {name for owners in candidates.values() if len(owners) > 1 for name in owners}
    imported = {path.resolve() for top, path in installed if len(candidates[top]) > 1}
    names |= {name for name in shared if not imported.isdisjoint(_files_of(name))}
    return ImportedCode(files, {name: importlib.metadata.version(name) for name in sorted(names)})


def _files_of(distribution: str) -> set[Path]:
    """Return the paths of the files that ``distribution`` installed."""
    installed = importlib.metadata.distribution(distribution)
    root = Path(str(installed.locate_file(""))).resolve()
    return {root / file for file in installed.files or () if file.suffix in {".py", ".so"}}


def _is_installed(path: Path) -> bool:
    """Return whether ``path`` belongs to the interpreter, to a distribution or to repogen."""
    package = Path(__file__).resolve().parents[1]
    paths = sysconfig.get_paths()
    standard_library = {Path(paths[key]).resolve() for key in ("stdlib", "platstdlib")}
    resolved = path.resolve()
    return (
        "site-packages" in path.parts
        or "dist-packages" in path.parts
        or resolved.is_relative_to(package)
        or any(resolved.is_relative_to(directory) for directory in standard_library)
    )
