"""Detects what a forward changes in its module: buffers, parameters, and attributes, also in lists and dicts."""

from __future__ import annotations

import copy
import math
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TORCH_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
PLAIN = (bool, int, float, complex, str, type(None), torch.Size)
"""Types of values that are compared and replaced, not copied."""
_CONTAINERS = (dict, list, tuple, deque)
_OFFSET = 1000
_ABSENT = object()


@dataclass(frozen=True)
class State:
    """A snapshot of a module.

    Attributes:
        values: Path of a buffer or attribute (``encoder.step``) -> its value; tensors and containers are copies.
        sums: The sum of each parameter.
    """

    values: dict[str, object]
    sums: dict[str, float]


def state_of(module: torch.nn.Module) -> State:
    """Return a snapshot of a module and its submodules; of attributes, only numbers, text, tensors, and containers."""
    values: dict[str, object] = {}
    for path, child in module.named_modules():
        for name, value in _state_items(child):
            try:
                values[f"{path}.{name}".lstrip(".")] = copy_of(value)
            except Exception:  # noqa: BLE001, S112 - whatever the user's objects raise; a list may contain itself
                continue
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
    if isinstance(module, torch.jit.ScriptModule):
        yield from module.named_buffers(recurse=False)
    else:
        yield from module._buffers.items()  # noqa: SLF001 - named_buffers omits those that are None
        for name, value in vars(module).items():
            if name not in _TORCH_ATTRIBUTES and isinstance(value, (*PLAIN, *_CONTAINERS, torch.Tensor)):
                yield name, value


def copy_of(value: object) -> object:
    """Return a copy of a tensor, or of a container with its tensors; of any other value, the value itself."""
    return tree_map(_copy, value)


def _copy(leaf: Any) -> Any:  # noqa: ANN401 - a value of any attribute
    """Return a copy of a tensor; parameters are not copied, because their sums are compared."""
    is_copied = isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)
    return leaf.detach().clone() if is_copied else leaf


def written(before: State, after: State) -> list[str]:
    """Return the parameters that differ between two snapshots."""
    pairs = ((name, before.sums.get(name, total), total) for name, total in after.sums.items())
    return [name for name, old, new in pairs if old != new and not (math.isnan(old) and math.isnan(new))]


def changed(before: State, after: State) -> list[str]:
    """Return the buffers and attributes that differ between two snapshots, or are new."""
    return [
        path
        for path, value in after.values.items()
        if path not in before.values or not same_values(before.values[path], value)
    ]


def stored(one: State, other: State) -> list[str]:
    """Return the tensors that two snapshots after different calls have with other values, and of the same shape.

    A table that grows with the longest input has another shape, and its values do not depend on the inputs.
    """
    return [
        path
        for path, value in other.values.items()
        if any(
            isinstance(leaf, torch.Tensor)
            and isinstance(before, torch.Tensor)
            and leaf.shape == before.shape
            and not _equal_leaves(before, leaf)
            for before, leaf in _pairs(one.values.get(path), value) or ()
        )
    ]


def _pairs(first: object, second: object) -> list[tuple[object, object]] | None:
    """Return the values at the same places of two containers; None if the containers have different places."""
    (leaves, structure), (others, other_structure) = tree_flatten(first), tree_flatten(second)
    return list(zip(leaves, others, strict=True)) if structure == other_structure else None


def same_values(first: object, second: object) -> bool:
    """Return whether two values have equal numbers, text and tensors at the same places; other objects count as equal.

    >>> same_values({"mean": torch.ones(2)}, {"mean": torch.ones(2)}), same_values([1], [1, 2])
    (True, False)
    """
    pairs = _pairs(first, second)
    return pairs is not None and all(_equal_leaves(leaf, other) for leaf, other in pairs)


def _equal_leaves(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)
    if not isinstance(first, (*PLAIN, torch.Tensor)) and not isinstance(second, (*PLAIN, torch.Tensor)):
        return True  # modules, functions and other objects cannot be compared
    return type(first) is type(second) and bool(first == second)


def caches(initial: State, once: State, other: State) -> dict[str, object]:
    """Return the initial values of what calls set, if some of it depends on the size of the inputs.

    Without these values, an exporter would read a table that a call of another size has kept, as a constant. A table
    that is the same after each call stays: it may be computed in a way that cannot be exported.

    Args:
        initial: The snapshot before all calls.
        once: The snapshot after a call.
        other: The snapshot of a copy after calls of other sizes.
    """
    paths = {*changed(initial, once), *changed(initial, other)} if changed(once, other) else set()
    return {path: initial.values.get(path, _ABSENT) for path in sorted(paths)}


@contextmanager
def temporary(module: torch.nn.Module, values: Mapping[str, object]) -> Iterator[None]:
    """Set buffers and attributes within the block, without copies of tensors, which a trace would contain."""
    before: dict[str, object] = {}
    for path in values:
        owner, name = _owner(module, path)
        before[path] = _same_leaves(getattr(owner, name, _ABSENT))
    _assign_all(module, values)
    try:
        yield
    finally:
        _assign_all(module, before)


def _assign_all(module: torch.nn.Module, values: Mapping[str, object]) -> None:
    for path, value in values.items():
        owner, name = _owner(module, path)
        if value is not _ABSENT:
            _assign(module, path, _same_leaves(value))
        elif hasattr(owner, name):
            delattr(owner, name)


def _same_leaves(value: object) -> object:
    """Return a copy of a container with the same leaves."""
    return tree_map(lambda leaf: leaf, value)


def restore(module: torch.nn.Module, state: State, paths: Iterable[str]) -> None:
    """Reset buffers and attributes to a snapshot; those that are not in it are removed."""
    for path in paths:
        if path not in state.values:
            owner, name = _owner(module, path)
            delattr(owner, name)
        else:
            _assign(module, path, copy_of(state.values[path]))


def disturb(module: torch.nn.Module, paths: Iterable[str]) -> None:
    """Change the values of numbers and tensors."""
    for path in paths:
        owner, name = _owner(module, path)
        _assign(module, path, tree_map(_disturbed, getattr(owner, name)))


def _disturbed(leaf: Any) -> Any:  # noqa: ANN401
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool:
        return leaf.logical_not()
    is_number = isinstance(leaf, (int, float, complex, torch.Tensor)) and not isinstance(leaf, torch.nn.Parameter)
    return leaf + _OFFSET if is_number else leaf


def _assign(module: torch.nn.Module, path: str, value: Any) -> None:  # noqa: ANN401
    """Set a buffer or an attribute; a container keeps its identity, because hooks and other modules may share it."""
    owner, name = _owner(module, path)
    if not replace_contents(getattr(owner, name, None), value):
        setattr(owner, name, value)


def replace_contents(current: object, value: object) -> bool:
    """Give a container the contents of another one of its kind; return whether both are containers."""
    if isinstance(current, dict) and isinstance(value, dict):
        current.clear()
        current.update(value)
    elif isinstance(current, (list, deque)) and isinstance(value, (list, deque)):
        current.clear()
        current.extend(value)
    else:
        return False
    return True


def _owner(module: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    parent, _, name = path.rpartition(".")
    return module.get_submodule(parent), name
