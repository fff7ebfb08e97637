"""Logarithms, exponentials and error functions near their limits, for the translations of both exporters.

The exporters write formulas that lose small values or overflow (torch 2.13): ``log1p`` as ``log(1 + x)``, which is 0
for 1e-8; ``logsigmoid`` as ``log(sigmoid(x))``, which is -inf for -20, where ONNX Runtime's Sigmoid is 0; and
``logaddexp`` as ``log(exp(x) + exp(y))``, which is inf for 90. ONNX Runtime's Softplus is ``log(1 + exp(x))``. ``erfc``
is ``1 - erf(x)``, which is 0 for 4, so ``log_ndtr`` is -inf for -9.5; TorchScript's exporter writes
``binary_cross_entropy_with_logits`` with ``log(1 - sigmoid(x))``, and returns NaN for 20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALL = 0.5
_CENTER = 4.0
# fmt: off
_ERFCX = (
    1.2329951186255526, -0.13962111671571456, 0.015379652097866323, 0.06809704824544172, -0.10103906580556923,
    0.09373291969276316, -0.06633036913040936, 0.037166976951262753, -0.016197712227840357, 0.005033799256631894,
    -0.0007578514116024651, -0.0002028233117425415, 0.00015078653883168926, -2.034612380602921e-05,
    -1.1433794171278303e-05, 3.125559404817635e-06, 4.586549430991918e-07,
)
# fmt: on
"""Coefficients of ``t ** n`` for ``(1 + 2 * x) * erfcx(x)`` with ``t = (x - 4) / (x + 4)``, for x of at least 0.

Computed with mpmath by interpolation at Chebyshev nodes, as Shepherd and Laframboise do ("Chebyshev approximation of
(1 + 2x) exp(x²) erfc x", 1981); the relative error is below 1e-11.
"""


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


def erfc(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401
    """Return ``1 - erf(x)``, also where it is small."""
    size = op.Abs(x)
    tail = op.Mul(op.Exp(op.Neg(op.Mul(size, size))), _erfcx_of_size(op, number, size))
    return op.Where(op.Less(x, number(0.0)), op.Sub(number(2.0), tail), tail)


def erfcx(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401
    """Return ``exp(x ** 2) * erfc(x)``."""
    of_size = _erfcx_of_size(op, number, op.Abs(x))
    of_negative = op.Sub(op.Mul(number(2.0), op.Exp(op.Mul(x, x))), of_size)
    return op.Where(op.Less(x, number(0.0)), of_negative, of_size)


def _erfcx_of_size(op: Any, number: Callable[[float], Any], size: Any) -> Any:  # noqa: ANN401
    t = op.Sub(number(1.0), op.Div(number(2 * _CENTER), op.Add(size, number(_CENTER))))
    total = number(_ERFCX[-1])
    for coefficient in reversed(_ERFCX[:-1]):
        total = op.Add(op.Mul(total, t), number(coefficient))
    return op.Div(total, op.Add(op.Mul(size, number(2.0)), number(1.0)))


def log_ndtr(op: Any, number: Callable[[float], Any], x: Any) -> Any:  # noqa: ANN401
    """Return the logarithm of the share of a normal distribution below x."""
    t = op.Mul(x, number(math.sqrt(0.5)))
    half = number(0.5)
    below = op.Sub(op.Log(op.Mul(erfcx(op, number, op.Neg(t)), half)), op.Mul(t, t))
    above = log1p(op, number, op.Neg(op.Mul(erfc(op, number, t), half)))
    return op.Where(op.Less(x, number(1.0)), below, above)


def cross_entropy_of_logits(op: Any, number: Callable[[float], Any], x: Any, target: Any, weight: Any = None) -> Any:  # noqa: ANN401
    """Return the binary cross-entropy of each logit; ``weight`` is that of positive targets."""
    one, loss = number(1.0), log_sigmoid(op, number, x)
    if weight is not None:
        loss = op.Mul(loss, op.Add(op.Mul(op.Sub(weight, one), target), one))
    return op.Sub(op.Mul(op.Sub(one, target), x), loss)
