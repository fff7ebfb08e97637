"""Quotients and remainders as PyTorch computes them, for the translations of both exporters.

The exporters round ``x / y`` first (torch 2.13). That is off by one, or by the divisor, where the rounded quotient is
an integer: ``1.0 // 0.1`` is 9, and ``1.0 / 0.1`` is 10. PyTorch computes the remainder first, which is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def floor_quotient(op: Any, number: Callable[[float], Any], x: Any, divisor: Any) -> Any:  # noqa: ANN401 - values of an exporter are not typed
    """Return ``x // divisor`` of floats.

    Args:
        op: Creates operators: ``op.Mod(x, y, fmod=1)``.
        number: Returns a constant of the type of ``x``.
        x: The dividend.
        divisor: The divisor, of the same type.
    """
    remainder, is_below = _signed_remainder(op, number, x, divisor)
    quotient = op.Div(op.Sub(x, remainder), divisor)
    quotient = op.Where(is_below, op.Sub(quotient, number(1.0)), quotient)
    rounded = op.Floor(quotient)
    is_above = op.Greater(op.Sub(quotient, rounded), number(0.5))
    rounded = op.Where(is_above, op.Add(rounded, number(1.0)), rounded)
    return op.Where(op.Equal(divisor, number(0.0)), op.Div(x, divisor), rounded)


def floor_quotient_of_integers(op: Any, x: Any, divisor: Any) -> Any:  # noqa: ANN401
    """Return ``x // divisor`` of integers: ONNX rounds toward zero, and ``-(-size // 4)`` is common."""
    return op.Div(op.Sub(x, op.Mod(x, divisor)), divisor)


def remainder_of_floats(op: Any, number: Callable[[float], Any], x: Any, divisor: Any) -> Any:  # noqa: ANN401
    """Return ``x % divisor``, which has the sign of the divisor; see ``floor_quotient``."""
    remainder, is_below = _signed_remainder(op, number, x, divisor)
    return op.Where(is_below, op.Add(remainder, divisor), remainder)


def _signed_remainder(op: Any, number: Callable[[float], Any], x: Any, divisor: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the remainder with the sign of ``x``, and where it is not 0 and the divisor has the other sign."""
    remainder = op.Mod(x, divisor, fmod=1)
    has_other_sign = op.Xor(op.Less(remainder, number(0.0)), op.Less(divisor, number(0.0)))
    return remainder, op.And(op.Not(op.Equal(remainder, number(0.0))), has_other_sign)
