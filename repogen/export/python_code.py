"""Python code in models that exporters freeze or reject: ``len`` of a tensor, and the checks of distributions."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.distributions import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_LEN = "len"
_OTHERS = frozenset({"torch", "repogen"})


@contextmanager
def exportable_python(module: nn.Module) -> Iterator[None]:
    """Make Python code exportable that only reads a size or raises an error.

    - ``len(x)`` must return a Python integer, which fixes the size of ``x``. In the files of the model's classes, it
      becomes ``x.shape[0]``, which stays dynamic.
    - ``torch.distributions`` branches on values to check its arguments. The checks are turned off.
    """
    files = [values for values in _globals(module) if _LEN not in values]
    checks = Distribution._validate_args  # noqa: SLF001 - set_default_validate_args has no counterpart that reads it
    for values in files:
        values[_LEN] = _size
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(checks)
        for values in files:
            del values[_LEN]


def _globals(module: nn.Module) -> list[dict[str, Any]]:
    """Return the global variables of the files that define the forward of each module, without those of torch."""
    forwards = {inspect.unwrap(type(part).forward) for part in module.modules()}
    by_file = {id(values): values for forward in forwards if (values := getattr(forward, "__globals__", None))}
    return [
        values for values in by_file.values() if str(values.get("__name__")).split(".")[0] not in {"torch", "repogen"}
    ]


def _size(value: Any) -> Any:  # noqa: ANN401 - as len
    return value.shape[0] if isinstance(value, Tensor) and value.ndim else len(value)
