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

    def named_outputs(self, *args: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Return every output tensor with the name that the module gives it."""
        if self._keywords is None:
            answer = self.module(*args)
        else:
            answer = self.module(**dict(zip(self._keywords, args, strict=True)))
        return flatten(answer)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the chosen outputs."""
        tensors = [tensor for _, tensor in self.named_outputs(*args)]
        chosen = tensors if self._select is None else [tensors[i] for i in self._select]
        return tuple(chosen)


def flatten(value: object, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """Flatten a module's answer: tensors, tuples, lists, mappings, dataclasses and None, nested at will.

    Raises:
        SourceError: Something else is among it.
    """
    if isinstance(value, torch.Tensor):
        return [(name or "output", value)]
    if value is None:
        return []
    items = _children(value)
    if items is None:
        raise SourceError(
            f"output {name or '(whole)'} is a {type(value).__name__}, which no ONNX graph can return",
            "return tensors, or tuples, lists and dicts of them",
            code="source.output-type",
        )
    return [pair for key, child in items for pair in flatten(child, f"{name}_{key}" if name else key)]


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
