"""Wraps a module with nested inputs and outputs as one with flat tensors, and names its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import torch

from repogen.errors import SourceError
from repogen.source.torch.state import Caches, temporary

if TYPE_CHECKING:
    from repogen.source.common.call import Call

_CONSTANTS = (bool, int, float, complex, str)
_MAX_LISTED = 3


class FlatModule(torch.nn.Module):
    """Calls a module with positional tensors and returns a tuple of the chosen tensors of its result.

    Args:
        module: The user's module.
        call: Maps the tensors to its arguments.
        select: Indices into the flattened tensors of its result; None for all of them.
        names: The names of all these tensors at the example size, if ``select`` is given.
        caches: Initial values of what the module sets for the size of its inputs. An export starts with them;
            torch.export only if none is a buffer, which it would see as an input that changes.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        call: Call,
        select: tuple[int, ...] | None = None,
        names: tuple[str, ...] = (),
        caches: Caches | None = None,
    ) -> None:
        """Register the module as a submodule, so that its weights are exported."""
        super().__init__()
        self.module = module
        self.call = call
        self._select = select
        self._names = names
        self._caches = caches or Caches()

    def of(self, module: torch.nn.Module) -> FlatModule:
        """Return a wrapper of another module that is called in the same way."""
        return FlatModule(module, self.call, self._select, self._names, self._caches)

    def leaves(self, *args: torch.Tensor) -> list[tuple[str, object]]:
        """Return every leaf of the module's result with its name."""
        positional, keywords = self.call.fill(args)
        return flatten(self.module(*positional, **keywords))

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the chosen outputs."""
        # The indices count tensors only, as in tensors_among.
        is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call] # as torch declares it
        is_exported = is_traced or (torch.compiler.is_exporting() and not self._caches.has_buffers)
        with temporary(self._caches) if self._caches.owners and is_exported else nullcontext():
            leaves = self.leaves(*args)
        tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
        if self._select is None:
            return tuple(leaf for _, leaf in tensors)
        names = tuple(name for name, _ in tensors)
        selects_all = len(self._select) == len(self._names)
        if (selects_all and len(names) != len(self._names)) or any(
            names[i : i + 1] != self._names[i : i + 1] for i in self._select
        ):
            raise SourceError(
                f"the model returns {_listing(names)} at this size, and {_listing(self._names)} at the example size",
                "return the same outputs at every size: combine them with torch.stack",
                code="source.outputs",
            )
        return tuple(tensors[i][1] for i in self._select)


def _listing(names: tuple[str, ...]) -> str:
    more = f", … ({len(names)} outputs)" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more or "no tensor"


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, for example ``float32``."""
    return str(dtype).removeprefix("torch.")


def flatten(value: object, name: str = "") -> list[tuple[str, object]]:
    """Flatten a module's result: nested tuples, lists, mappings and dataclasses; None is omitted."""
    if value is None:
        return []
    items = None if isinstance(value, torch.Tensor) else _children(value)
    if items is None:
        return [(name or "output", value)]
    return [pair for key, child in items for pair in flatten(child, f"{name}_{key}" if name else key)]


def tensors_among(
    leaves: list[tuple[str, object]], names: tuple[str, ...]
) -> tuple[list[tuple[str, torch.Tensor]], tuple[str, ...]]:
    """Return the tensors of a flattened result, and notes about omitted values.

    Numbers and strings are omitted, because a graph cannot return them. Other values are omitted only if ``names``
    selects tensors by name.

    Args:
        leaves: The flattened result.
        names: Output names in the spec; may be empty.

    Raises:
        SourceError: The result has other values, or ``names`` has the name of a value that is not a tensor.
    """
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    constants = [(name, leaf) for name, leaf in leaves if isinstance(leaf, _CONSTANTS)]
    others = [(name, leaf) for name, leaf in leaves if not isinstance(leaf, (torch.Tensor, *_CONSTANTS))]
    tensor_names = [name for name, _ in tensors]
    selected = bool(names) and set(names) <= set(tensor_names) and len(set(tensor_names)) == len(tensor_names)
    requested_leaves = [
        (name, leaf) for name, leaf in (*others, *constants) if name in names and name not in tensor_names
    ]
    if (others and not selected) or requested_leaves:
        name, leaf = (requested_leaves or others)[0]
        choice = f", or select tensors by name: outputs: [{', '.join(tensor_names)}]" if tensor_names else ""
        raise SourceError(
            f"output {name!r} is of type {type(leaf).__name__}, which an ONNX graph cannot return",
            f"return tensors, or tuples, lists and dicts of them{choice}",
            code="source.output-type",
        )
    left_out = tuple(
        f"output {name!r} was omitted: it is the Python {type(leaf).__name__} {leaf!r}, which a graph cannot return"
        for name, leaf in constants
        if not selected
    )
    return tensors, left_out


def _children(value: object) -> list[tuple[str, object]] | None:
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    field_names = getattr(value, "_fields", None)
    if isinstance(value, (tuple, list)):
        keys = field_names if isinstance(field_names, tuple) else [f"output_{i}" for i in range(len(value))]
        return list(zip(keys, value, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return None


def choose_outputs(
    tensors: list[tuple[str, torch.Tensor]], names: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Select outputs by the module's own names, or rename all of them in order.

    Args:
        tensors: The tensors that the module returns, with the module's own names.
        names: Output names in the spec; may be empty.

    Returns:
        Indices into ``tensors``, and the output names.

    Raises:
        SourceError: ``names`` is neither a selection of the module's names nor one name per tensor.
    """
    tensor_names = [name for name, _ in tensors]
    if not tensor_names:
        raise SourceError("the model returns no tensor", "return at least one from forward", code="source.outputs")
    if not names and len(set(tensor_names)) == len(tensor_names):
        return tuple(range(len(tensors))), tuple(tensor_names)
    if len(set(tensor_names)) == len(tensor_names) and set(names) <= set(tensor_names):
        return tuple(tensor_names.index(name) for name in names), names
    if len(names) == len(tensors):
        return tuple(range(len(tensors))), names
    returned = "; ".join(f"{name}, shape {list(tensor.shape)}" for name, tensor in tensors)
    if not names:
        raise SourceError(
            f"the model returns outputs with the same name: {returned}",
            "set outputs: in the spec to one name for each of them, in this order",
            code="source.outputs",
        )
    surplus = len(names) - len(tensors)
    raise SourceError(
        f"the spec names {len(names)} {_outputs(names)} ({', '.join(names)}), but the model returns {len(tensors)}: "
        f"{returned}",
        f"write a name for each of them: outputs: [{', '.join(names[:-surplus])}]; or return more tensors from forward"
        if surplus > 0
        else "write a name for each of them, in order; or select some of these names",
        code="source.outputs",
        where="outputs",
    )


def _outputs(names: tuple[str, ...]) -> str:
    return "output" if len(names) == 1 else "outputs"
