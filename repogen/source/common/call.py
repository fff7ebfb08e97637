"""Maps flat named tensors to the arguments of a forward, which may be nested and contain constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, TypeAlias

from repogen.errors import SourceError

Parameters: TypeAlias = "Mapping[str, inspect.Parameter]"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Placeholder:
    """Stands for the input tensor with this index."""

    index: int


@dataclass(frozen=True)
class Call:
    """Arguments of a forward: a ``Placeholder`` for each tensor; every other value is a constant.

    Attributes:
        args: Positional arguments, possibly nested.
        kwargs: Keyword arguments, possibly nested.
    """

    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def fill(self, tensors: tuple[object, ...]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return positional and keyword arguments with each placeholder replaced by its tensor."""
        return (
            tuple(_fill(value, tensors) for value in self.args),
            {name: _fill(value, tensors) for name, value in self.kwargs.items()},
        )

    def reorder(self, positions: list[int]) -> Call:
        """Return a call whose n-th placeholder gets the tensor at ``positions[n]``."""
        return Call(*self.fill(tuple(Placeholder(position) for position in positions)))


@dataclass(frozen=True)
class CapturedCall:
    """A call derived from example data.

    Attributes:
        call: The arguments, with placeholders for the tensors.
        tensors: The tensors or arrays by input name, in the order of the placeholders.
        constants: ``name=value`` of each constant that is not None.
    """

    call: Call
    tensors: dict[str, object]
    constants: tuple[str, ...]


def _fill(value: object, tensors: tuple[object, ...]) -> object:
    if isinstance(value, Placeholder):
        return tensors[value.index]
    return _map_children(value, lambda _, child: _fill(child, tensors))


def _map_children(value: object, change: Callable[[str, object], object]) -> object:
    """Return a copy of a container with each child changed; return any other value unchanged."""
    if isinstance(value, Mapping):
        return {key: change(str(key), child) for key, child in value.items()}
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", None)
        keys = names if isinstance(names, tuple) else [str(n) for n in range(len(value))]
        children = [change(key, child) for key, child in zip(keys, value, strict=True)]
        container: Any = type(value)
        return container(*children) if isinstance(names, tuple) else container(children)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: change(field.name, getattr(value, field.name)) for field in fields(value) if field.init}
        return replace(value, **changes)
    return value


def named_call(parameters: Parameters, names: tuple[str, ...]) -> Call:
    """Return the call for declared inputs: by name if forward accepts every name, otherwise by position.

    Raises:
        SourceError: Only some names are parameters, or the forward accepts a different number of inputs.
    """
    by_name = {n for n, p in parameters.items() if p.kind in _BY_NAME}
    placeholders = tuple(Placeholder(index) for index in range(len(names)))
    matching = [name for name in names if name in by_name]
    required = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    signature = f"forward({', '.join(parameters)})"
    # forward(**batch) accepts any name; next to named parameters, an unknown name is more likely a mistake.
    only_keywords = _accepts_any_name(parameters) and len(parameters) == 1
    if len(matching) == len(names) or only_keywords:
        if missing_names := [n for n in required if n not in names]:
            raise SourceError(
                f"inputs: does not declare {', '.join(missing_names)}, which {signature} requires",
                "declare each required parameter under inputs:",
                code="source.inputs-missing",
            )
        return Call((), dict(zip(names, placeholders, strict=True)))
    if matching:
        unknown = [name for name in names if name not in by_name]
        unused = sorted(by_name.difference(names))
        noun = "parameter" if len(unknown) == 1 else "parameters"
        raise SourceError(
            f"{signature} has no {noun} {', '.join(_with_suggestion(name, unused) for name in unknown)}",
            "use the names of forward's parameters for all inputs, or for none (they are then passed by position)",
            code="source.inputs-mixed",
        )
    positional = [p for p in parameters.values() if p.kind in _BY_POSITION]
    if not _accepts_any_count(parameters) and not len(required) <= len(names) <= len(positional):
        hint = "declare one input per parameter, or use the names of the parameters"
        if len(required) < len(names) and required:
            hint += (
                f"; if {required[0]} is a dict or a list of tensors, examples: models.py:FUNCTION shows its structure: "
                f"FUNCTION(batch) returns {{{required[0]!r}: {{{names[0]!r}: …}}}}"
            )
        raise SourceError(
            f"{signature} does not accept {len(names)} inputs by position ({', '.join(names)})",
            hint,
            code="source.inputs-count",
        )
    return Call(placeholders, {})


