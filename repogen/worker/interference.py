"""What the model's code changed in the worker's process so that repogen's own code can fail in it."""

from __future__ import annotations

import builtins
import io
import os
import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMITS = {
    "the number of open files": resource.RLIMIT_NOFILE,
    "the size of files": resource.RLIMIT_FSIZE,
    "memory": resource.RLIMIT_AS,
}


class ProcessState:
    """The state of the process before the model's code is imported."""

    def __init__(self) -> None:
        """Record it."""
        self._builtins = {module: dict(vars(module)) for module in (builtins, io, os)}
        self._path = list(sys.path)
        self._finders = [*sys.meta_path, *sys.path_hooks]
        self._recursion_limit = sys.getrecursionlimit()
        self._limits = {what: resource.getrlimit(limit)[0] for what, limit in _LIMITS.items()}

    def changes(self, error: BaseException) -> list[str]:
        """Return what the model's code changed since then and can have caused an error, as ends of sentences."""
        return [*self._replaced(), *self._imports(error), *self._limited()]

    def _replaced(self) -> Iterator[str]:
        for module, names in self._builtins.items():
            changed = [name for name, value in names.items() if vars(module).get(name) is not value and name != "_"]
            yield from (f"replaced {module.__name__}.{name}" for name in changed[:3])

    def _imports(self, error: BaseException) -> Iterator[str]:
        if not set(self._path) <= set(sys.path):
            yield "removed entries of sys.path"
        if any(finder not in [*sys.meta_path, *sys.path_hooks] for finder in self._finders):
            yield "removed import hooks"
        if isinstance(error, ImportError) and error.name in sys.modules and sys.modules[error.name] is None:
            yield f"set sys.modules[{error.name!r}] to None"

    def _limited(self) -> Iterator[str]:
        if sys.getrecursionlimit() < self._recursion_limit:
            yield "lowered the recursion limit"
        for what, before in self._limits.items():
            if resource.getrlimit(_LIMITS[what])[0] != before:
                yield f"limited {what}"
        try:
            os.getcwd()  # noqa: PTH109 - pathlib may be replaced
        except OSError:
            yield "removed the working directory"
