"""Digest of the repogen code that a build runs; a version that other code built is not up to date.

The files are derived from the code: starting at ``repogen.build.pipeline``, every import is followed, also in
functions, and so are the other ways in which repogen starts its own code: module names in strings, as in ``python -m
repogen.worker.supervisor``, files next to a module (``with_name("supervisor.py")``), and entry points. Files of
``repogen/data`` count if a followed module names them. Reports and the command line do not change what is published and
are left out.

The source is scanned with regular expressions, because parsing it takes ten times as long and an unchanged build has to
compute the digest. The tests compare the imports with those that ``ast`` finds.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.plugins import DISTRIBUTION
from repogen.repository.digest import sha256_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PACKAGE = Path(__file__).resolve().parents[1]
ENTRY_MODULES = ("repogen.build.pipeline",)
_EXCLUDED = ("cli", "reporting")
# Gates decide about promotion, not about what is published. The spec loads only their options.
_EXCLUDED_GROUPS = frozenset({"repogen.gates"})
# Lists every group of entry points by name, and loads none of them.
_PLUGINS = "plugins.py"

# Each pattern begins with a literal, which `re` searches for several times as fast.
_TYPE_CHECKING = re.compile(r"\nif TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+")
_NAME = re.compile(r"repogen(?:\.\w+)*")
_IMPORTED = re.compile(r" import (\([^)]*\)|.*)")
_SIBLING = re.compile(r"""\.with_name\(["']([\w.]+)["']\)""")


@cache
def code_digest() -> str:
    """Return one digest of the code that a build runs, equal for a wheel and a checkout of the same source."""
    return digest_of(SourceTree(PACKAGE, own_entry_points()).reachable(ENTRY_MODULES))


def own_entry_points() -> dict[str, list[str]]:
    """Return the modules of repogen's own entry points, by group; empty if repogen is not installed."""
    groups: dict[str, list[str]] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for entry in importlib.metadata.distribution(DISTRIBUTION).entry_points:
            groups.setdefault(entry.group, []).append(entry.module)
    return groups


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return one digest of files by path."""
    return sha256_bytes("\n".join(f"{path} {sha256_bytes(files[path])}" for path in sorted(files)).encode())


@dataclass(frozen=True)
class SourceTree:
    """The source of the package ``repogen`` in a directory.

    Attributes:
        directory: Directory of the package.
        entry_points: Modules of repogen's own entry points, by group.
    """

    directory: Path
    entry_points: Mapping[str, Sequence[str]]

    def reachable(self, modules: Iterable[str]) -> dict[str, bytes]:
        """Return the files that ``modules`` can run or read, as bytes by path relative to the package."""
        files: dict[str, bytes] = {}
        queue = [self._paths[module] for module in modules]
        while queue:
            path = queue.pop()
            if path in files or path.partition("/")[0] in _EXCLUDED:
                continue
            files[path] = (self.directory / path).read_bytes()
            if path.endswith(".py"):
                queue += self._references(path, files[path].decode())
        return files

    def imports(self, text: str) -> set[str]:
        """Return the modules of repogen that a module's source imports, without those for annotations only."""
        text = _TYPE_CHECKING.sub("\n", text)
        modules = set()
        for match in _NAME.finditer(text):
            before = text[max(0, match.start() - 7) : match.start()]
            if before.endswith("import "):
                modules.add(match[0])
            elif before.endswith("from ") and (names := _IMPORTED.match(text, match.end())):
                modules |= {match[0], *(f"{match[0]}.{name}" for name in re.findall(r"\w+", names[1]))}
        return modules & self._paths.keys()

    def _references(self, path: str, text: str) -> set[str]:
        """Return the files that a module imports, starts or reads."""
        modules = self.imports(text)
        if path != _PLUGINS:
            modules |= self._named_modules(text)
        files = {self._paths[module] for name in modules for module in _with_packages(name)}
        folder = path.rpartition("/")[0]
        for name in _SIBLING.findall(text):
            sibling = f"{folder}/{name}"
            files |= {file for file in self._paths.values() if file == sibling or file.startswith(f"{sibling}/")}
        return files | {f"data/{name}" for name in self._data if name in text}

    def _named_modules(self, text: str) -> set[str]:
        """Return the modules that a module names in strings, and those of the groups of entry points that it names."""
        modules: set[str] = set()
        for match in _NAME.finditer(text):
            if not match.start() or text[match.start() - 1] not in "\"'":
                continue
            if text.startswith(".{", match.end()):  # the rest of the name is computed
                modules |= {module for module in self._paths if module.startswith(f"{match[0]}.")}
            modules.add(match[0])
            if match[0] not in _EXCLUDED_GROUPS:
                modules |= set(self.entry_points.get(match[0], ()))
        return modules & self._paths.keys()

    @cached_property
    def _data(self) -> list[str]:
        """Names of the files in ``repogen/data``."""
        return os.listdir(self.directory / "data")  # noqa: PTH208 - names only

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Path of every module, relative to the package, by the module's name."""
        root = str(self.directory)
        paths = {}
        for folder, _, names in os.walk(root):
            inside = folder[len(root) :].replace(os.sep, "/")
            for name in names:
                if name.endswith(".py"):
                    module = f"repogen{inside}/{name[:-3]}".removesuffix("/__init__").replace("/", ".")
                    paths[module] = f"{inside}/{name}".removeprefix("/")
        return paths


def _with_packages(module: str) -> Iterator[str]:
    """Yield a module and its packages, except the root package, which offers everything."""
    while "." in module:
        yield module
        module = module.rpartition(".")[0]
