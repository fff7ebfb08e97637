"""Detects what a forward changes outside of its module: global variables, classes, default arguments and closures."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from types import CellType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from repogen.source.torch.state import PLAIN, copy_of, replace_contents, same_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_MAX_ENTRIES, _MAX_VALUES = 10_000, 10_000_000
"""Containers with more entries, and values with more numbers, are not copied."""
_CONTAINERS = (dict, list, deque)
_KEPT = (*PLAIN, *_CONTAINERS, torch.Tensor)


@dataclass(frozen=True)
class _Place:
    """Where a value is.

    Attributes:
        owner: A mapping of names, a class, the cell of a closure, or the value itself: a default argument.
        key: The name of the value in a mapping or a class.
    """

    owner: Any
    key: str = ""

    def read(self) -> object:
        """Return the value."""
        if isinstance(self.owner, CellType):
            return self.owner.cell_contents
        if not self.key:
            return self.owner
        return vars(self.owner)[self.key] if isinstance(self.owner, type) else self.owner[self.key]

    def write(self, value: Any) -> None:  # noqa: ANN401
        """Replace the value; a container keeps its identity, and so does a default argument."""
        if replace_contents(self.read(), value):
            return
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, type):
            setattr(self.owner, self.key, value)
        elif self.key:
            self.owner[self.key] = value
        else:
            self.owner.detach().copy_(value)

    def remove(self) -> None:
        """Remove the value, if it has a name."""
        if isinstance(self.owner, type):
            delattr(self.owner, self.key)
        elif self.key:
            del self.owner[self.key]


class Surroundings:
    """The values outside of a module that its forward may change: in the files of its classes, and next to the spec.

    Args:
        module: The module.
        root: Directory of the spec.
    """

    def __init__(self, module: torch.nn.Module, root: Path) -> None:
        """Find the values, and copy them."""
        self._files = dict(_files(module, root))
        self._places = self._find()
        self._before = self._copies()

    def changed(self) -> list[str]:
        """Return the values that differ from the copies, or are new."""
        earlier, self._places = self._places, self._find()
        before = self._before
        return [
            name
            for name, value in self._copies().items()
            if (not same_values(before[name], value) if name in before else name not in earlier)
        ]

    def restore(self, names: list[str]) -> None:
        """Write the copies back, and remove what is new."""
        for name in names:
            if name in self._before:
                self._places[name].write(copy_of(self._before[name]))
            else:
                self._places.pop(name).remove()

    def _find(self) -> dict[str, _Place]:
        finder = _Finder(frozenset(self._files))
        places = (finder.among(name, values, values) for name, values in self._files.items())
        return {path: place for each in places for path, place in each}

    def _copies(self) -> dict[str, object]:
        copies: dict[str, object] = {}
        for name, place in self._places.items():
            try:
                value = place.read()
                if _is_small(value):
                    copies[name] = copy_of(value)
            except Exception:  # noqa: BLE001, S112 - whatever the user's objects raise; a list may contain itself
                continue
        return copies


def _files(module: torch.nn.Module, root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and the global variables of the user's files that are loaded."""
    of_classes = {cls.__module__ for part in module.modules() for cls in type(part).__mro__}
    directory = f"{root.resolve()}/"
    for name, loaded in list(sys.modules.items()):
        path = getattr(loaded, "__file__", None)
        if not isinstance(path, str) or "site-packages" in path or name.split(".")[0] in {"torch", "repogen"}:
            continue
        if path.startswith(directory) or name in of_classes:
            yield name, vars(loaded)


class _Finder:
    """Finds the places in the user's files.

    Args:
        files: Names of the files.
    """

    def __init__(self, files: frozenset[str]) -> None:
        """Start without places."""
        self._names = files
        self._identities: set[int] = set()

    def among(self, path: str, values: Mapping[str, Any], owner: object) -> Iterator[tuple[str, _Place]]:
        """Yield the places among named values, and those in their functions, classes and objects."""
        for key, value in list(values.items()):
            if key.startswith("__"):
                continue
            if isinstance(value, _KEPT):
                yield f"{path}.{key}", _Place(owner, key)
            elif not isinstance(value, torch.nn.Module) and id(value) not in self._identities:
                self._identities.add(id(value))
                yield from self._inside(f"{path}.{key}", value)

    def _inside(self, path: str, value: Any) -> Iterator[tuple[str, _Place]]:  # noqa: ANN401
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, _lru_cache_wrapper):
            value = value.__wrapped__
        if isinstance(value, FunctionType):
            if value.__module__ in self._names:
                yield from self._of_function(path, value)
        elif isinstance(value, type):
            if value.__module__ in self._names:
                yield from self.among(path, vars(value), value)
        elif isinstance(value, SimpleNamespace) or type(value).__module__ in self._names:
            attributes = getattr(value, "__dict__", {})
            yield from self.among(path, attributes, attributes)

    def _of_function(self, path: str, function: FunctionType) -> Iterator[tuple[str, _Place]]:
        """Yield its default arguments, the variables of the function around it, and its attributes."""
        for number, value in enumerate([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]):
            if isinstance(value, (*_CONTAINERS, torch.Tensor)):
                yield f"default argument {number + 1} of {path}", _Place(value)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:  # it is empty
                continue
            if isinstance(value, _KEPT):
                yield f"{path}.{name}", _Place(cell)
            elif isinstance(value, FunctionType) and id(value) not in self._identities:
                self._identities.add(id(value))
                yield from self._inside(path, value)
        yield from self.among(path, vars(function), vars(function))


def _is_small(value: object) -> bool:
    if isinstance(value, _CONTAINERS) and len(value) > _MAX_ENTRIES:
        return False
    leaves = tree_leaves(value)
    return sum(leaf.numel() if isinstance(leaf, torch.Tensor) else 1 for leaf in leaves) <= _MAX_VALUES
