"""Measures whether a graph is faster than another: interleaved rounds in one process, with equal threads.

The gain counts if the whole confidence interval of the ratio of the latencies is above a threshold. The interval is
that of a median by order statistics, which assumes nothing about the distribution of the noise: of 15 rounds, the
fourth smallest and the fourth largest ratio are the ends of an interval that contains the median in 96% of cases.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Protocol

import onnxruntime

from repogen.artifacts.built_model import Gain
from repogen.onnx_graph.session import open_session, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Arrays

ROUNDS = 15
_RANK = 3
"""Ratios on each side that are outside the interval."""
REQUIRED = 1.02
"""Lower end of the interval from which a result is used: a smaller gain is not worth another graph."""
_ROUND_SECONDS = 0.05
"""A round runs each graph for about this long, so that the clock and the scheduler matter little."""


class Timer(Protocol):
    """Measures the gain of a graph; tests replace it."""

    def __call__(self, before: Path, after: Path, cases: Sequence[Arrays], threads: int, /) -> Gain:
        """Return the gain.

        Args:
            before: The graph before a pass.
            after: Its result.
            cases: Inputs; at least one.
            threads: Number of compute threads of each graph.
        """


def measure_gain(before: Path, after: Path, cases: Sequence[Arrays], threads: int) -> Gain:
    """Run both graphs in ONNX Runtime on the CPU, one after the other in each round; see ``Timer``."""
    runs = [_prepared(path, cases, threads) for path in (before, after)]
    slowest = max(_seconds(run_cases, 1) for run_cases in runs)
    repeats = max(1, round(_ROUND_SECONDS / max(slowest, 1e-6)))
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            seconds[index].append(_seconds(runs[index], repeats))
    return gain_of(*seconds)


def gain_of(before: Sequence[float], after: Sequence[float]) -> Gain:
    """Return the gain of latencies in seconds, one of each graph per round.

    >>> gain = gain_of([0.002] * 15, [0.001] * 12 + [0.002] * 3)
    >>> gain.ratio, gain.low, gain.pays
    (2.0, 2.0, True)
    """
    ratios = sorted(first / second for first, second in zip(before, after, strict=True))
    return Gain(median(before) * 1e3, median(after) * 1e3, median(ratios), ratios[_RANK], ratios[-1 - _RANK], REQUIRED)


def _prepared(path: Path, cases: Sequence[Arrays], threads: int) -> Callable[[], None]:
    """Return a function that runs a graph on every case, after a warm-up."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Spinning threads would take the cores from the other graph.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = open_session(path, options)
    names = [output.name for output in session.get_outputs()]

    def run_cases() -> None:
        for inputs in cases:
            run(session, names, inputs)

    for _ in range(2):
        run_cases()
    return run_cases


def _seconds(run_cases: Callable[[], None], repeats: int) -> float:
    """Return the time of one run of all cases, as the mean of several."""
    begin = time.perf_counter()
    for _ in range(repeats):
        run_cases()
    return (time.perf_counter() - begin) / repeats
