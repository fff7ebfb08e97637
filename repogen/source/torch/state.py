"""What a forward leaves behind in its module: buffers, parameters, and plain attributes."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_TORCH = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, type(None))
_FAR = 1000


@dataclass(frozen=True)
class State:
    """What a module holds at one moment.

    Attributes:
        values: Path of a buffer or attribute (``encoder.step``) -> its value; tensors are copies.
        sums: The sum of each parameter.
    """

    values: dict[str, object]
    sums: dict[str, float]


def state_of(module: torch.nn.Module) -> State:
    """Return the state of a module and all below it; of its attributes, numbers, text and tensors count."""
    values: dict[str, object] = {}
    for path, child in module.named_modules():
        for name, value in _held(child):
            kept = value.detach().clone() if isinstance(value, torch.Tensor) else value
            values[f"{path}.{name}".lstrip(".")] = kept
    # A sum finds what a write through .data hides from the version.
    sums = {n: float(p.detach().sum(dtype=torch.float64)) for n, p in module.named_parameters() if not p.is_complex()}
    return State(values, sums)


def twin_of(module: torch.nn.Module) -> torch.nn.Module | None:
    """Return a copy that shares the parameters; None of a module that can't be copied."""
    if isinstance(module, torch.jit.ScriptModule):
        return None
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # noqa: BLE001 - whatever the user's objects raise
        return None


def _held(module: torch.nn.Module) -> Iterator[tuple[str, object]]:
    yield from ((name, buffer) for name, buffer in module.named_buffers(recurse=False))
    if not isinstance(module, torch.jit.ScriptModule):
        for name, value in vars(module).items():
            if name not in _OF_TORCH and isinstance(value, (*_PLAIN, torch.Tensor)):
                yield name, value


def written(before: State, after: State) -> list[str]:
    """Return the parameters that were written to in between."""
    pairs = ((name, before.sums.get(name, total), total) for name, total in after.sums.items())
    return [name for name, was, now in pairs if was != now and not (math.isnan(was) and math.isnan(now))]


def changed(before: State, after: State) -> list[str]:
    """Return the buffers and attributes that are not what they were; also those that are new."""
    return [
        path
        for path, value in after.values.items()
        if path not in before.values or not _same(before.values[path], value)
    ]


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def restore(module: torch.nn.Module, state: State, paths: Iterable[str]) -> None:
    """Give buffers and attributes the values of ``state`` again; what was not there then is removed."""
    for path in paths:
        owner, name = _place(module, path)
        if path not in state.values:
            delattr(owner, name)
        else:
            value = state.values[path]
            setattr(owner, name, value.clone() if isinstance(value, torch.Tensor) else value)


def disturb(module: torch.nn.Module, paths: Iterable[str]) -> None:
    """Give numbers and tensors other values than they have."""
    for path in paths:
        owner, name = _place(module, path)
        value = getattr(owner, name)
        if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
            setattr(owner, name, not value if isinstance(value, bool) else value.logical_not())
        elif isinstance(value, (int, float, complex, torch.Tensor)):
            setattr(owner, name, value + _FAR)


def _place(module: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    parent, _, name = path.rpartition(".")
    return module.get_submodule(parent), name
