"""The code that a build imported, recorded so that a later build can decide whether the model is up to date."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import ImportedCode
from repogen.files import raise_if_exhausted
from repogen.files.paths import foreign_link_error
from repogen.files.resolve import ForeignLinkError
from repogen.repository.digest import sha256_file
from repogen.source.interface import PUBLISHED_MODULE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


EDITED = "edited"
"""Instead of the digest of a file that was changed after it may have been read: no later build has it."""


def imported_code(root: Path, data: Iterable[Path] = (), began_ns: int | None = None) -> ImportedCode:
    """Return the user's files and the distributions that this process has imported.

    Args:
        root: Directory of the spec; paths are relative to it.
        data: Other files that the model was made from, such as those of a Hugging Face directory.
        began_ns: Time before the first of the files was read, in nanoseconds; None if they cannot have changed since.
    """
    # ``__main__`` is the worker itself.
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    excluded = ("__main__", PUBLISHED_MODULE_PREFIX)
    # Modules that PyTorch creates, such as torch.ops, name a file that does not exist, by a relative path.
    located = [
        (name, Path(file))
        for name, file in modules
        if isinstance(file, str) and Path(file).is_absolute() and not name.startswith(excluded)
    ]
    installed = _installed_directories()
    code = [path for _, path in located if not _is_installed(path, installed) and path.is_file()]
    # Data files are not resolved: a symlink with a new target is a change.
    paths = (*(path.resolve() for path in code), *(path.absolute() for path in data))
    files = {Path(os.path.relpath(path, root.resolve())).as_posix(): _digest(path, began_ns) for path in paths}
    packages: dict[str, set[Path]] = {}
    for name, path in located:
        if "site-packages" in path.parts:
            packages.setdefault(name.partition(".")[0], set()).add(path)
    return ImportedCode(files, _distributions_of(packages))


def _digest(path: Path, began_ns: int | None) -> str:
    """Return the digest of a file, or ``EDITED``.

    Raises:
        SpecError: A symlink of another user, who does not own what it leads to, is on the way.
    """
    try:
        digest = sha256_file(path)
        # no user can set the ctime back
        return EDITED if began_ns is not None and path.stat().st_ctime_ns > began_ns else digest
    except ForeignLinkError as error:
        raise foreign_link_error(error.link) from None
    except OSError as error:  # it was removed
        raise_if_exhausted(error)
        return EDITED


def _is_installed(path: Path, directories: tuple[str, ...]) -> bool:
    """Return whether ``path`` belongs to the interpreter, to a distribution or to repogen."""
    if "site-packages" in path.parts or "dist-packages" in path.parts:
        return True
    # A worker has 3,000 modules: most are decided without a system call, unless a directory is behind a symlink.
    return str(path).startswith(directories) or str(path.resolve()).startswith(directories)


def _installed_directories() -> tuple[str, ...]:
    """Return the directories of repogen and of the standard library, with a slash at the end."""
    paths = sysconfig.get_paths()
    directories = (Path(__file__).parents[1], Path(paths["stdlib"]), Path(paths["platstdlib"]))
    return tuple(f"{directory.resolve()}{os.sep}" for directory in directories)


def _distributions_of(packages: Mapping[str, set[Path]]) -> dict[str, str]:
    """Return the versions of the distributions that provide imported files, by name.

    It does not call ``importlib.metadata.packages_distributions``, which parses the metadata of every distribution.

    Args:
        packages: Top-level package -> its imported files. If several distributions provide a package, as for a
            namespace package, those count whose files are among them.
    """
    providers: dict[str, list[importlib.metadata.Distribution]] = {package: [] for package in packages}
    for distribution in importlib.metadata.distributions():
        for package in _top_level(distribution) & packages.keys():
            providers[package].append(distribution)
    versions: dict[str, str] = {}
    for package, distributions in providers.items():
        imported = {path.resolve() for path in packages[package]} if len(distributions) > 1 else set()
        for distribution in distributions:
            if len(distributions) == 1 or not imported.isdisjoint(_files_of(distribution)):
                metadata = distribution.metadata
                versions.setdefault(metadata["Name"], metadata["Version"])  # the first on sys.path is the imported one
    return dict(sorted(versions.items()))


def _files_of(distribution: importlib.metadata.Distribution) -> set[Path]:
    """Return the paths of the modules that a distribution installed."""
    root = Path(str(distribution.locate_file(""))).resolve()
    return {root / file for file in distribution.files or () if file.suffix in {".py", ".so"}}


def _top_level(distribution: importlib.metadata.Distribution) -> set[str]:
    """Return the names that a distribution adds to ``site-packages``."""
    declared = distribution.read_text("top_level.txt")
    if declared:
        return set(declared.split())
    paths = (distribution.read_text("RECORD") or "").splitlines()
    roots = {path.partition(",")[0].partition("/")[0] for path in paths}
    return {inspect.getmodulename(root) or root for root in roots}
