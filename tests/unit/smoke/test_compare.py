"""compare: tolerance, NaN, infinities, integers, shapes and dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from repogen.smoke.compare import Comparison, compare

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array

NAN, INF = float("nan"), float("inf")


def compared(expected: Array, got: Array, rtol: float = 1e-3, atol: float = 1e-5) -> Comparison:
    """Compare one output."""
    return compare({"y": expected}, {"y": got}, {"y": (rtol, atol)})


@pytest.mark.parametrize(
    ("expected", "got", "equal"),
    [
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([0.0, 1.0], [NAN, 1.0], False),
        ([NAN, 1.0], [0.0, 1.0], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([INF, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [INF, 1.0], False),
        ([], [], True),
    ],
)
def test_floats(expected: list[float], got: list[float], equal: bool) -> None:  # noqa: FBT001
    """Floats are equal within tolerance; NaN equals NaN only, an infinity only itself."""
    assert equal == compared(np.array(expected, np.float32), np.array(got, np.float32)).equal


def test_figures_of_a_miss() -> None:
    """A miss says how many elements, how far, and where the worst one is."""
    verdict = compared(np.array([[1.0, 2.0]], np.float32), np.array([[1.0, 2.5]], np.float32))
    expected = "y: 1 of 2 elements beyond rtol 0.001, atol 1e-05; max_abs_diff 0.5; at [0, 1] expected 2, got 2.5"
    assert expected == verdict.detail


def test_figures_of_a_hit() -> None:
    """A hit says how close it was."""
    assert compared(np.array([1.0]), np.array([1.25]), atol=0.5).detail == "max_abs_diff 0.25"


@pytest.mark.parametrize(
    ("expected", "got", "detail"),
    [
        (np.array([2**62 + 1]), np.array([2**62]), "y: 1 of 1 elements differ"),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), "y: 1 of 2 elements differ"),
        (np.array([1, 2]), np.array([[1, 2]]), "y: shape (2,) expected, got (1, 2)"),
        (np.array([1], np.int64), np.array([1], np.int32), "y: dtype int64 expected, got int32"),
    ],
)
def test_exact_comparisons(expected: Array, got: Array, detail: str) -> None:
    """Integers without tolerance and strings are equal or not; shape and dtype come first."""
    assert detail == compared(expected, got, 0.0, 0.0).detail


def test_missing_output_is_named() -> None:
    """An output that did not come is no empty comparison."""
    verdict = compare({"y": np.zeros(1)}, {}, {"y": (0.0, 0.0)})
    assert Comparison(equal=False, detail="y: the server did not return it", max_abs_diff=INF) == verdict
