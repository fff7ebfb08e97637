"""Times two versions alternately on one server, so that a temporary slowdown of the machine affects both."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from repogen.artifacts.promotion import Paired, Ratio, Timing
from repogen.smoke.timing import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    SendRequest: TypeAlias = Callable[[], object]

_RESAMPLES = 2000
_RUNS = 8
_MIN_WARM_UP = 2
_ORDERS = ("abba", "baab")
"""Order of a block's rounds: each version is first and last equally often, so that a steady drift cancels out."""


@dataclass(frozen=True)
class Schedule:
    """How long to time requests.

    Attributes:
        blocks: Number of blocks of four rounds, two per version.
        least_blocks: Number of blocks that are run even when the time is over.
        round_seconds: Intended duration of a round; determines its number of requests.
        most_requests: Largest number of requests per round.
        warm_up: Number of requests to each version before the first block.
        seconds: No further block is started after this time.
        typical: Reduces the times of a block to one: the median, which ignores outliers, or the mean.
    """

    blocks: int = 40
    least_blocks: int = 3
    round_seconds: float = 0.03
    most_requests: int = 50
    warm_up: int = 10
    seconds: float = 30.0
    typical: Callable[[list[float]], float] = statistics.median


@dataclass
class _Times:
    """Milliseconds of each request: of finished blocks, and of the current block."""

    send: SendRequest
    finished: list[float] = field(default_factory=list)
    block: list[float] = field(default_factory=list)


def alternate(
    candidate: SendRequest,
    champion: SendRequest | None,
    schedule: Schedule,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Time two versions alternately, in blocks of four short rounds.

    Args:
        candidate: Sends one request and waits for its response.
        champion: The same for the champion; None to time only the candidate.
        schedule: How long.
        clock: Returns seconds, monotonic.

    Returns:
        Times in milliseconds; the ratio is the median of the blocks' ratios.
    """
    a, b = _Times(candidate), None if champion is None else _Times(champion)
    versions = [a] if b is None else [a, b]
    began = clock()
    requests = min(_warm_up(times, schedule, clock) for times in versions)
    ratios: list[float] = []
    for block in range(schedule.blocks):
        if block >= schedule.least_blocks and clock() - began > schedule.seconds:
            break
        for letter in _ORDERS[block % len(_ORDERS)]:
            _run_round(a if letter == "a" else b, requests, clock)
        typical = [_finish_block(times, schedule.typical) for times in versions]
        ratios += [typical[0] / typical[1]] if b is not None else []
    return Paired(_timing(a), None if b is None else _timing(b), _ratio(ratios) if ratios else None)


def _warm_up(times: _Times, schedule: Schedule, clock: Callable[[], float]) -> int:
    """Return the number of requests that a round should have."""
    began, seconds = clock(), list[float]()
    while len(seconds) < schedule.warm_up and (len(seconds) < _MIN_WARM_UP or clock() - began < schedule.seconds / 4):
        start = clock()
        times.send()
        seconds.append(clock() - start)
    per_request = max(statistics.median(seconds), 1e-9)
    return max(1, min(schedule.most_requests, int(schedule.round_seconds / per_request)))


def _run_round(times: _Times | None, requests: int, clock: Callable[[], float]) -> None:
    if times is None:
        return
    for _ in range(requests):
        start = clock()
        times.send()
        times.block.append((clock() - start) * 1e3)


def _finish_block(times: _Times, typical: Callable[[list[float]], float]) -> float:
    value = typical(times.block)
    times.finished += times.block
    times.block = []
    return value


def _timing(times: _Times) -> Timing:
    durations = sorted(times.finished)
    return Timing(quantile(durations, 0.5), quantile(durations, 0.95), statistics.fmean(durations), len(durations))


def _ratio(ratios: Sequence[float]) -> Ratio:
    """Return the median of the blocks' ratios, and the 95% interval of a bootstrap over runs of neighboring blocks.

    Neighboring blocks are correlated, because the load of the machine changes slowly: resampling single blocks would
    give an interval that is too narrow.
    """
    generator = random.Random(0)  # noqa: S311 - resampling is not cryptography
    length = max(1, len(ratios) // _RUNS)
    runs = [ratios[start : start + length] for start in range(len(ratios) - length + 1)]
    resamples = (chain.from_iterable(generator.choices(runs, k=-(-len(ratios) // length))) for _ in range(_RESAMPLES))
    medians = sorted(map(statistics.median, resamples))
    return Ratio(statistics.median(ratios), quantile(medians, 0.025), quantile(medians, 0.975), len(ratios))