def _with_suggestion(name: str, unused: list[str]) -> str:
    """Return a name in quotes, with the similar one of the unused parameters if there is one."""
    similar = get_close_matches(name, unused, n=1)
    return f"{name!r} (did you mean {similar[0]!r}?)" if similar else repr(name)


def _accepts_any_count(parameters: Parameters) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in parameters.values())


def _accepts_any_name(parameters: Parameters) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def capture_call(
    examples: object, parameters: Parameters, is_tensor: Callable[[object], bool], reference: str
) -> CapturedCall:
    """Derive a call from example data.

    Args:
        examples: A tensor, a tuple of arguments, a dict of keyword arguments, or ``(args, kwargs)``; possibly nested.
        parameters: The parameters of the forward.
        is_tensor: Returns whether a value is a tensor or array.
        reference: The callable that returned the data, for messages.

    Raises:
        SourceError: A value is neither a tensor nor a constant, or there is no tensor.
    """
    args, kwargs = _split(examples, parameters, is_tensor)
    tensors: dict[str, object] = {}
    constants: list[str] = []

    def capture(name: str, value: object) -> object:
        if is_tensor(value):
            placeholder = Placeholder(len(tensors))
            tensors[_unique(name, tensors)] = value
            return placeholder
        if isinstance(value, _CONSTANTS):
            if value is not None:
                constants.append(f"{name}={value!r}")
            return value
        if not isinstance(value, (Mapping, tuple, list)) and not is_dataclass(value):
            raise SourceError(
                f"{reference!r} returned a value of type {type(value).__name__} for {name}",
                "return tensors or arrays, numbers, and tuples, lists and dicts of them",
                code="source.examples-type",
                where=reference,
            )
        return _map_children(value, lambda key, child: capture(f"{name}_{key}", child))

    names = _positional_names(parameters, len(args))
    call = Call(
        tuple(capture(name, value) for name, value in zip(names, args, strict=True)),
        {name: capture(name, value) for name, value in kwargs.items()},
    )
    if not tensors:
        raise SourceError(
            f"{reference!r} returned a value of type {type(examples).__name__} that contains no tensor",
            "return a tensor, a tuple of them, a dict of input name -> tensor, or (args, kwargs)",
            code="source.examples-type",
            where=reference,
        )
    return CapturedCall(call, tensors, tuple(constants))


def _split(
    examples: object, parameters: Parameters, is_tensor: Callable[[object], bool]
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Return positional and keyword arguments."""
    if is_tensor(examples) and not isinstance(examples, list):
        return (examples,), {}
    if isinstance(examples, Mapping):
        return _split_mapping(examples, parameters)
    if not isinstance(examples, (tuple, list)) or hasattr(examples, "_fields"):
        return (examples,), {}
    pair = 2
    if len(examples) == pair and isinstance(examples[0], (tuple, list)) and isinstance(examples[1], dict):
        args, kwargs = examples
        if _accepts_any_name(parameters) or all(key in parameters for key in kwargs):
            return tuple(args), kwargs
    return tuple(examples), {}


def _split_mapping(
    examples: Mapping[Any, object], parameters: Parameters
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Return a mapping as keyword arguments, as positional ones if no key is a parameter, or as a single argument."""
    if _accepts_any_name(parameters) or any(key in parameters for key in examples):
        return (), {str(key): value for key, value in examples.items()}
    positional = [p for p in parameters.values() if p.kind in _BY_POSITION]
    required = [p for p in positional if p.default is p.empty]
    if len(required) <= len(examples) <= len(positional) or _accepts_any_count(parameters):
        return tuple(examples.values()), {}
    return (examples,), {}


def _positional_names(parameters: Parameters, count: int) -> list[str]:
    """Return a name for each positional argument: the parameter's name, numbered for ``*args``."""
    names = [name for name, p in parameters.items() if p.kind in _BY_POSITION]
    var_name = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), "input")
    return [names[n] if n < len(names) else f"{var_name}_{n - len(names)}" for n in range(count)]


def _unique(name: str, existing: Mapping[str, object]) -> str:
    while name in existing:
        name += "_"
    return name
