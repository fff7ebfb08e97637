"""The user's packages outside of the spec's directory, which an executor copies to its machines."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from repogen.files import is_inside
from repogen.files.paths import real_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.artifacts.built_model import ImportedCode
    from repogen.spec.models import ModelSpec

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def user_packages(models: Iterable[ModelSpec], root: Path) -> tuple[Path, ...]:
    """Return the directories of packages, and the files of modules, that models name as ``package.module:callable``.

    Packages in the directory of the spec are not returned, nor are installed ones, which the machines have as well. An
    editable installation counts as the user's.

    Args:
        models: Spec entries.
        root: Directory of the spec.
    """
    modules = (reference.partition(":")[0] for model in models for reference in _references(model))
    names = sorted({name.partition(".")[0] for name in modules if not name.endswith(".py")})
    locations = (_location(name) for name in names if not any((root / f"{name}{end}").exists() for end in ("", ".py")))
    return tuple(location for location in locations if location is not None)


def with_local_paths(code: ImportedCode, packages: Iterable[Path], root: Path) -> ImportedCode:
    """Return the code that another machine imported, with files of packages where they are on this machine.

    Args:
        code: Its paths are relative to the copy of the spec's directory there. A path that is neither in that directory
            nor in a package is left out, because a later build would read it.
        packages: The ``user_packages``.
        root: Directory of the spec.
    """
    locations = {package.name: package for package in packages}
    files = {_local_path(path, locations, root): digest for path, digest in code.files.items()}
    return replace(code, files={path: digest for path, digest in files.items() if path is not None})


def _local_path(path: str, locations: dict[str, Path], root: Path) -> str | None:
    pure = PurePosixPath(path)
    if not pure.is_absolute() and ".." not in pure.parts:
        return path
    for index, part in enumerate(pure.parts):
        below = pure.parts[index + 1 :]
        if part in locations and ".." not in below and (local := locations[part].joinpath(*below)).is_file():
            return Path(os.path.relpath(local, root.resolve())).as_posix()
    return None


def _references(model: ModelSpec) -> Iterator[str]:
    """Yield the callables that an entry names."""
    export, quality = model.export, model.quality
    candidates = [getattr(model.source, "factory", None), getattr(model.source, "reference", None), model.examples]
    candidates += [export.custom_translations, export.custom_symbolics, None if quality is None else quality.callable]
    candidates += [file for step in model.passes for file in step.files.values()]
    yield from (reference for reference in candidates if isinstance(reference, str) and ":" in reference)


def _location(name: str) -> Path | None:
    """Return where a top-level package or module is; None if it is installed or does not exist."""
    try:
        spec = None if name in sys.stdlib_module_names else find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ([] if spec.origin is None else [spec.origin]))
    if len(places) != 1:
        return None
    location = real_path(places[0])
    paths = sysconfig.get_paths()
    own = Path(__file__).resolve().parents[1]
    directories = (own, Path(paths["stdlib"]), Path(paths["platstdlib"]))
    is_installed = _INSTALLED & set(location.parts) or any(is_inside(location, folder) for folder in directories)
    return location if location.exists() and not is_installed else None
