"""Logarithms and exponentials near their limits, for the translations of both exporters.

The exporters write formulas that lose small values or overflow (torch 2.13): ``log1p`` as ``log(1 + x)``, which is 0
for 1e-8; ``logsigmoid`` as ``log(sigmoid(x))``, which is -inf for -20, where ONNX Runtime's Sigmoid is 0; and
``logaddexp`` as ``log(exp(x) + exp(y))``, which is inf for 90. ONNX Runtime's Softplus is ``log(1 + exp(x))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALL = 0.5


def log1p(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401 - values of an exporter are not typed
    """Return ``log(1 + x)``; for small x, the rounding of ``1 + x`` is divided out.

    Args:
        op: Creates operators: ``op.Add(x, y)``.
        number: Returns a constant of the type of ``x``.
        x: The values.
    """
    one = number(1.0)
    total = op.Add(x, one)
    rounded = op.Sub(total, one)
    is_lost = op.Equal(rounded, number(0.0))
    small = op.Mul(op.Log(total), op.Div(x, op.Where(is_lost, one, rounded)))
    return op.Where(op.Less(op.Abs(x), number(_SMALL)), op.Where(is_lost, x, small), op.Log(total))


def expm1(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401
    """Return ``exp(x) - 1``; for small x, the rounding of ``exp(x)`` is divided out."""
    one = number(1.0)
    power = op.Exp(x)
    result = op.Sub(power, one)
    is_lost = op.Equal(power, one)
    small = op.Mul(result, op.Div(x, op.Where(is_lost, one, op.Log(power))))
    return op.Where(op.Less(op.Abs(x), number(_SMALL)), op.Where(is_lost, x, small), result)


def log_sigmoid(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401
    """Return the logarithm of the sigmoid."""
    zero = number(0.0)
    return op.Sub(op.Where(op.Less(x, zero), x, zero), log1p(op, number, op.Exp(op.Neg(op.Abs(x)))))


def softplus(op: Any, number: Callable[[float], Any], x: Any, beta: float, threshold: float) -> Any:  # noqa: ANN401
    """Return ``log(1 + exp(beta * x)) / beta``, and x where ``beta * x`` is above the threshold."""
    scaled = op.Mul(x, number(beta))
    smooth = op.Div(log1p(op, number, op.Exp(scaled)), number(beta))
    return op.Where(op.Greater(scaled, number(threshold)), x, smooth)


def log_add_exp(op: Any, number: Callable[[float], Any], x: Any, y: Any, log_of_base: float = 1.0) -> Any:  # noqa: ANN401
    """Return the logarithm of ``base**x + base**y``; equal infinities have no difference."""
    is_equal = op.Equal(x, y)
    difference = op.Where(is_equal, number(0.0), op.Sub(x, y))
    decay = op.Exp(op.Mul(op.Neg(op.Abs(difference)), number(log_of_base)))
    rest = op.Div(log1p(op, number, decay), number(log_of_base))
    return op.Add(op.Where(op.Greater(x, y), x, y), rest)
