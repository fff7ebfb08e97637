"""Latency of single-row requests, as a client sees it: an impression, not a benchmark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from repogen.artifacts.serving import Latency
from repogen.smoke.sequences import alone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.smoke.deployed_model import Subject
    from repogen.smoke.inference import InferenceClient
    from repogen.smoke.limits import Limits


def latency(client: InferenceClient, subject: Subject, limits: Limits) -> Latency:
    """Time requests, one after another, until there are enough or the time is up; at least one."""
    case = subject.smallest.rows([0]) if subject.max_batch_size > 0 else subject.smallest
    inputs = subject.wire(case.inputs)
    in_sequences = subject.config.HasField("sequence_batching")
    started, times = time.perf_counter(), list[float]()
    while not times or (
        len(times) < limits.latency_requests and time.perf_counter() - started < limits.latency_seconds
    ):
        sent = time.perf_counter()
        client.infer(subject.served_as, subject.version, inputs, alone() if in_sequences else None)
        times.append((time.perf_counter() - sent) * 1e3)
    times.sort()
    return Latency(quantile(times, 0.5), quantile(times, 0.95), quantile(times, 0.99), len(times))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the smallest of the measured values such that at least ``fraction`` of all are not larger.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    return ordered[max(-int(-fraction * len(ordered) // 1), 1) - 1]
