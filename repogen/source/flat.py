"""One wrapper for every module: flat named tensors in, flat named tensors out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import torch

from repogen.errors import SourceError


class FlatModule(torch.nn.Module):
    """Calls a module with positional tensors and returns a tuple of the chosen tensors of its answer.

    Args:
        module: The user's module.
        keywords: Names of its parameters when inputs go by name; None when they go by position.
        select: Indices into the flattened outputs; None for all of them.
    """

    def __init__(
        self, module: torch.nn.Module, keywords: tuple[str, ...] | None, select: tuple[int, ...] | None
    ) -> None:
        """Keep the module as a submodule, so that its weights are exported."""
        super().__init__()
        self.module = module
        self._keywords = keywords
        self._select = select

    def named_outputs(self, *args: torch.Tensor, wanted: tuple[str, ...] = ()) -> list[tuple[str, torch.Tensor]]:
        """Return every output tensor with the name that the module gives it.

        Raises:
            SourceError: Something else is among the outputs, and ``wanted`` does not name tensors only.
        """
        return tensors_among(self._leaves(*args), wanted)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the chosen outputs."""
        # Only tensors count, as in what named_outputs returned when they were chosen.
        tensors = [leaf for _, leaf in self._leaves(*args) if isinstance(leaf, torch.Tensor)]
        chosen = tensors if self._select is None else [tensors[i] for i in self._select]
        return tuple(chosen)

    def _leaves(self, *args: torch.Tensor) -> list[tuple[str, object]]:
        if self._keywords is None:
            return flatten(self.module(*args))
        return flatten(self.module(**dict(zip(self._keywords, args, strict=True))))


def flatten(value: object, name: str = "") -> list[tuple[str, object]]:
    """Flatten a module's answer: tuples, lists, mappings and dataclasses, nested at will; None is left out."""
    if value is None:
        return []
    items = None if isinstance(value, torch.Tensor) else _children(value)
    if items is None:
        return [(name or "output", value)]
    return [pair for key, child in items for pair in flatten(child, f"{name}_{key}" if name else key)]


def tensors_among(leaves: list[tuple[str, object]], wanted: tuple[str, ...]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a flattened answer; what else is in it is passed over when ``wanted`` names tensors.

    Raises:
        SourceError: Something else is among them, and ``wanted`` is no choice of the tensors by name.
    """
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    others = [(name, leaf) for name, leaf in leaves if not isinstance(leaf, torch.Tensor)]
    names = [name for name, _ in tensors]
    chosen = bool(wanted) and set(wanted) <= set(names) and len(set(names)) == len(names)
    if others and not chosen:
        name, leaf = next((other for other in others if other[0] in wanted), others[0])
        choice = f", or choose the tensors by name: outputs: [{', '.join(names)}]" if names else ""
        raise SourceError(
            f"output {name!r} is a {type(leaf).__name__}, which no ONNX graph can return",
            f"return tensors, or tuples, lists and dicts of them{choice}",
            code="source.output-type",
        )
    return tensors


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


def bind_inputs(module: torch.nn.Module, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Decide how inputs reach ``forward``: by name (the names), or by position (None).

    By name when every input is called like a parameter; by position when none is.

    Raises:
        SourceError: Some names match and some do not, or ``forward`` takes another number of inputs.
    """
    parameters = inspect.signature(module.forward).parameters
    by_name = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    matching = [name for name in names if name in by_name]
    required = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    shown = ", ".join(parameters)
    if len(matching) == len(names):
        absent = [n for n in required if n not in names]
        if absent:
            raise SourceError(
                f"forward({shown}) also needs {', '.join(absent)}",
                "declare them under inputs:",
                code="source.inputs-missing",
            )
        return names
    if matching:
        strange = [name for name in names if name not in by_name]
        raise SourceError(
            f"inputs {', '.join(strange)} are no parameters of forward({shown}), but {', '.join(matching)} are",
            "name all inputs like forward's parameters, or none of them (then they go by position)",
            code="source.inputs-mixed",
        )
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not takes_any and not len(required) <= len(names) <= len(positional):
        raise SourceError(
            f"forward({shown}) cannot take {len(names)} inputs by position ({', '.join(names)})",
            "declare one input for each parameter, or name them like the parameters",
            code="source.inputs-count",
        )
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
