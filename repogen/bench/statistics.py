"""Medians over rounds and their confidence intervals."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING

from repogen.artifacts.bench import Estimate, Sample
from repogen.smoke.timing import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESAMPLES = 2_000
_CONFIDENCE = 0.95


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of the rounds and its 95% confidence interval.

    The interval is the percentile bootstrap over the rounds: the rounds are drawn again with replacement 2,000 times,
    from a fixed seed, and the interval contains 95% of the medians. With few rounds it is close to their range.

    >>> estimate([3.0, 1.0, 2.0])
    Estimate(value=2.0, low=1.0, high=3.0)
    >>> estimate([5.0])
    Estimate(value=5.0, low=5.0, high=5.0)
    """
    generator = random.Random(0)  # noqa: S311 - statistics, not a secret
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    tail = (1 - _CONFIDENCE) / 2
    return Estimate(median(values), quantile(medians, tail), quantile(medians, 1 - tail))


def summarize(latencies: Sequence[float], rows: int) -> Sample:
    """Return the sample of requests that ran one after another.

    >>> summarize([1.0, 2.0, 1.0], rows=4)
    Sample(p50=1.0, p95=2.0, p99=2.0, throughput=3000.0, requests=3)

    Args:
        latencies: Milliseconds; at least one.
        rows: Rows of each request.
    """
    ordered = sorted(latencies)
    p50, p95, p99 = (quantile(ordered, fraction) for fraction in (0.5, 0.95, 0.99))
    return Sample(p50, p95, p99, throughput=1e3 * rows * len(ordered) / sum(ordered), requests=len(ordered))
