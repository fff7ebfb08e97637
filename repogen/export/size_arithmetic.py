"""Numbers that a model computes from sizes, for the dynamo exporter: in float64, as Python computes them.

The exporter computes them in float32 (torch 2.13, onnxscript 0.7.2). Then ``torch.arange(0, n * 0.1, 0.1)`` has one
value more or less for some sizes, and ``math.floor(n * 0.29)`` is 29 for 100, where Python returns 28.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core

from repogen.errors import ExportError
from repogen.export.division import floor_quotient, floor_quotient_of_integers

if TYPE_CHECKING:
    from collections.abc import Callable

_INT64, _FLOAT, _DOUBLE = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE
op: Any = opset18  # its annotations do not accept its own results


def _is_float(number: Any) -> bool:  # noqa: ANN401 - the exporter's values are not typed
    if isinstance(number, ir.Value):
        return number.dtype is not None and number.dtype.is_floating_point()
    return isinstance(number, float)


def _double(number: Any) -> Any:  # noqa: ANN401
    """Return a number in float64; if it was rounded to float32 by ``_rounded``, the number before that."""
    if not isinstance(number, ir.Value):
        return op.Constant(value=ir.tensor(float(number), dtype=_DOUBLE))
    producer = number.producer()
    if producer is not None and producer.op_type == "Cast":
        source = producer.inputs[0]
        if source is not None and source.dtype in {_INT64, _DOUBLE}:
            number = source
    return number if number.dtype == _DOUBLE else op.Cast(number, to=_DOUBLE)


def _rounded(number: Any) -> Any:  # noqa: ANN401
    """Return a number in float32, which other operators of the graph expect."""
    number.dtype = _DOUBLE
    return op.Cast(number, to=_FLOAT)


def _binary(name: str) -> Callable[[Any, Any], Any]:
    """Return the translation of an operator of two numbers, at least one of which may be an integer."""

    def translated(self: Any, other: Any) -> Any:  # noqa: ANN401
        if name != "Div" and not (_is_float(self) or _is_float(other)):
            return getattr(op, name)(self, other)
        return _rounded(getattr(op, name)(_double(self), _double(other)))

    return translated


def _floor_divide(self: Any, other: Any) -> Any:  # noqa: ANN401
    if not (_is_float(self) or _is_float(other)):
        return floor_quotient_of_integers(op, self, other)
    return _rounded(floor_quotient(op, _double, _double(self), _double(other)))


def _integer_part(name: str) -> Callable[[Any], Any]:
    """Return the translation of a function that rounds a number to an integer; without a name, toward zero."""

    def translated(self: Any) -> Any:  # noqa: ANN401
        number = _double(self)
        return op.Cast(getattr(op, name)(number) if name else number, to=_INT64)

    return translated


def _round(number: Any, digits: int | None = None) -> Any:  # noqa: ANN401
    if digits is not None:
        raise ExportError(
            "round with a number of digits has no ONNX translation",
            "round to an integer: round(number * 100) / 100",
            code="export.no-translation",
        )
    return _integer_part("Round")(number)  # both round half to even


def _arange(end: Any, dtype: int = -1, **_: object) -> Any:  # noqa: ANN401
    return _range(0, end, 1, dtype) if _is_float(end) else core.aten_arange(end, dtype=dtype)


def _arange_start(start: Any, end: Any, dtype: int = -1, **_: object) -> Any:  # noqa: ANN401
    if _is_float(start) or _is_float(end):
        return _range(start, end, 1, dtype)
    return core.aten_arange_start(start, end, dtype=dtype)


def _arange_start_step(start: Any, end: Any, step: Any = 1, dtype: int = -1, **_: object) -> Any:  # noqa: ANN401
    if _is_float(start) or _is_float(end) or _is_float(step):
        return _range(start, end, step, dtype)
    return core.aten_arange_start_step(start, end, step, dtype=dtype)


def _range(start: Any, end: Any, step: Any, dtype: int) -> Any:  # noqa: ANN401
    """Return ``start``, ``start + step``, … below ``end``; the number of values is computed in float64, as in PyTorch.

    Integers have the integer parts of ``start`` and ``step``; those of 64 bits also that of ``end``.
    """
    target = ir.DataType(dtype) if dtype > 0 else _FLOAT
    start, end, step = _double(start), _double(end), _double(step)
    if target == _INT64:
        return op.Range(*(op.Cast(number, to=_INT64) for number in (start, end, step)))
    count = op.Cast(op.Ceil(op.Div(op.Sub(end, start), step)), to=_INT64)
    index = op.Range(op.Constant(value_int=0), count, op.Constant(value_int=1))
    exact = _DOUBLE if target.is_floating_point() else _INT64
    start, step, index = (op.Cast(value, to=exact) for value in (start, step, index))
    return op.Cast(op.Add(start, op.Mul(index, step)), to=target)


SIZE_TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    operator.add: _binary("Add"),
    operator.sub: _binary("Sub"),
    operator.mul: _binary("Mul"),
    operator.pow: _binary("Pow"),
    operator.truediv: _binary("Div"),
    operator.floordiv: _floor_divide,
    math.ceil: _integer_part("Ceil"),
    math.floor: _integer_part("Floor"),
    math.trunc: _integer_part(""),
    round: _round,
    torch.ops.aten.arange.default: _arange,
    torch.ops.aten.arange.start: _arange_start,
    torch.ops.aten.arange.start_step: _arange_start_step,
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
