"""Medians, percentiles and confidence intervals of known numbers."""

from __future__ import annotations

import random

from repogen.bench.statistics import estimate, summarize


def test_interval_contains_the_median_and_lies_within_the_rounds() -> None:
    """The bootstrap draws only from the rounds."""
    result = estimate([5.0, 1.0, 3.0, 2.0, 4.0])

    assert (result.value, 1.0 <= result.low < 3.0 < result.high <= 5.0) == (3.0, True)


def test_same_rounds_give_the_same_interval() -> None:
    """The seed is fixed, and the global generator is not used."""
    values = [1.0, 2.0, 7.0, 3.0]
    random.seed(1)
    first = estimate(values)
    random.seed(2)

    assert estimate(values) == first


def test_interval_covers_the_true_median_about_as_often_as_it_claims() -> None:
    """Of 200 experiments with 15 normally distributed rounds, 95% intervals miss the median in few."""
    generator = random.Random(7)  # noqa: S311 - statistics
    intervals = [estimate([generator.gauss(10, 1) for _ in range(15)]) for _ in range(200)]

    missed_count = sum(not interval.low <= 10 <= interval.high for interval in intervals)

    assert missed_count <= 24


def test_more_rounds_give_a_narrower_interval() -> None:
    """The width shrinks with the number of rounds."""
    generator = random.Random(3)  # noqa: S311 - statistics
    few, many = ([generator.gauss(10, 1) for _ in range(n)] for n in (8, 200))

    assert estimate(many).high - estimate(many).low < estimate(few).high - estimate(few).low


def test_sample_has_nearest_rank_percentiles_and_rows_per_second() -> None:
    """100 calls of 1 to 100 ms with 2 rows each take 5.05 s."""
    sample = summarize([float(value) for value in range(100, 0, -1)], rows=2)

    assert (sample.p50, sample.p95, sample.p99, sample.requests) == (50.0, 95.0, 99.0, 100)
    assert round(sample.throughput, 3) == round(200 / 5.05, 3)
