"""Counts the errors of an output by their order of magnitude, for reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array

_BLOCK = 2**20
"""Values that are compared at a time: float64 copies of a large output could exceed the memory."""


class ErrorHistogram:
    """The errors of one output over all cases.

    Attributes:
        exact: Number of equal values.
        bins: Number of the other values by ``floor(2 * log10(error))``.
    """

    def __init__(self) -> None:
        """Begin without values."""
        self.exact = 0
        self.bins: Counter[int] = Counter()

    def add(self, expected: Array, actual: Array) -> None:
        """Count the errors of one case; arrays of different shapes, and of strings, have none.

        Example::

            histogram = ErrorHistogram()
            histogram.add(np.array([1.0, 2.0]), np.array([1.0, 2.02]))
            histogram.exact, dict(histogram.bins)  # (1, {-4: 1}): the error 0.02 is between 10**-2 and 10**-1.5
        """
        if expected.shape != actual.shape or not {expected.dtype.kind, actual.dtype.kind} <= set("biuf"):
            return
        reference, values = expected.ravel(), actual.ravel()
        for start in range(0, reference.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            with np.errstate(invalid="ignore"):
                errors = np.abs(reference[block].astype(np.float64) - values[block].astype(np.float64))
            positive = errors[np.isfinite(errors) & (errors > 0)]
            self.exact += int(np.count_nonzero(errors == 0))
            if positive.size:
                keys = np.floor(2 * np.log10(positive)).astype(np.int64)
                lowest = int(keys.min())
                counts = np.bincount(keys - lowest).tolist()
                self.bins.update({lowest + index: count for index, count in enumerate(counts) if count})
