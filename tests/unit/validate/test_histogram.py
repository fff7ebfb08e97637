"""Errors by their order of magnitude."""

from __future__ import annotations

import numpy as np
import pytest

from repogen.validate.histogram import ErrorHistogram


def test_bins_are_half_decades() -> None:
    """Errors of several calls are added; values that are not finite are not counted."""
    histogram = ErrorHistogram()
    histogram.add(np.array([1.0, 2.0, np.inf, np.nan]), np.array([1.0, 2.02, np.inf, 1.0]))
    histogram.add(np.array([0.0, 0.0]), np.array([0.05, 0.02]))
    assert (histogram.exact, dict(histogram.bins)) == (1, {-4: 2, -3: 1})


def test_blocks_of_a_large_output_are_added() -> None:
    """Copies in float64 are limited to a block."""
    expected = np.zeros((3, 2**20), np.float32)
    histogram = ErrorHistogram()
    histogram.add(expected, expected + np.float32(2e-3))
    assert dict(histogram.bins) == {-6: expected.size}


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(np.zeros(2), np.zeros(3)), (np.array(["a"], object), np.array(["b"], object)), (np.zeros(0), np.zeros(0))],
)
def test_what_has_no_errors(expected: np.ndarray, actual: np.ndarray) -> None:
    """Other shapes, strings, and no values."""
    histogram = ErrorHistogram()
    histogram.add(expected, actual)
    assert (histogram.exact, dict(histogram.bins)) == (0, {})


def test_integers_and_booleans_are_numbers() -> None:
    """An unsigned difference must not wrap around."""
    histogram = ErrorHistogram()
    histogram.add(np.array([1, 200], np.uint8), np.array([3, 200], np.uint8))
    histogram.add(np.array([True]), np.array([False]))
    assert (histogram.exact, dict(histogram.bins)) == (1, {0: 2})
