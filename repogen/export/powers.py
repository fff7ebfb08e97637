"""Powers of integers as PyTorch computes them, for the translations of both exporters.

ONNX Runtime computes ``Pow`` of integers in float64: ``31 ** 11`` is rounded, and values beyond int64 do not wrap.
TorchScript's exporter casts integers to float32 (torch 2.13). Products of integers are exact, and wrap as in PyTorch.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS = 16
"""Of an exponent that is known at runtime only."""


def integer_power(op: Any, number: Callable[[int], Any], base: Any, exponent: Any) -> Any:  # noqa: ANN401 - values of an exporter are not typed
    """Return ``base ** exponent`` of integers.

    Args:
        op: Creates operators: ``op.Mul(x, y)``.
        number: Returns a constant of the type of ``base``.
        base: The base, a tensor.
        exponent: A Python integer of at least 0, or a tensor of the same type, with values below 2 ** 16.
    """
    if isinstance(exponent, int):
        factors = []
        while exponent:
            if exponent % 2:
                factors.append(base)
            exponent //= 2
            base = op.Mul(base, base) if exponent else base
        return reduce(op.Mul, factors, number(1)) if factors else op.Add(op.Mul(base, number(0)), number(1))
    one, two = number(1), number(2)
    result, rest, factor = one, exponent, base
    for _ in range(_BITS):
        is_odd = op.Equal(op.Mod(rest, two), one)
        result = op.Mul(result, op.Where(is_odd, factor, one))
        factor, rest = op.Mul(factor, factor), op.Div(rest, two)
    # The quotient of 1 and a power, rounded toward zero.
    is_even = op.Equal(op.Mod(exponent, two), number(0))
    of_minus_one = op.Where(op.Equal(base, number(-1)), op.Where(is_even, one, number(-1)), number(0))
    inverse = op.Where(op.Equal(base, one), one, of_minus_one)
    return op.Where(op.Less(exponent, number(0)), inverse, result)
