"""Translations of operators that the dynamo exporter lacks: stable sorting, and ``torch.cdist``.

TorchScript's are in ``repogen.export.symbolics``. ONNX requires of ``TopK`` that the first of equal values comes first,
in both directions, which is the order of a stable sort.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from onnxscript import opset18

if TYPE_CHECKING:
    from collections.abc import Callable

op: Any = opset18  # its annotations do not accept its own results


def _sort(self: Any, *, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:  # noqa: ANN401 - the exporter's values are not typed
    del stable
    size = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]), axis=0)
    return op.TopK(self, size, axis=dim, largest=int(descending), sorted=1)


def _argsort(self: Any, *, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:  # noqa: ANN401
    return _sort(self, stable=stable, dim=dim, descending=descending)[1]


def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: int = 0) -> Any:  # noqa: ANN401
    """Compare ``[…, rows, size]`` with ``[…, other rows, size]``."""
    del compute_mode
    axis = op.Constant(value_ints=[-1])
    difference = op.Abs(
        op.Sub(op.Unsqueeze(x1, op.Constant(value_ints=[-2])), op.Unsqueeze(x2, op.Constant(value_ints=[-3])))
    )
    if p == math.inf:
        return op.ReduceMax(difference, axis, keepdims=0)
    if p == 1.0:
        return op.ReduceSum(difference, axis, keepdims=0)
    if p == 2.0:  # noqa: PLR2004 - the Euclidean distance
        return op.Sqrt(op.ReduceSum(op.Mul(difference, difference), axis, keepdims=0))
    power, root = (op.CastLike(op.Constant(value_float=number), difference) for number in (p, 1 / p))
    return op.Pow(op.ReduceSum(op.Pow(difference, power), axis, keepdims=0), root)


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.sort.stable: _sort,
    torch.ops.aten.argsort.stable: _argsort,
    torch.ops.aten._cdist_forward.default: _cdist,  # noqa: SLF001 - the name of the operator
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
