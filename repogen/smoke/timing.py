"""Latency of single-row requests as a client measures it (indicative only), and the quantiles of measurements."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from repogen.artifacts.serving import Latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.smoke.deployed_model import DeployedModel
    from repogen.smoke.inference import Limits


def latency(model: DeployedModel, limits: Limits) -> Latency:
    """Measure requests, one after another and at least one, until their number or the time reaches its limit."""
    inputs = model.single_row
    start, times = time.perf_counter(), list[float]()
    while not times or (len(times) < limits.latency_requests and time.perf_counter() - start < limits.latency_seconds):
        sent_at = time.perf_counter()
        model.infer_row(inputs)
        times.append((time.perf_counter() - sent_at) * 1e3)
    times.sort()
    return Latency(quantile(times, 0.5), quantile(times, 0.95), quantile(times, 0.99), len(times))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the smallest of the measured values such that at least ``fraction`` of all are not larger.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    return ordered[max(-int(-fraction * len(ordered) // 1), 1) - 1]
