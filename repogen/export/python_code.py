"""Python code in models that exporters freeze or reject: arithmetic on sizes, and the checks of distributions."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from repogen.export.number_tensors import exported_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn


@contextmanager
def exportable_python(module: nn.Module) -> Iterator[None]:
    """Make Python code exportable that only reads a size or raises an error.

    - ``len(x)`` must return a Python integer, which fixes the size of ``x``. In the files of the model's classes, it
      becomes ``x.shape[0]``, which stays dynamic.
    - ``int(x.shape[0] * 0.5)``, ``float(x.shape[0])`` and ``math.sqrt(x.shape[0])`` do the same. In these files,
      ``int`` and ``float`` keep sizes dynamic, unless a file uses the type otherwise, such as in ``isinstance``.
    - ``divmod(x.shape[0], 2)`` becomes a quotient and a remainder.
    - ``torch.as_tensor`` of a list with sizes becomes ``torch.tensor``, which stays dynamic.
    - The schema of ``torch.linspace`` has no dynamic number of values: it becomes a range.
    - ``torch.distributions`` branches on values to check its arguments. The checks are turned off.
    """
    checks = Distribution._validate_args  # noqa: SLF001 - set_default_validate_args has no counterpart that reads it
    with ExitStack() as changed:
        changed.callback(setattr, torch, "as_tensor", torch.as_tensor)
        torch.as_tensor = exported_numbers(torch.as_tensor)
        changed.callback(setattr, math, "sqrt", math.sqrt)
        math.sqrt = _square_root_of(math.sqrt)
        changed.callback(setattr, torch, "linspace", torch.linspace)
        torch.linspace = _linspace_of(torch.linspace)
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


def _square_root_of(square_root: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``math.sqrt`` that accepts a dynamic size."""

    def dynamic(value: Any, /) -> Any:  # noqa: ANN401
        is_dynamic = isinstance(value, (torch.SymInt, torch.SymFloat))
        return (value / 1) ** 0.5 if is_dynamic else square_root(value)

    return dynamic


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


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": _size,
    "int": torch.sym_int,
    "float": _float,
    "divmod": _quotient_and_remainder,
}
"""Python's functions and types, and what they become in the files of a model's classes."""
