"""Python code in models that exporters freeze or reject: arithmetic on sizes, and the checks of distributions."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional

from repogen.export.number_tensors import exported_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

_COSINES = {"hann_window": (0.5, 0.5), "hamming_window": (0.54, 0.46), "blackman_window": (0.42, 0.5, 0.08)}
"""Window functions, and the factors of their cosines."""


_MAX_BETA, _BESSEL_TERMS = 20.0, 48
"""The largest beta of a Kaiser window, for which this many terms give float64's precision."""


@contextmanager
def exportable_python(module: nn.Module) -> Iterator[None]:
    """Make Python code exportable that only reads a size or raises an error.

    - ``len(x)`` must return a Python integer, which fixes the size of ``x``. In the files of the model's classes, it
      becomes ``x.shape[0]``, which stays dynamic.
    - ``int(x.shape[0] * 0.5)`` and ``float(x.shape[0])`` do the same. In these files, ``int`` and ``float`` keep sizes
      dynamic, unless a file uses the type otherwise, such as in ``isinstance``.
    - So do functions of ``math``, such as ``math.log(x.shape[0])``; except for ``math.sqrt``, they become tensors.
    - ``divmod(x.shape[0], 2)`` becomes a quotient and a remainder, and ``round`` accepts the sizes of a trace.
    - ``min(100, x.shape[0])`` becomes an operator; comparing the numbers would keep the branch of the example's size.
    - ``torch.as_tensor`` of a list with sizes becomes ``torch.tensor``, which stays dynamic.
    - The schemas of ``torch.linspace``, ``torch.istft`` and windows such as ``torch.hann_window`` have no dynamic
      number of values: they become ranges and other operators.
    - ``torch.distributions`` branches on values to check its arguments. The checks are turned off.
    - Dynamo's exporter fails for a ``clamp`` between an integer and a float, which becomes one between floats.
    """
    checks = Distribution._validate_args  # noqa: SLF001 - set_default_validate_args has no counterpart that reads it
    with ExitStack() as changed:
        changed.callback(setattr, torch, "as_tensor", torch.as_tensor)
        torch.as_tensor = exported_numbers(torch.as_tensor)
        for name, function in _OF_SIZES.items():
            changed.callback(setattr, math, name, getattr(math, name))
            setattr(math, name, _of_size(getattr(math, name), function))
        for name, replacement in _dynamic_functions().items():
            changed.callback(setattr, torch, name, getattr(torch, name))
            setattr(torch, name, replacement)
        for name in ("clamp", "clip", "clamp_", "clip_"):
            for owner in (torch, Tensor):
                changed.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, _with_like_bounds(getattr(owner, name)))
        for values in _globals(module):
            for name, function in _FUNCTIONS.items():
                if name not in values and (not isinstance(vars(builtins)[name], type) or _only_calls(values, name)):
                    values[name] = function
                    changed.callback(values.pop, name)
        changed.callback(Distribution.set_default_validate_args, checks)
        Distribution.set_default_validate_args(False)
        yield


