"""Is what the server answered what PyTorch computed?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Array, Arrays


@dataclass(frozen=True)
class Comparison:
    """The verdict on one answer.

    Attributes:
        equal: Within tolerance.
        detail: The largest difference, or what is wrong with which output.
        max_abs_diff: The largest difference; infinite where something could not be compared.
    """

    equal: bool
    detail: str
    max_abs_diff: float


def compare(expected: Arrays, got: Arrays, tolerances: Mapping[str, tuple[float, float]]) -> Comparison:
    """Compare every expected output with the answer's.

    Args:
        expected: PyTorch's outputs by name, in the shapes of the wire.
        got: The server's.
        tolerances: ``(rtol, atol)`` by output name.
    """
    wrong, largest = [], 0.0
    for name, array in expected.items():
        if name not in got:
            wrong.append(f"{name}: the server did not return it")
            largest = math.inf
            continue
        reason, difference = _one(array, got[name], *tolerances[name])
        largest = max(largest, math.inf if reason and not difference else difference)
        if reason:
            wrong.append(f"{name}: {reason}")
    return Comparison(not wrong, "; ".join(wrong) or f"max_abs_diff {largest:.3g}", largest)


def _one(expected: Array, got: Array, rtol: float, atol: float) -> tuple[str, float]:
    """Return why they differ beyond tolerance ("" when they don't), and the largest difference."""
    import numpy as np  # noqa: PLC0415 - the room's import stays light

    if expected.shape != got.shape:
        return f"shape {expected.shape} expected, got {got.shape}", 0.0
    if expected.dtype != got.dtype:
        return f"dtype {expected.dtype} expected, got {got.dtype}", 0.0
    if expected.dtype.kind in "OSU" or (expected.dtype.kind in "biu" and rtol == atol == 0):
        unequal = int(np.count_nonzero(expected != got))
        return (f"{unequal} of {expected.size} elements differ" if unequal else ""), 0.0
    wanted, found = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    if (odd := np.isnan(wanted) != np.isnan(found)).any():
        return f"NaN at {_places(odd)} where only one side has it", 0.0
    with np.errstate(invalid="ignore"):  # inf - inf, which `==` has already judged
        difference = np.where((wanted == found) | np.isnan(wanted), 0.0, np.abs(wanted - found))
    largest = float(difference.max(initial=0.0))
    with np.errstate(invalid="ignore"):  # 0 * inf
        allowed = atol + rtol * np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    beyond = difference > allowed
    if not beyond.any():
        return "", largest
    worst = np.unravel_index(int(np.argmax(difference - allowed)), difference.shape)
    at = [int(axis) for axis in worst]
    return (
        f"{int(beyond.sum())} of {beyond.size} elements beyond rtol {rtol:g}, atol {atol:g}; "
        f"max_abs_diff {largest:.3g}; at {at} expected {wanted[worst]:.6g}, got {found[worst]:.6g}"
    ), largest


def _places(mask: Array) -> str:
    first = [int(axis[0]) for axis in mask.nonzero()]
    return f"{first} ({int(mask.sum())} elements)"
