"""Functions of float64 that ONNX Runtime's CPU provider does not have, as functions that it has.

ONNX Runtime 1.19.2 to 1.31.1 compute ``Sin``, ``Tanh``, ``Exp``, ``Sqrt`` and arithmetic in float64; ``Cos`` only the
newest. The error of a replacement is a few units in the last place of the result, or of 1 where a cosine is near 0.
``Erf``, convolutions, pooling and recurrent layers are not replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Callable

_DOUBLE, _FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT
_LARGE = 1e100
"""A number whose arc tangent is π / 2, and whose square is finite."""


class _Operators:
    """Creates nodes with the types of their results."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def __call__(
        self, operator: str, *inputs: ir.Value | float, dtype: ir.DataType = _DOUBLE, **attributes: int
    ) -> ir.Value:
        """Return the result of an operator; numbers become constants of float64."""
        values = [self._number(each) if isinstance(each, float) else each for each in inputs]
        return self._added(ir.node(operator, values, attributes), dtype)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in another type."""
        return self("Cast", value, dtype=dtype, to=int(dtype))

    def _number(self, number: float) -> ir.Value:
        return self._added(ir.node("Constant", [], {"value": ir.tensor(np.array(number))}), _DOUBLE)

    def _added(self, node: ir.Node, dtype: ir.DataType) -> ir.Value:
        self.nodes.append(node)
        node.outputs[0].dtype = dtype
        return node.outputs[0]


def _cos(op: _Operators, x: ir.Value) -> ir.Value:
    """Return 1 - 2 sin²(x / 2), which is exact for large x as well: x / 2 is not rounded, and x + π / 2 would be."""
    sine = op("Sin", op("Mul", x, 0.5))
    return op("Sub", 1.0, op("Mul", 2.0, op("Mul", sine, sine)))


def _tan(op: _Operators, x: ir.Value) -> ir.Value:
    return op("Div", op("Sin", x), _cos(op, x))


def _atan(op: _Operators, x: ir.Value) -> ir.Value:
    """Add the sine of the difference to the angle in float32, whose error is about 1e-7, and its cube is 1e-21."""
    angle = op.cast(op("Atan", op.cast(x, _FLOAT), dtype=_FLOAT), _DOUBLE)
    limited = op("Max", op("Min", x, _LARGE), -_LARGE)
    difference = op("Sub", op("Mul", limited, _cos(op, angle)), op("Sin", angle))
    return op("Add", angle, op("Div", difference, op("Sqrt", op("Add", op("Mul", limited, limited), 1.0))))


def _asin(op: _Operators, x: ir.Value) -> ir.Value:
    return _atan(op, op("Div", x, op("Sqrt", op("Mul", op("Sub", 1.0, x), op("Add", 1.0, x)))))


def _acos(op: _Operators, x: ir.Value) -> ir.Value:
    """Return 2 atan √((1 - x) / (1 + x)), which is exact near 1 as well."""
    return op("Mul", 2.0, _atan(op, op("Sqrt", op("Div", op("Sub", 1.0, x), op("Add", 1.0, x)))))


def _cosh(op: _Operators, x: ir.Value) -> ir.Value:
    return op("Mul", 0.5, op("Add", op("Exp", x), op("Exp", op("Neg", x))))


def _sinh(op: _Operators, x: ir.Value) -> ir.Value:
    """Return tanh(x / 2) (1 + cosh x), which is exact near 0 as well."""
    return op("Mul", op("Tanh", op("Mul", x, 0.5)), op("Add", 1.0, _cosh(op, x)))


def _leaky_relu(op: _Operators, x: ir.Value, slope: float) -> ir.Value:
    return op("Where", op("Greater", x, 0.0, dtype=ir.DataType.BOOL), x, op("Mul", x, slope))


def _elu(op: _Operators, x: ir.Value, scale: float) -> ir.Value:
    is_positive = op("Greater", x, 0.0, dtype=ir.DataType.BOOL)
    return op("Where", is_positive, x, op("Mul", scale, op("Sub", op("Exp", x), 1.0)))


_FUNCTIONS: dict[str, Callable[[_Operators, ir.Value], ir.Value]] = {
    "Cos": _cos,
    "Tan": _tan,
    "Asin": _asin,
    "Acos": _acos,
    "Atan": _atan,
    "Sinh": _sinh,
    "Cosh": _cosh,
}
_WITH_ALPHA: dict[str, tuple[Callable[[_Operators, ir.Value, float], ir.Value], float]] = {
    "LeakyRelu": (_leaky_relu, 0.01),
    "Elu": (_elu, 1.0),
}
"""Operator -> its replacement, and the default of its attribute ``alpha``."""
FLOAT64_GAPS = frozenset({*_FUNCTIONS, *_WITH_ALPHA, "ReduceL2"})
"""Operators that ``replacement`` replaces."""


def replacement(node: ir.Node) -> list[ir.Node]:
    """Return nodes that compute an operator of ``FLOAT64_GAPS`` in float64; the output of the last one is the result.

    Args:
        node: The node, whose input is float64.
    """
    op, x = _Operators(), node.inputs[0]
    if x is None:
        raise TypeError(f"{node.name} has no input")
    if node.op_type in _FUNCTIONS:
        _FUNCTIONS[node.op_type](op, x)
    elif node.op_type in _WITH_ALPHA:
        function, default = _WITH_ALPHA[node.op_type]
        alpha = node.attributes["alpha"].as_float() if "alpha" in node.attributes else default
        function(op, x, float(str(np.float32(alpha))))  # 0.01, not its value in float32
    else:
        squares = ir.Node("", "ReduceSumSquare", node.inputs, list(node.attributes.values()))
        squares.outputs[0].dtype = _DOUBLE
        return [squares, ir.node("Sqrt", squares.outputs)]
    return op.nodes
