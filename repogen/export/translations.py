"""Translations of operators that the dynamo exporter lacks, or translates incorrectly (onnxscript 0.7.2).

TorchScript's are in ``repogen.export.symbolics``. ONNX requires of ``TopK`` that the first of equal values comes first,
in both directions, which is the order of a stable sort. The exporter's own translation of ``cross_entropy`` ignores
``label_smoothing`` and does not accept probabilities; that of ``embedding_bag`` with ``padding_idx`` is not valid ONNX;
those of integer divisions with ``rounding_mode`` compute in float32; those of ``//`` and ``%`` of floats are not exact
(``repogen.export.division``); those of logarithms lose small values (``repogen.export.logarithms``); those of sizes
compute in float32, and ``//`` rounds toward zero (``repogen.export.size_arithmetic``); that of ``atan2`` is -pi for
(0, -1), and 0 for NaN; and numbers in float64 are rounded to float32.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core, nn

from repogen.errors import ExportError
from repogen.export.division import floor_quotient, floor_quotient_of_integers, remainder_of_floats
from repogen.export.logarithms import erfc, erfcx, expm1, log1p, log_add_exp, log_ndtr, log_sigmoid, softplus
from repogen.export.powers import integer_power
from repogen.export.recurrent import RECURRENT_TRANSLATIONS
from repogen.export.running import RUNNING_TRANSLATIONS
from repogen.export.shifts import SHIFT_TRANSLATIONS
from repogen.export.size_arithmetic import SIZE_TRANSLATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

_GATES = 4
_WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})
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


def _divide(self: Any, other: Any, rounding_mode: str | None = None) -> Any:  # noqa: ANN401
    """Divide integers exactly, and round quotients of floats down as PyTorch does."""
    if rounding_mode == "floor":
        return _floor_divide(self, other)
    if self.dtype.is_integer() and rounding_mode == "trunc":
        return op.Div(self, _constant(other, self.dtype))
    return core.aten_div_mode(self, other, rounding_mode=rounding_mode)


def _floor_divide(self: Any, other: Any) -> Any:  # noqa: ANN401
    other = _constant(other, self.dtype)
    if not self.dtype.is_floating_point():
        return floor_quotient_of_integers(op, self, other)
    return floor_quotient(op, partial(_constant, dtype=self.dtype), self, other)


def _remainder(self: Any, other: Any) -> Any:  # noqa: ANN401
    other = _constant(other, self.dtype)
    if not self.dtype.is_floating_point():
        return op.Mod(self, other)
    return remainder_of_floats(op, partial(_constant, dtype=self.dtype), self, other)


def _scalar_tensor(s: Any, dtype: int = -1, **_: object) -> Any:  # noqa: ANN401
    """Create a constant of the type at once; the exporter creates it in float32 and casts it to float64."""
    return core.aten_scalar_tensor(_constant(s, ir.DataType(dtype)) if dtype > 0 else s, dtype=dtype)


def _full(size: Any, fill_value: Any, dtype: int = -1, **_: object) -> Any:  # noqa: ANN401
    """Do the same for a tensor of equal numbers."""
    return core.aten_full(size, _constant(fill_value, ir.DataType(dtype)) if dtype > 0 else fill_value, dtype=dtype)


def _constant(number: Any, dtype: ir.DataType) -> Any:  # noqa: ANN401
    """Return a Python number as a constant; other values as they are."""
    return op.Constant(value=ir.tensor(number, dtype=dtype)) if isinstance(number, (int, float)) else number


def _power(self: Any, exponent: Any) -> Any:  # noqa: ANN401
    """Multiply integers; a base or an exponent may be a Python number."""
    tensor = self if isinstance(self, ir.Value) else exponent
    other = exponent if tensor is self else self
    has_type = other.dtype == tensor.dtype if isinstance(other, ir.Value) else isinstance(other, int)
    if tensor.dtype in _WHOLE and has_type and not (isinstance(exponent, int) and exponent < 0):
        base = _constant(self, tensor.dtype)
        return integer_power(op, partial(_constant, dtype=tensor.dtype), base, exponent)
    if tensor is exponent:
        return core.aten_pow_scalar(self, exponent)
    return (
        core.aten_pow(self, exponent) if isinstance(exponent, ir.Value) else core.aten_pow_tensor_scalar(self, exponent)
    )


def _atan2(self: Any, other: Any) -> Any:  # noqa: ANN401
    """Return the angle of the point (other, self), with the signs of zeros as in PyTorch, and NaN for NaN."""
    zero, one, pi = (_constant(number, self.dtype) for number in (0.0, 1.0, math.pi))
    is_origin = op.And(op.Equal(self, zero), op.Equal(other, zero))
    angle = op.Atan(op.Div(self, op.Where(is_origin, one, other)))
    half_turn = op.Where(_has_minus(self), op.Neg(pi), pi)
    return op.Where(_has_minus(other), op.Add(angle, half_turn), angle)


def _hypot(self: Any, other: Any) -> Any:  # noqa: ANN401
    """Return the length of the vector (self, other) without its square, which is 0 for 1e-23 and infinite for 1e20."""
    one = _constant(1.0, self.dtype)
    x, y = op.Abs(self), op.Abs(other)
    is_longer = op.Greater(x, y)
    longer, shorter = op.Where(is_longer, x, y), op.Where(is_longer, y, x)
    is_finite = op.Not(op.Or(op.IsInf(x), op.IsInf(y)))
    ratio = op.Div(shorter, op.Where(op.Equal(longer, _constant(0.0, self.dtype)), one, longer))
    length = op.Mul(longer, op.Sqrt(op.Add(op.Mul(ratio, ratio), one)))
    return op.Where(is_finite, length, _constant(math.inf, self.dtype))


def _has_minus(value: Any) -> Any:  # noqa: ANN401
    """Return where a float is negative or -0."""
    zero = _constant(0.0, value.dtype)
    return op.Or(op.Less(value, zero), op.Less(op.Reciprocal(value), zero))


def _softplus(self: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:  # noqa: ANN401
    return softplus(op, partial(_constant, dtype=self.dtype), self, beta, threshold)


def _log_add_exp(self: Any, other: Any) -> Any:  # noqa: ANN401
    return log_add_exp(op, partial(_constant, dtype=self.dtype), self, other)


def _log_add_exp2(self: Any, other: Any) -> Any:  # noqa: ANN401
    return log_add_exp(op, partial(_constant, dtype=self.dtype), self, other, math.log(2))


def _scaled_angle(self: Any, factor: float) -> Any:  # noqa: ANN401
    """Multiply by a number; the exporter rounds it to float32, and to 0 for integers."""
    dtype = self.dtype if self.dtype.is_floating_point() else ir.DataType.FLOAT
    return op.Mul(op.Cast(self, to=dtype), _constant(factor, dtype))


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the translation of a function of one tensor."""

    def translated(self: Any) -> Any:  # noqa: ANN401
        return function(op, partial(_constant, dtype=self.dtype), self)

    return translated


