"""One wrapper for every module: flat named tensors in, flat named tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import torch

from repogen.errors import SourceError

if TYPE_CHECKING:
    from repogen.source.common.call import Call

_CONSTANTS = (bool, int, float, complex, str)


class FlatModule(torch.nn.Module):
    """Calls a module with positional tensors and returns a tuple of the chosen tensors of its answer.

    Args:
        module: The user's module.
        call: Where the tensors go among its arguments.
        select: Indices into the flattened tensors of its answer; None for all of them.
    """

    def __init__(self, module: torch.nn.Module, call: Call, select: tuple[int, ...] | None = None) -> None:
        """Keep the module as a submodule, so that its weights are exported."""
        super().__init__()
        self.module = module
        self.call = call
        self._select = select

    def of(self, module: torch.nn.Module) -> FlatModule:
        """Return another module, called in the same way."""
        return FlatModule(module, self.call, self._select)

    def leaves(self, *args: torch.Tensor) -> list[tuple[str, object]]:
        """Return everything in the module's answer, each with the name that the module gives it."""
        positional, named = self.call.fill(args)
        return flatten(self.module(*positional, **named))

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the chosen outputs."""
        # Only tensors count, as in what tensors_among returned when they were chosen.
        tensors = [leaf for _, leaf in self.leaves(*args) if isinstance(leaf, torch.Tensor)]
        if self._select is not None and tensors and max(self._select, default=0) >= len(tensors):
            raise SourceError(
                f"the model returned {len(tensors)} tensors here, and more at the example size",
                "return as many at every size: torch.stack them into one, or fix the dim that they are counted by",
                code="source.outputs",
            )
        chosen = tensors if self._select is None else [tensors[i] for i in self._select]
        return tuple(chosen)


def flatten(value: object, name: str = "") -> list[tuple[str, object]]:
    """Flatten a module's answer: tuples, lists, mappings and dataclasses, nested at will; None is left out."""
    if value is None:
        return []
    items = None if isinstance(value, torch.Tensor) else _children(value)
    if items is None:
        return [(name or "output", value)]
    return [pair for key, child in items for pair in flatten(child, f"{name}_{key}" if name else key)]


def tensors_among(
    leaves: list[tuple[str, object]], wanted: tuple[str, ...]
) -> tuple[list[tuple[str, torch.Tensor]], tuple[str, ...]]:
    """Return the tensors of a flattened answer, and what a person should know of the rest.

    Numbers and strings are left out: a graph returns none. What else is in it is passed over when ``wanted`` chooses
    the tensors by name.

    Raises:
        SourceError: Something else is among them, and ``wanted`` is no choice of the tensors by name.
    """
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    constants = [(name, leaf) for name, leaf in leaves if isinstance(leaf, _CONSTANTS)]
    others = [(name, leaf) for name, leaf in leaves if not isinstance(leaf, (torch.Tensor, *_CONSTANTS))]
    names = [name for name, _ in tensors]
    chosen = bool(wanted) and set(wanted) <= set(names) and len(set(names)) == len(names)
    asked = [(name, leaf) for name, leaf in (*others, *constants) if name in wanted and name not in names]
    if (others and not chosen) or asked:
        name, leaf = (asked or others)[0]
        choice = f", or choose the tensors by name: outputs: [{', '.join(names)}]" if names else ""
        raise SourceError(
            f"output {name!r} is a {type(leaf).__name__}, which no ONNX graph can return",
            f"return tensors, or tuples, lists and dicts of them{choice}",
            code="source.output-type",
        )
    left_out = tuple(
        f"output {name!r} is the Python {type(leaf).__name__} {leaf!r}, which a graph can't return: it was left out"
        for name, leaf in constants
        if not chosen
    )
    return tensors, left_out


def _children(value: object) -> list[tuple[str, object]] | None:
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    named = getattr(value, "_fields", None)
    if isinstance(value, (tuple, list)):
        keys = named if isinstance(named, tuple) else [f"output_{i}" for i in range(len(value))]
        return list(zip(keys, value, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return None


def choose_outputs(
    found: list[tuple[str, torch.Tensor]], wanted: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Choose outputs by the names that the module gives them, or else rename all of them in order.

    Returns:
        Indices into ``found``, and the output names.

    Raises:
        SourceError: The names are neither a choice of the module's nor as many as its outputs.
    """
    names = [name for name, _ in found]
    if not names:
        raise SourceError("the model returns no tensor", "return at least one from forward", code="source.outputs")
    if not wanted and len(set(names)) == len(names):
        return tuple(range(len(found))), tuple(names)
    if len(set(names)) == len(names) and set(wanted) <= set(names):
        return tuple(names.index(name) for name in wanted), wanted
    if len(wanted) == len(found):
        return tuple(range(len(found))), wanted
    shown = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in found)
    raise SourceError(
        f"outputs: names {', '.join(wanted) or 'nothing'}, but the model returns {shown}",
        "list names out of those, or one name for each of them in order",
        code="source.outputs",
    )
