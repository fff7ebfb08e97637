"""Compares a server's outputs with PyTorch's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Array, Arrays


@dataclass(frozen=True)
class Comparison:
    """The result of one comparison.

    Attributes:
        equal: Whether every output is within its tolerance.
        detail: The largest difference, or the reason for each output that differs.
        max_abs_diff: The largest difference; infinite where an output could not be compared.
    """

    equal: bool
    detail: str
    max_abs_diff: float


def compare(expected: Arrays, actual: Arrays, tolerances: Mapping[str, tuple[float, float]]) -> Comparison:
    """Compare every expected output with the server's.

    Args:
        expected: PyTorch's outputs by name, in their shapes on the wire.
        actual: The server's outputs by name.
        tolerances: ``(rtol, atol)`` by output name.
    """
    reasons, largest = [], 0.0
    for name, array in expected.items():
        if name not in actual:
            reasons.append(f"{name}: the server did not return it")
            largest = math.inf
            continue
        reason, difference = _compare_array(array, actual[name], *tolerances[name])
        largest = max(largest, math.inf if reason and not difference else difference)
        if reason:
            reasons.append(f"{name}: {reason}")
    return Comparison(not reasons, "; ".join(reasons) or f"max_abs_diff {largest:.3g}", largest)


def _compare_array(expected: Array, actual: Array, rtol: float, atol: float) -> tuple[str, float]:
    """Return the reason why two arrays differ ("" if they do not), and the largest difference."""
    if expected.shape != actual.shape:
        return f"shape {expected.shape} expected, got {actual.shape}", 0.0
    if expected.dtype != actual.dtype:
        return f"dtype {expected.dtype} expected, got {actual.dtype}", 0.0
    if expected.dtype.kind in "OSU" or (expected.dtype.kind in "biu" and rtol == atol == 0):
        unequal = int(np.count_nonzero(expected != actual))
        return (f"{unequal} of {expected.size} elements differ" if unequal else ""), 0.0
    x, y = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    if (nan_in_one := np.isnan(x) != np.isnan(y)).any():
        return f"NaN in only one of the two at {_first_index(nan_in_one)}", 0.0
    with np.errstate(invalid="ignore"):  # inf - inf, where x == y
        difference = np.where((x == y) | np.isnan(x), 0.0, np.abs(x - y))
    largest = float(difference.max(initial=0.0))
    with np.errstate(invalid="ignore"):  # 0 * inf
        allowed = atol + rtol * np.where(np.isfinite(x), np.abs(x), 0.0)
    exceeds = difference > allowed
    if not exceeds.any():
        return "", largest
    worst_at = np.unravel_index(int(np.argmax(difference - allowed)), difference.shape)
    return (
        f"{int(exceeds.sum())} of {exceeds.size} elements beyond rtol {rtol:g}, atol {atol:g}; max_abs_diff "
        f"{largest:.3g}; at {[int(axis) for axis in worst_at]} expected {x[worst_at]:.6g}, got {y[worst_at]:.6g}"
    ), largest


def _first_index(mask: Array) -> str:
    first = [int(axis[0]) for axis in mask.nonzero()]
    return f"{first} ({int(mask.sum())} elements)"
