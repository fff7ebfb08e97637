"""Compares a server's outputs with PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.validate.compare import difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Arrays


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
    """Compare every expected output with the server's, by the rules of parity.

    Args:
        expected: PyTorch's outputs by name, in their shapes on the wire.
        actual: The server's outputs by name.
        tolerances: ``(rtol, atol)`` by output name.
    """
    result = difference(expected, actual, tolerances)
    return Comparison(not result.reason, result.reason or f"max_abs_diff {result.max_abs:.3g}", result.max_abs)
