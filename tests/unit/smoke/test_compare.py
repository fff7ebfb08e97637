"""Comparison of outputs: tolerance, NaN, infinities, integers, shapes and dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from repogen.smoke.compare import Comparison, compare

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array

NAN, INF, BIG = float("nan"), float("inf"), 2**62


def compare_one(expected: Array, actual: Array, rtol: float = 1e-3, atol: float = 1e-5) -> Comparison:
    """Compare one output."""
    return compare({"y": expected}, {"y": actual}, {"y": (rtol, atol)})


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([NAN, 1.0], [NAN, 1.0], False),
        ([0.0, 1.0], [NAN, 1.0], False),
        ([NAN, 1.0], [0.0, 1.0], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([INF, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [INF, 1.0], False),
        ([], [], True),
    ],
)
def test_floats(expected: list[float], actual: list[float], equal: bool) -> None:  # noqa: FBT001
    """Floats are equal within tolerance; an infinity equals only itself, and NaN nothing."""
    assert equal == compare_one(np.array(expected, np.float32), np.array(actual, np.float32)).equal


def test_detail_of_a_difference() -> None:
    """It has the number of elements, the largest difference and its index."""
    comparison = compare_one(np.array([[1.0, 2.0]], np.float32), np.array([[1.0, 2.5]], np.float32))
    expected = "1 of 2 values of 'y' differ, by up to 0.5 (at [0, 1] expected 2, got 2.5; rtol 0.001, atol 1e-05)"
    assert expected == comparison.detail


def test_detail_of_equal_outputs() -> None:
    """It has the largest difference."""
    assert compare_one(np.array([1.0]), np.array([1.25]), atol=0.5).detail == "max_abs_diff 0.25"


@pytest.mark.parametrize(
    ("expected", "actual", "detail"),
    [
        (np.array([BIG + 1]), np.array([BIG]), f"1 of 1 values of 'y' differ (at [0] expected {BIG + 1}, got {BIG})"),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), "1 of 2 strings of 'y' differ"),
        (np.array([1, 2]), np.array([[1, 2]]), "'y' has shape [1, 2], expected [2]"),
        (np.array([1], np.int64), np.array([1], np.int32), "'y' is int32, expected int64"),
    ],
)
def test_exact_comparisons(expected: Array, actual: Array, detail: str) -> None:
    """Integers without tolerance and strings must be equal; shape and dtype are compared first."""
    assert detail == compare_one(expected, actual, 0.0, 0.0).detail


def test_missing_output_is_named() -> None:
    """A missing output is a failure."""
    comparison = compare({"y": np.zeros(1)}, {}, {"y": (0.0, 0.0)})
    assert Comparison(equal=False, detail="'y' was not returned", max_abs_diff=INF) == comparison
