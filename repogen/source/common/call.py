"""How flat named tensors become the arguments of a forward: nested structures, and constants baked in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

from repogen.errors import SourceError

Parameters: TypeAlias = "Mapping[str, inspect.Parameter]"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Placeholder:
    """Place of one input tensor in the arguments."""

    index: int


@dataclass(frozen=True)
class Call:
    """Arguments of a forward with ``Placeholder`` where a tensor goes; everything else is a constant.

    Attributes:
        args: Positional arguments, nested at will.
        kwargs: Keyword arguments.
    """

    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def fill(self, tensors: tuple[object, ...]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return positional and keyword arguments with the tensors in their places."""
        return (
            tuple(_filled(value, tensors) for value in self.args),
            {name: _filled(value, tensors) for name, value in self.kwargs.items()},
        )


@dataclass(frozen=True)
class CapturedCall:
    """A call that example data showed.

    Attributes:
        call: The arguments, tensors replaced by slots.
        tensors: The tensors or arrays by input name, in the order of the slots.
        constants: ``name=value`` of what is baked in and is not None.
    """

    call: Call
    tensors: dict[str, object]
    constants: tuple[str, ...]


def _filled(value: object, tensors: tuple[object, ...]) -> object:
    if isinstance(value, Placeholder):
        return tensors[value.index]
    return _mapped(value, lambda _, child: _filled(child, tensors))


def _mapped(value: object, change: Callable[[str, object], object]) -> object:
    """Return a container with each child changed; anything else as it is."""
    if isinstance(value, Mapping):
        return {key: change(str(key), child) for key, child in value.items()}
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", None)
        keys = names if isinstance(names, tuple) else [str(n) for n in range(len(value))]
        children = [change(key, child) for key, child in zip(keys, value, strict=True)]
        made: Any = type(value)
        return made(*children) if isinstance(names, tuple) else made(children)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: change(field.name, getattr(value, field.name)) for field in fields(value) if field.init}
        return replace(value, **changes)
    return value


def named_call(parameters: Parameters, names: tuple[str, ...]) -> Call:
    """Decide how declared inputs reach a forward: by name when all are called like parameters, else by position.

    Raises:
        SourceError: Some names match and some do not, or the forward takes another number of inputs.
    """
    by_name = {n for n, p in parameters.items() if p.kind in _BY_NAME}
    slots = tuple(Placeholder(index) for index in range(len(names)))
    matching = [name for name in names if name in by_name]
    required = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    shown = ", ".join(parameters)
    if len(matching) == len(names):
        if absent := [n for n in required if n not in names]:
            raise SourceError(
                f"forward({shown}) also needs {', '.join(absent)}",
                "declare them under inputs:",
                code="source.inputs-missing",
            )
        return Call((), dict(zip(names, slots, strict=True)))
    if matching:
        strange = [name for name in names if name not in by_name]
        raise SourceError(
            f"inputs {', '.join(strange)} are no parameters of forward({shown}), but {', '.join(matching)} are",
            "name all inputs like forward's parameters, or none of them (then they go by position)",
            code="source.inputs-mixed",
        )
    positional = [p for p in parameters.values() if p.kind in _BY_POSITION]
    if not _takes_any(parameters) and not len(required) <= len(names) <= len(positional):
        raise SourceError(
            f"forward({shown}) cannot take {len(names)} inputs by position ({', '.join(names)})",
            "declare one input for each parameter, or name them like the parameters",
            code="source.inputs-count",
        )
    return Call(slots, {})


def _takes_any(parameters: Parameters) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in parameters.values())


def capture_call(
    made: object, parameters: Parameters, is_tensor: Callable[[object], bool], reference: str
) -> CapturedCall:
    """Read a call off example data.

    Args:
        made: A tensor, a tuple of arguments, a dict of keyword arguments, or ``(args, kwargs)``; nested at will.
        parameters: Of the forward.
        is_tensor: Tells tensors and arrays from everything else.
        reference: Who made it, for messages.

    Raises:
        SourceError: Something in it is neither a tensor nor a constant, or there is no tensor.
    """
    args, kwargs = _split(made, parameters, is_tensor)
    tensors: dict[str, object] = {}
    constants: list[str] = []

    def take(name: str, value: object) -> object:
        if is_tensor(value):
            slot = Placeholder(len(tensors))
            tensors[_free(name, tensors)] = value
            return slot
        if isinstance(value, _CONSTANTS):
            if value is not None:
                constants.append(f"{name}={value!r}")
            return value
        if not isinstance(value, (Mapping, tuple, list)) and not is_dataclass(value):
            raise SourceError(
                f"{reference!r} returned {_article(value)} for {name}",
                "return tensors or arrays, numbers, and tuples, lists and dicts of them",
                code="source.examples-type",
                where=reference,
            )
        return _mapped(value, lambda key, child: take(f"{name}_{key}", child))

    call = Call(
        tuple(take(name, value) for name, value in zip(_positional_names(parameters, len(args)), args, strict=True)),
        {name: take(name, value) for name, value in kwargs.items()},
    )
    if not tensors:
        raise SourceError(
            f"{reference!r} returned {_article(made)}, in which there is no tensor",
            "return a tensor, a tuple of them, a dict of input name -> tensor, or (args, kwargs)",
            code="source.examples-type",
            where=reference,
        )
    return CapturedCall(call, tensors, tuple(constants))


def _article(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _split(
    made: object, parameters: Parameters, is_tensor: Callable[[object], bool]
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Return positional and keyword arguments."""
    if is_tensor(made) and not isinstance(made, list):
        return (made,), {}
    if isinstance(made, Mapping):
        return _of_mapping(made, parameters)
    if not isinstance(made, (tuple, list)) or hasattr(made, "_fields"):
        return (made,), {}
    pair = 2
    if len(made) == pair and isinstance(made[0], (tuple, list)) and isinstance(made[1], dict):
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if takes_all or all(key in parameters for key in made[1]):
            return tuple(made[0]), made[1]
    return tuple(made), {}


def _of_mapping(made: Mapping[Any, object], parameters: Parameters) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """A mapping holds keyword arguments; values by position when no key is a parameter; or is one argument itself."""
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = [key for key in made if key in parameters]
    if known or takes_all:
        return (), {str(key): value for key, value in made.items()}
    positional = [p for p in parameters.values() if p.kind in _BY_POSITION]
    required = [p for p in positional if p.default is p.empty]
    if len(required) <= len(made) <= len(positional) or _takes_any(parameters):
        return tuple(made.values()), {}
    return (made,), {}


def _positional_names(parameters: Parameters, count: int) -> list[str]:
    """Return a name for each positional argument: its parameter's, numbered for ``*args``."""
    names = [name for name, p in parameters.items() if p.kind in _BY_POSITION]
    rest = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), "input")
    return [names[n] if n < len(names) else f"{rest}_{n - len(names)}" for n in range(count)]


def _free(name: str, taken: Mapping[str, object]) -> str:
    while name in taken:
        name += "_"
    return name
