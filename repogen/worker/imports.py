"""What a build imported: the record that later decides, without importing anything, whether it is still current."""

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
        data: Further files that the model was made of, such as a Hugging Face directory's.
    """
    # ``__main__`` is the worker itself.
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    own = ("__main__", PUBLISHED_MODULE_PREFIX)
    located = [(name, Path(file)) for name, file in modules if isinstance(file, str) and not name.startswith(own)]
    code = [path for _, path in located if path.is_file() and not _is_installed(path)]
    # Data stays under its own name: a link that comes to point elsewhere is a change.
    located_files = (*(path.resolve() for path in code), *(path.absolute() for path in data))
    files = {Path(os.path.relpath(path, root.resolve())).as_posix(): sha256_file(path) for path in located_files}
    packages = importlib.metadata.packages_distributions()
    tops = {name.partition(".")[0] for name, path in located if "site-packages" in path.parts}
    # Several distributions may share a namespace package; which of them was used is not told, so all count.
    names = {name for top in tops for name in packages.get(top, ())}
    return ImportedCode(files, {name: importlib.metadata.version(name) for name in sorted(names)})


def _is_installed(path: Path) -> bool:
    """Whether ``path`` belongs to the interpreter, to a distribution or to repogen."""
    own = Path(__file__).resolve().parents[1]
    paths = sysconfig.get_paths()
    stdlib = {Path(paths[key]).resolve() for key in ("stdlib", "platstdlib")}
    resolved = path.resolve()
    return (
        "site-packages" in path.parts
        or "dist-packages" in path.parts
        or resolved.is_relative_to(own)
        or any(resolved.is_relative_to(place) for place in stdlib)
    )