def _only_calls(values: dict[str, Any], name: str) -> bool:
    """Return whether a file with these global variables uses a name of Python only to call it with one argument."""
    try:
        tree = ast.parse(Path(str(values.get("__file__"))).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False  # without the file that was imported
    nodes = list(ast.walk(tree))
    allowed: set[ast.AST] = {node.func for node in nodes if isinstance(node, ast.Call) and len(node.args) == 1}
    allowed |= {part for node in nodes for hint in _annotations(node) for part in ast.walk(hint)}
    return all(node in allowed for node in nodes if isinstance(node, ast.Name) and node.id == name)


def _annotations(node: ast.AST) -> list[ast.expr]:
    """Return the annotations of a node, which were evaluated when the file was imported."""
    hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [hint for hint in hints if isinstance(hint, ast.expr)]


def _float(value: Any = 0.0) -> Any:  # noqa: ANN401 - as float
    return value / 1 if isinstance(value, (torch.SymInt, torch.SymFloat)) else float(value)


def _of_size(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``math`` that accepts a dynamic size.

    Args:
        original: The function.
        function: Computes the same for a dynamic number.
    """
    # The square root of a size is often an argument that must not be a tensor, such as the scale of attention.
    kinds = (torch.SymInt, torch.SymFloat) if function is _square_root else (torch.SymInt, torch.SymFloat, Tensor)

    def dynamic(*numbers: Any) -> Any:  # noqa: ANN401
        return function(*numbers) if any(isinstance(number, kinds) for number in numbers) else original(*numbers)

    return dynamic


def _square_root(number: Any, /) -> Any:  # noqa: ANN401 - as math.sqrt
    return (number / 1) ** 0.5


def _by_tensor(function: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Return a function of a number that is computed with a tensor of rank 0, since programs have no such operator."""

    def computed(number: Any, /) -> Any:  # noqa: ANN401
        tensor = number if isinstance(number, Tensor) else torch.full((), number / 1, dtype=torch.float64)
        return function(tensor.double()).to(torch.get_default_dtype())

    return computed


def _logarithm(number: Any, base: Any = None, /) -> Any:  # noqa: ANN401 - as math.log
    logarithm = _by_tensor(torch.log)
    return logarithm(number) if base is None else logarithm(number) / logarithm(base)


_OF_SIZES: dict[str, Callable[..., Any]] = {
    "sqrt": _square_root,
    "log": _logarithm,
    **{name: _by_tensor(getattr(torch, name)) for name in ("log2", "log10", "log1p", "exp", "sin", "cos", "tanh")},
}
"""Functions of ``math``, and what they become for sizes."""


def _dynamic_functions() -> dict[str, Callable[..., Tensor]]:
    """Return replacements of torch's functions, by name, that accept a dynamic size."""
    windows = {name: _window_of(getattr(torch, name), *terms) for name, terms in _COSINES.items()}
    windows |= {
        "bartlett_window": _bartlett_of(torch.bartlett_window),
        "kaiser_window": _kaiser_of(torch.kaiser_window),
    }
    return {"linspace": _linspace_of(torch.linspace), "istft": _istft_of(torch.istft), **windows}


def _istft_of(istft: Any) -> Callable[..., Tensor]:  # noqa: ANN401 - torch declares its sizes as integers
    """Return ``torch.istft`` that accepts a dynamic number of frames and a dynamic ``length``."""
    signature = inspect.signature(_istft)

    def dynamic(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        values = (*args, *options.values(), *getattr(args[0] if args else None, "shape", ()))
        if options.get("return_complex") or not any(isinstance(value, torch.SymInt) for value in values):
            return istft(*args, **options)
        return _istft(**signature.bind(*args, **options).arguments)

    return dynamic


def _istft(  # noqa: PLR0913, PLR0917 - torch's own signature
    input: Any,  # noqa: A002, ANN401
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,  # noqa: FBT001, FBT002
    normalized: bool = False,  # noqa: FBT001, FBT002
    onesided: bool | None = None,  # noqa: ARG001, FBT001
    length: Any = None,  # noqa: ANN401
    return_complex: bool = False,  # noqa: ARG001, FBT001, FBT002
) -> Tensor:
    """Add up the frames of a spectrum; torch's own decomposition takes minutes if their number is dynamic."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    spectrum = (input if input.ndim == 3 else input[None])[:, : n_fft // 2 + 1].transpose(1, 2)  # noqa: PLR2004
    frames = torch.fft.irfft(spectrum, n=n_fft, norm="ortho" if normalized else "backward")
    weights = torch.ones(width, dtype=frames.dtype) if window is None else window
    weights = functional.pad(weights, ((n_fft - width) // 2, (n_fft - width + 1) // 2))
    total = n_fft + hop * (frames.shape[1] - 1)

    def added_up(values: Tensor) -> Tensor:
        return functional.fold(values.transpose(1, 2), (1, total), (1, n_fft), stride=(1, hop))[:, 0, 0]

    start = n_fft // 2 if center else 0
    end = total - start if length is None else start + length
    # More than the last half frame is rarely requested; zeros are then returned.
    signal = functional.pad(added_up(frames * weights), (0, n_fft))[:, start:end]
    envelope = functional.pad(added_up(weights.square().expand(1, frames.shape[1], n_fft)), (0, n_fft), value=1.0)
    signal = signal / envelope[:, start:end]
    return signal if input.ndim == 3 else signal[0]  # noqa: PLR2004


def _window_of(window: Any, *terms: float) -> Callable[..., Tensor]:  # noqa: ANN401
    """Return a window function that accepts a dynamic length.

    Args:
        window: The function of torch.
        terms: Its factors of 1, ``-cos(x)`` and ``cos(2 * x)``.
    """
    functions: Any = torch

    def dynamic(window_length: Any, periodic: bool = True, *args: Any, **options: Any) -> Any:  # noqa: ANN401, FBT001, FBT002 - torch's own signature
        if not isinstance(window_length, torch.SymInt) or args or {"alpha", "beta"} & options.keys():
            return window(window_length, periodic, *args, **options)
        index = functions.arange(window_length, **{"dtype": torch.get_default_dtype(), **options})
        angle = index * (2 * math.pi) / functions.sym_max(window_length - int(not periodic), 1)
        values = sum((-1) ** n * factor * torch.cos(n * angle) for n, factor in enumerate(terms))
        return torch.where(index + window_length > 1, values, 1.0)

    return dynamic


def _bartlett_of(window: Any) -> Callable[..., Tensor]:  # noqa: ANN401
    """Return ``torch.bartlett_window`` that accepts a dynamic length."""

    def dynamic(window_length: Any, periodic: bool = True, **options: Any) -> Any:  # noqa: ANN401, FBT001, FBT002
        if not isinstance(window_length, torch.SymInt):
            return window(window_length, periodic, **options)
        index, position = _positions(window_length, periodic, options)
        return torch.where(index + window_length > 1, 1 - position.abs(), 1.0)

    return dynamic


def _kaiser_of(window: Any) -> Callable[..., Tensor]:  # noqa: ANN401
    """Return ``torch.kaiser_window`` that accepts a dynamic length."""

    def dynamic(window_length: Any, periodic: bool = True, beta: float = 12.0, **options: Any) -> Any:  # noqa: ANN401, FBT001, FBT002
        if not isinstance(window_length, torch.SymInt) or not 0 <= beta <= _MAX_BETA:
            return window(window_length, periodic, beta, **options)
        index, position = _positions(window_length, periodic, {**options, "dtype": torch.float64})
        values = _bessel((beta / 2) ** 2 * (1 - position.square()).clamp(min=0)) / _bessel(
            torch.tensor((beta / 2) ** 2)
        )
        values = torch.where(index + window_length > 1, values, 1.0)
        return values.to(options.get("dtype") or torch.get_default_dtype())

    return dynamic


def _positions(length: Any, periodic: bool, options: dict[str, Any]) -> tuple[Any, Tensor]:  # noqa: ANN401, FBT001
    """Return the indices of a window's values, and their positions from -1 to 1."""
    functions: Any = torch
    index = functions.arange(length, **{"dtype": torch.get_default_dtype(), **options})
    return index, index * 2 / functions.sym_max(length - int(not periodic), 1) - 1


def _bessel(square: Tensor) -> Tensor:
    """Return the modified Bessel function of order 0 of ``2 * square ** 0.5``, as a sum of positive terms."""
    total = torch.ones_like(square)
    for n in range(_BESSEL_TERMS, 0, -1):
        total = 1 + square / n**2 * total
    return total


def _linspace_of(linspace: Any) -> Callable[..., Tensor]:  # noqa: ANN401 - torch declares its sizes as integers
    """Return ``torch.linspace`` that accepts a dynamic number of values."""
    functions: Any = torch

    def dynamic(start: Any, end: Any, steps: Any = None, **options: Any) -> Any:  # noqa: ANN401
        dtype = options.get("dtype") or torch.get_default_dtype()
        if not isinstance(steps, torch.SymInt) or not dtype.is_floating_point:
            return linspace(start, end, **({} if steps is None else {"steps": steps}), **options)
        index = functions.arange(steps, **{**options, "dtype": dtype})
        step = (end - start) / functions.sym_max(steps - 1, 1)
        return torch.where(index * 2 < steps, start + index * step, end - (steps - 1 - index) * step)

    return dynamic


def _globals(module: nn.Module) -> list[dict[str, Any]]:
    """Return the global variables of the files that define the forward of each module, without those of torch."""
    forwards = {inspect.unwrap(type(part).forward) for part in module.modules()}
    by_file = {id(values): values for forward in forwards if (values := getattr(forward, "__globals__", None))}
    return [
        values for values in by_file.values() if str(values.get("__name__")).split(".")[0] not in {"torch", "repogen"}
    ]


def _size(value: Any) -> Any:  # noqa: ANN401 - as len
    return value.shape[0] if isinstance(value, Tensor) and value.ndim else len(value)


def _quotient_and_remainder(first: Any, second: Any, /) -> Any:  # noqa: ANN401 - as divmod
    is_dynamic = any(isinstance(value, (torch.SymInt, torch.SymFloat, Tensor)) for value in (first, second))
    return (first // second, first % second) if is_dynamic else divmod(first, second)


def _rounded(number: Any, digits: int | None = None) -> Any:  # noqa: ANN401 - as round
    is_traced = isinstance(number, Tensor) and digits is None
    return torch.round(number).long() if is_traced else round(number, digits)


def _extreme(original: Callable[..., Any], of_traced: Callable[..., Any], of_symbols: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return ``min`` or ``max`` that keeps sizes dynamic.

    Args:
        original: The function of Python.
        of_traced: The same for two integer tensors, which sizes are in a trace.
        of_symbols: The same for two numbers of torch.export.
    """

    def dynamic(*values: Any, **options: Any) -> Any:  # noqa: ANN401
        items = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, torch.Size)) else values
        if options or len(items) < 2:  # noqa: PLR2004
            return original(*values, **options)
        if all(isinstance(item, int) or _is_traced_size(item) for item in items) and any(map(_is_traced_size, items)):
            return reduce(of_traced, (torch.as_tensor(item) for item in items))
        if any(isinstance(item, (torch.SymInt, torch.SymFloat)) for item in items):
            is_number = all(isinstance(item, (int, float, torch.SymInt, torch.SymFloat)) for item in items)
            return reduce(of_symbols, items) if is_number else original(*values)
        return original(*values)

    return dynamic


def _is_traced_size(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.int64 and not value.ndim and torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call] # as torch declares it


def _with_like_bounds(clamp: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that clamps between two floats if it is called with an integer and a float."""

    def dynamic(x: Tensor, *args: Any, **options: Any) -> Tensor:  # noqa: ANN401
        bounds = [*args[:2], *(options.get(name) for name in ("min", "max"))]
        if any(type(bound) is float for bound in bounds) and any(type(bound) is int for bound in bounds):
            args = tuple(float(value) if type(value) is int else value for value in args)
            options = {name: float(value) if type(value) is int else value for name, value in options.items()}
        return clamp(x, *args, **options)

    return dynamic


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme(min, torch.minimum, torch.sym_min),
    "max": _extreme(max, torch.maximum, torch.sym_max),
    "len": _size,
    "int": torch.sym_int,
    "float": _float,
    "divmod": _quotient_and_remainder,
    "round": _rounded,
}
"""Python's functions and types, and what they become in the files of a model's classes."""
