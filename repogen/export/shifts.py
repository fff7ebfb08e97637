"""Shifts of integers for the dynamo exporter, whose results are signed for uint8, as of packed weights.

Its translations also need kernels of uint16, which ONNX Runtime does not have (onnxscript 0.7.2). As in PyTorch, signed
integers keep their sign, and a shift by a negative number or by all bits returns 0, or -1 for a negative integer that
is shifted to the right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnxscript import opset18

if TYPE_CHECKING:
    from collections.abc import Callable

_UNSIGNED = frozenset({ir.DataType.UINT8, ir.DataType.UINT32, ir.DataType.UINT64})
"""The types that ONNX Runtime shifts."""
_WIDEST = 64
op: Any = opset18  # its annotations do not accept its own results


def _shift(direction: str) -> Callable[[Any, Any], Any]:
    """Return the translation of a shift to the ``LEFT`` or ``RIGHT``; one of the two arguments may be a number."""

    def translated(self: Any, other: Any) -> Any:  # noqa: ANN401 - the exporter's values are not typed
        dtype: Any = self.dtype if isinstance(self, ir.Value) else other.dtype
        value, count = (
            each if isinstance(each, ir.Value) else op.Constant(value=ir.tensor(each, dtype=kind))
            for each, kind in ((self, dtype), (other, ir.DataType.INT64))
        )
        count = op.Cast(count, to=ir.DataType.INT64)
        last = _integer(dtype.bitwidth - 1, ir.DataType.INT64)
        is_valid = op.And(op.GreaterOrEqual(count, _integer(0, ir.DataType.INT64)), op.LessOrEqual(count, last))
        count = op.Where(is_valid, count, last)
        if direction == "RIGHT" and dtype.is_signed():
            return _shifted_with_sign(value, count, dtype)
        zero = _integer(0, dtype)
        zero.dtype = dtype
        return op.Where(is_valid, _shifted(value, count, dtype, direction), zero)

    return translated


def _shifted_with_sign(value: Any, count: Any, dtype: ir.DataType) -> Any:  # noqa: ANN401
    """Shift ``-1 - x`` in place of a negative ``x``: the same bits, all inverted."""
    signed = ir.DataType.INT64 if dtype.bitwidth == _WIDEST else ir.DataType.INT32
    value = op.Cast(value, to=signed)
    is_negative = op.Less(value, _integer(0, signed))
    inverted = op.Sub(_integer(-1, signed), value)
    shifted = _shifted(op.Where(is_negative, inverted, value), count, signed, "RIGHT")
    return op.Cast(op.Where(is_negative, op.Sub(_integer(-1, signed), shifted), shifted), to=dtype)


def _shifted(value: Any, count: Any, dtype: ir.DataType, direction: str) -> Any:  # noqa: ANN401
    """Shift the bits; the count is less than their number."""
    wide = ir.DataType.UINT64 if dtype.bitwidth == _WIDEST else ir.DataType.UINT32
    unsigned = dtype if dtype in _UNSIGNED else wide
    bits = op.BitShift(op.Cast(value, to=unsigned), op.Cast(count, to=unsigned), direction=direction)
    result = op.Cast(bits, to=dtype)
    result.dtype = dtype
    return result


def _integer(number: int, dtype: ir.DataType) -> Any:  # noqa: ANN401
    return op.Constant(value=ir.tensor(number, dtype=dtype))


_aten = torch.ops.aten
SHIFT_TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            _aten.__lshift__.Scalar,
            _aten.__lshift__.Tensor,
            _aten.bitwise_left_shift.Tensor,
            _aten.bitwise_left_shift.Tensor_Scalar,
            _aten.bitwise_left_shift.Scalar_Tensor,
        ),
        _shift("LEFT"),
    ),
    **dict.fromkeys(
        (
            _aten.__rshift__.Scalar,
            _aten.__rshift__.Tensor,
            _aten.bitwise_right_shift.Tensor,
            _aten.bitwise_right_shift.Tensor_Scalar,
            _aten.bitwise_right_shift.Scalar_Tensor,
        ),
        _shift("RIGHT"),
    ),
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