def _lstm(  # noqa: PLR0913, PLR0917 - the operator's arguments
    self: Any,  # noqa: ANN401
    states: Any,  # noqa: ANN401
    weights: Any,  # noqa: ANN401
    has_biases: bool,  # noqa: FBT001
    num_layers: int,
    dropout: float,
    train: bool,  # noqa: FBT001
    bidirectional: bool,  # noqa: FBT001
    batch_first: bool,  # noqa: FBT001
) -> Any:  # noqa: ANN401
    """Reject projections, which ONNX's LSTM does not have; the exporter would write an invalid graph."""
    gates, features = weights[1].shape
    if gates != _GATES * features:
        raise ExportError(
            "operator aten.lstm with proj_size has no ONNX translation",
            "ONNX has no LSTM with projections; use an LSTM without proj_size, followed by a linear layer",
            code="export.no-translation",
        )
    return core.aten_lstm(self, states, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _attention(  # noqa: PLR0913, PLR0917 - the operator's arguments
    query: Any,  # noqa: ANN401
    key: Any,  # noqa: ANN401
    value: Any,  # noqa: ANN401
    attn_mask: Any = None,  # noqa: ANN401
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Any:  # noqa: ANN401
    """Return zeros for a query whose keys are all masked; the exporter returns the average of the values, or NaN."""
    result = nn.aten_scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if attn_mask is None:
        return result
    last = op.Constant(value_ints=[-1])
    if attn_mask.dtype == ir.DataType.BOOL:
        is_visible = op.Cast(op.ReduceMax(op.Cast(attn_mask, to=ir.DataType.INT32), last), to=ir.DataType.BOOL)
    else:
        is_visible = op.Greater(op.ReduceMax(attn_mask, last), _constant(-math.inf, attn_mask.dtype))
    return op.Where(is_visible, result, _constant(0.0, query.dtype))


_MODES = ("sum", "mean", "max")
_REDUCTIONS = ("none", "mean", "sum")


def _cross_entropy(
    self: Any,  # noqa: ANN401
    target: Any,  # noqa: ANN401
    weight: Any = None,  # noqa: ANN401
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # noqa: ANN401
    """Compare scores ``[batch, classes, …]`` or ``[classes]`` with classes, or with probabilities of the same shape."""
    rank = len(self.shape)
    axis = min(rank - 1, 1)
    axes = op.Constant(value_ints=[axis])
    losses = op.Neg(op.LogSoftmax(self, axis=axis))
    if weight is not None:
        inner = op.Constant(value_ints=[other for other in range(rank) if other != axis])
        losses = op.Mul(losses, op.Unsqueeze(weight, inner) if rank > 1 else weight)
    is_class = target.dtype.is_integer()
    if is_class:
        is_counted = op.Not(op.Equal(target, op.CastLike(op.Constant(value_int=ignore_index), target)))
        zero = op.CastLike(op.Constant(value_float=0.0), self)
        index = op.Where(is_counted, target, op.CastLike(op.Constant(value_int=0), target))
        loss = op.Squeeze(op.GatherElements(losses, op.Unsqueeze(index, axes), axis=axis), axes)
    else:
        loss = op.ReduceSum(op.Mul(losses, target), axes, keepdims=0)
    if label_smoothing:
        uniform = op.ReduceMean(losses, axes, keepdims=0)
        share, rest = (
            op.CastLike(op.Constant(value_float=part), self) for part in (label_smoothing, 1 - label_smoothing)
        )
        loss = op.Add(op.Mul(loss, rest), op.Mul(uniform, share))
    if is_class:
        loss = op.Where(is_counted, loss, zero)
    if not is_class:
        count = op.CastLike(op.Size(loss), loss)
    elif weight is None:
        count = op.ReduceSum(op.CastLike(is_counted, self), keepdims=0)
    else:
        count = op.ReduceSum(op.Mul(op.CastLike(is_counted, self), op.Gather(weight, index)), keepdims=0)
    return _reduced(loss, count, _REDUCTIONS[reduction])


def _reduced(loss: Any, count: Any, reduction: str) -> Any:  # noqa: ANN401
    if reduction == "none":
        return loss
    total = op.ReduceSum(loss, keepdims=0)
    return total if reduction == "sum" else op.Div(total, count)


def _embedding_bag(  # noqa: PLR0913, PLR0917 - the operator's arguments
    weight: Any,  # noqa: ANN401
    indices: Any,  # noqa: ANN401
    offsets: Any,  # noqa: ANN401
    scale_grad_by_freq: bool = False,  # noqa: FBT001, FBT002
    mode: int = 0,
    sparse: bool = False,  # noqa: FBT001, FBT002
    per_sample_weights: Any = None,  # noqa: ANN401
    include_last_offset: bool = False,  # noqa: FBT001, FBT002
    padding_idx: int | None = None,
) -> Any:  # noqa: ANN401
    """Add, average or take the maximum of rows of a table; bag ``b`` starts at ``offsets[b]`` of the flat indices."""
    del scale_grad_by_freq, sparse
    zero, one = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
    offsets = op.Cast(offsets, to=ir.DataType.INT64)
    length, bags = op.Shape(indices), op.Shape(offsets)
    starts = op.ScatterElements(
        op.Expand(zero, op.Add(length, one)), offsets, op.Expand(one, bags), axis=0, reduction="add"
    )
    bag = op.Sub(op.CumSum(op.Slice(starts, zero, length, zero), op.Constant(value_int=0)), one)
    rows = op.Gather(weight, indices)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, one))
    is_max = _MODES[mode] == "max"
    start = op.CastLike(op.Constant(value_float=-math.inf if is_max else 0.0), weight)
    counted = op.Expand(one, length)
    if padding_idx is not None:
        padding = op.Constant(value_int=padding_idx)
        if padding_idx < 0:
            padding = op.Add(padding, op.Gather(op.Shape(weight), op.Constant(value_int=0)))
        is_row = op.Not(op.Equal(op.Cast(indices, to=ir.DataType.INT64), padding))
        counted = op.Cast(is_row, to=ir.DataType.INT64)
        rows = op.Where(op.Unsqueeze(is_row, one), rows, start)
    counts = op.ScatterElements(op.Expand(zero, bags), bag, counted, axis=0, reduction="add")
    result = op.ScatterElements(
        op.Expand(start, op.Concat(bags, op.Shape(weight, start=1), axis=0)),
        op.Expand(op.Unsqueeze(bag, one), op.Shape(rows)),
        rows,
        axis=0,
        reduction="max" if is_max else "add",
    )
    if is_max:
        is_empty = op.Unsqueeze(op.Equal(counts, zero), one)
        result = op.Where(is_empty, op.CastLike(op.Constant(value_float=0.0), weight), result)
    elif _MODES[mode] == "mean":
        result = op.Div(result, op.CastLike(op.Unsqueeze(op.Max(counts, one), one), weight))
    if include_last_offset:
        result = op.Slice(result, zero, op.Sub(bags, one), zero)
    # The other outputs are not used. The exporter gives them PyTorch's shapes, which are not those of `bag`.
    return result, op.Identity(bag), op.Identity(counts), op.Identity(counts)


def _inner_embedding_bag(  # noqa: PLR0913, PLR0917 - the operator's arguments
    weight: Any,  # noqa: ANN401
    indices: Any,  # noqa: ANN401
    offsets: Any,  # noqa: ANN401
    scale_grad_by_freq: bool = False,  # noqa: FBT001, FBT002
    mode: int = 0,
    sparse: bool = False,  # noqa: FBT001, FBT002
    per_sample_weights: Any = None,  # noqa: ANN401
    include_last_offset: bool = False,  # noqa: FBT001, FBT002
    padding_idx: int = -1,
) -> Any:  # noqa: ANN401
    """Do the same for the operator of a decomposed program, in which -1 means that no row is padding."""
    padding = None if padding_idx < 0 else padding_idx
    return _embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding
    )


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.lstm.input: _lstm,
    **SIZE_TRANSLATIONS,
    torch.ops.aten.scalar_tensor.default: _scalar_tensor,
    torch.ops.aten.full.default: _full,
    torch.ops.aten.floor_divide.default: _floor_divide,
    torch.ops.aten.remainder.Tensor: _remainder,
    torch.ops.aten.remainder.Scalar: _remainder,
    torch.ops.aten.div.Tensor_mode: _divide,
    torch.ops.aten.div.Scalar_mode: _divide,
    torch.ops.aten.hypot.default: _hypot,
    torch.ops.aten.pow.Tensor_Tensor: _power,
    torch.ops.aten.pow.Tensor_Scalar: _power,
    torch.ops.aten.pow.Scalar: _power,
    torch.ops.aten.atan2.default: _atan2,
    torch.ops.aten.deg2rad.default: lambda self: _scaled_angle(self, math.pi / 180),
    torch.ops.aten.rad2deg.default: lambda self: _scaled_angle(self, 180 / math.pi),
    torch.ops.aten.log1p.default: _of_one(log1p),
    torch.ops.aten.special_log1p.default: _of_one(log1p),
    torch.ops.aten.expm1.default: _of_one(expm1),
    torch.ops.aten.special_expm1.default: _of_one(expm1),
    torch.ops.aten.erfc.default: _of_one(erfc),
    torch.ops.aten.special_erfc.default: _of_one(erfc),
    torch.ops.aten.special_erfcx.default: _of_one(erfcx),
    torch.ops.aten.special_log_ndtr.default: _of_one(log_ndtr),
    torch.ops.aten.log_sigmoid.default: _of_one(log_sigmoid),
    torch.ops.aten.softplus.default: _softplus,
    torch.ops.aten.logaddexp.default: _log_add_exp,
    torch.ops.aten.logaddexp2.default: _log_add_exp2,
    **RUNNING_TRANSLATIONS,
    **RECURRENT_TRANSLATIONS,
    **SHIFT_TRANSLATIONS,
    torch.ops.aten.sort.stable: _sort,
    torch.ops.aten.argsort.stable: _argsort,
    torch.ops.aten._cdist_forward.default: _cdist,  # noqa: SLF001 - the name of the operator
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    torch.ops.aten.cross_entropy_loss.default: _cross_entropy,
    torch.ops.aten.embedding_bag.default: _embedding_bag,
    torch.ops.aten.embedding_bag.padding_idx: _embedding_bag,
    torch.ops.aten._embedding_bag.default: _inner_embedding_bag,  # noqa: SLF001
    torch.ops.aten._embedding_bag_forward_only.default: _inner_embedding_bag,  # noqa: SLF001
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
