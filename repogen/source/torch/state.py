"""Detects what a forward changes in its module: buffers, parameters, and plain attributes."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TORCH_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, type(None))
_OFFSET = 1000


@dataclass(frozen=True)
class State:
    """A snapshot of a module.

    Attributes:
        values: Path of a buffer or attribute (``encoder.step``) -> its value; tensors are copies.
        sums: The sum of each parameter.
    """

    values: dict[str, object]
    sums: dict[str, float]


def state_of(module: torch.nn.Module) -> State:
    """Return a snapshot of a module and its submodules; of attributes, only numbers, text and tensors."""
    values: dict[str, object] = {}
    for path, child in module.named_modules():
        for name, value in _state_items(child):
            copy = value.detach().clone() if isinstance(value, torch.Tensor) else value
            values[f"{path}.{name}".lstrip(".")] = copy
    # Sums also detect writes through .data, which do not change the version counter.
    sums = {n: float(p.detach().sum(dtype=torch.float64)) for n, p in module.named_parameters() if not p.is_complex()}
    return State(values, sums)


def twin_of(module: torch.nn.Module) -> torch.nn.Module | None:
    """Return a copy that shares the parameters; None if the module cannot be copied."""
    if isinstance(module, torch.jit.ScriptModule):
        return None
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # noqa: BLE001 - whatever the user's objects raise
        return None


def _state_items(module: torch.nn.Module) -> Iterator[tuple[str, object]]:
    yield from ((name, buffer) for name, buffer in module.named_buffers(recurse=False))
    if not isinstance(module, torch.jit.ScriptModule):
        for name, value in vars(module).items():
            if name not in _TORCH_ATTRIBUTES and isinstance(value, (*_PLAIN, torch.Tensor)):
                yield name, value


def written(before: State, after: State) -> list[str]:
    """Return the parameters that differ between two snapshots."""
    pairs = ((name, before.sums.get(name, total), total) for name, total in after.sums.items())
    return [name for name, old, new in pairs if old != new and not (math.isnan(old) and math.isnan(new))]


def changed(before: State, after: State) -> list[str]:
    """Return the buffers and attributes that differ between two snapshots, or are new."""
    return [
        path
        for path, value in after.values.items()
        if path not in before.values or not _equal(before.values[path], value)
    ]


def stored(one: State, other: State) -> list[str]:
    """Return the tensors that two snapshots after different calls have with other values, and of the same shape.

    A table that grows with the longest input has another shape, and its values do not depend on the inputs.
    """
    pairs = ((path, value, one.values.get(path)) for path, value in other.values.items())
    return [
        path
        for path, value, before in pairs
        if isinstance(value, torch.Tensor)
        and isinstance(before, torch.Tensor)
        and value.shape == before.shape
        and not _equal(before, value)
    ]


def _equal(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)
    return type(first) is type(second) and bool(first == second)


def restore(module: torch.nn.Module, state: State, paths: Iterable[str]) -> None:
    """Reset buffers and attributes to a snapshot; those that are not in it are removed."""
    for path in paths:
        owner, name = _owner(module, path)
        if path not in state.values:
            delattr(owner, name)
        else:
            value = state.values[path]
            setattr(owner, name, value.clone() if isinstance(value, torch.Tensor) else value)


def disturb(module: torch.nn.Module, paths: Iterable[str]) -> None:
    """Change the values of numbers and tensors."""
    for path in paths:
        owner, name = _owner(module, path)
        value = getattr(owner, name)
        if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
            setattr(owner, name, not value if isinstance(value, bool) else value.logical_not())
        elif isinstance(value, (int, float, complex, torch.Tensor)):
            setattr(owner, name, value + _OFFSET)


def _owner(module: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    parent, _, name = path.rpartition(".")
    return module.get_submodule(parent), name
