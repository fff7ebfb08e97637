"""Results over all values up to each position, and order statistics, for the dynamo exporter.

The exporter writes ``logcumsumexp`` with the maximum of the whole row, which is -inf or inexact for values far below
it, and has no translation of ``cumprod``, ``cummax``, ``cummin``, ``median`` and ``kthvalue`` (onnxscript 0.7.2). Its
translations of ``amax`` and ``amin`` fail without ``dim``. ``prod`` of integers becomes an operator that ONNX Runtime
computes in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence  # noqa: TC003 - the exporter evaluates the annotations of translations
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core

from repogen.export.logarithms import log_add_exp

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_DOUBLINGS = 20
"""For sizes that are known at runtime only: rows of up to 2 ** 20 values."""
_END = 2**63 - 1
Values = tuple[Any, ...]
op: Any = opset18  # its annotations do not accept its own results


def _running(combine: Callable[[Values, Values], Values], values: Values, axis: int) -> Values:
    """Combine each value with all before it, in steps of 1, 2, 4, … positions.

    Args:
        combine: Returns the result for values and the values after them; it is associative.
        values: Tensors of one shape.
        axis: The axis.
    """
    if not len(values[0].shape):
        return tuple(op.Identity(value) for value in values)
    size = values[0].shape[axis]
    doublings = max(size - 1, 0).bit_length() if isinstance(size, int) else _MAX_DOUBLINGS
    zero, end, at = (op.Constant(value_ints=[number]) for number in (0, _END, axis))
    for step in (1 << doubling for doubling in range(doublings)):
        here, back = op.Constant(value_ints=[step]), op.Constant(value_ints=[-step])
        first = [op.Slice(value, zero, here, at) for value in values]
        before = tuple(op.Slice(value, zero, back, at) for value in values)
        after = tuple(op.Slice(value, here, end, at) for value in values)
        combined = combine(before, after)
        values = tuple(op.Concat(*pair, axis=axis) for pair in zip(first, combined, strict=True))
    return values


def _number(value: float, dtype: ir.DataType) -> Any:  # noqa: ANN401 - the exporter's values are not typed
    return op.Constant(value=ir.tensor(value, dtype=dtype))


def _log_cumulative_sum(self: Any, dim: int) -> Any:  # noqa: ANN401
    dtype = self.dtype

    def combine(before: Values, after: Values) -> Values:
        return (log_add_exp(op, partial(_number, dtype=dtype), before[0], after[0]),)

    return _running(combine, (self,), dim)[0]


def _cumulative_product(self: Any, dim: int, dtype: int = -1) -> Any:  # noqa: ANN401
    target = ir.DataType(dtype) if dtype > 0 else self.dtype
    if dtype <= 0 and not target.is_floating_point():
        target = ir.DataType.INT64  # as PyTorch promotes integers
    value = op.Cast(self, to=target)
    value.dtype, value.shape = target, self.shape
    return _running(_multiplied, (value,), dim)[0]


def _product(self: Any, dim: int | None = None, keepdim: bool = False, dtype: int = -1) -> Any:  # noqa: ANN401, FBT001, FBT002 - PyTorch's arguments
    """Multiply integers one after another; ONNX Runtime multiplies them in float64 from 1.28.0 on."""
    target = ir.DataType(dtype) if dtype > 0 else self.dtype
    if target.is_floating_point():
        return core.aten_prod(self, dtype=dtype) if dim is None else core.aten_prod_dim_int(self, dim, keepdim, dtype)
    if dim is None:
        shape = self.shape
        self, dim = op.Reshape(self, op.Constant(value_ints=[-1])), 0
        self.shape = ir.Shape([math.prod(shape) if all(isinstance(size, int) for size in shape) else None])
    target = target if dtype > 0 else ir.DataType.INT64
    rank = len(self.shape)
    begins = [int(axis == dim % rank) for axis in range(rank)]
    pads = op.Constant(value_ints=[*begins, *[0] * rank])
    padded = op.Pad(op.Cast(self, to=target), pads, _number(1, target))  # the product of no values is 1
    padded.dtype = target
    padded.shape = ir.Shape(
        [size + begin if isinstance(size, int) else None for size, begin in zip(self.shape, begins, strict=True)]
    )
    products = _running(_multiplied, (padded,), dim)[0]
    last = op.Gather(products, op.Constant(value_ints=[-1]), axis=dim)
    return last if keepdim else op.Squeeze(last, op.Constant(value_ints=[dim]))


def _multiplied(before: Values, after: Values) -> Values:
    return (op.Mul(before[0], after[0]),)


def _cumulative_extreme(operator: str) -> Callable[[Any, int], Values]:
    """Return the translation of ``cummax`` or ``cummin``: values, and the index of the last of equal values."""

    def combine(before: Values, after: Values) -> Values:
        is_later = getattr(op, operator)(after[0], before[0])
        return tuple(op.Where(is_later, *pair) for pair in zip(after, before, strict=True))

    def translated(self: Any, dim: int) -> Values:  # noqa: ANN401
        if not len(self.shape):
            return op.Identity(self), op.Constant(value_int=0)
        size = op.Squeeze(op.Gather(op.Shape(self), op.Constant(value_ints=[dim]), axis=0))
        index = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))
        shape = [-1 if axis == dim % len(self.shape) else 1 for axis in range(len(self.shape))]
        index = op.Expand(op.Reshape(index, op.Constant(value_ints=shape)), op.Shape(self))
        return _running(combine, (self, index), dim)

    return translated


def _extreme(operator: str) -> Callable[..., Any]:
    """Return the translation of ``amax`` or ``amin``; without ``dim``, all values are reduced."""

    def translated(self: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        if not len(self.shape):
            return op.Identity(self)
        axes = [op.Constant(value_ints=list(dim))] if len(dim) else []
        return getattr(op, operator)(self, *axes, keepdims=int(keepdim))

    return translated


def _nth(self: Any, position: Any, dim: int, keepdim: bool) -> Values:  # noqa: ANN401, FBT001
    """Return the value at a position of the sorted values, and its index."""
    size = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]), axis=0)
    at = op.Constant(value_ints=[dim])
    results = op.TopK(self, size, axis=dim, largest=0, sorted=1)
    chosen = [op.Gather(result, position(size), axis=dim) for result in results]
    return tuple(chosen if keepdim else [op.Squeeze(value, at) for value in chosen])


def _median(self: Any, dim: int, keepdim: bool = False) -> Values:  # noqa: ANN401, FBT001, FBT002 - PyTorch's arguments
    def middle(size: Any) -> Any:  # noqa: ANN401
        return op.Div(op.Sub(size, op.Constant(value_ints=[1])), op.Constant(value_ints=[2]))

    return _nth(self, middle, dim, keepdim)


def _median_of_all(self: Any) -> Any:  # noqa: ANN401
    return _median(op.Reshape(self, op.Constant(value_ints=[-1])), 0)[0]


def _kth_value(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Values:  # noqa: ANN401, FBT001, FBT002
    return _nth(self, lambda _: op.Constant(value_ints=[k - 1]), dim, keepdim)


RUNNING_TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.logcumsumexp.default: _log_cumulative_sum,
    torch.ops.aten.cumprod.default: _cumulative_product,
    torch.ops.aten.prod.default: lambda self, dtype=-1: _product(self, dtype=dtype),
    torch.ops.aten.prod.dim_int: _product,
    torch.ops.aten.cummax.default: _cumulative_extreme("GreaterOrEqual"),
    torch.ops.aten.cummin.default: _cumulative_extreme("LessOrEqual"),
    torch.ops.aten.amax.default: _extreme("ReduceMax"),
    torch.ops.aten.amin.default: _extreme("ReduceMin"),
    torch.ops.aten.median.dim: _median,
    torch.ops.aten.median.default: _median_of_all,
    torch.ops.aten.kthvalue.default: _kth_value,
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
