"""Two versions timed in turns on one server: what slows the machine down for a while slows both down."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Paired, Ratio, Timing
from repogen.smoke.timing import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ask = Callable[[], object]

_RESAMPLES = 2000
_RUNS = 8
_LEAST = 2
_ORDERS = ("abba", "baab")
"""A block's rounds: each version is first and last once, so that a steady drift of the machine cancels out."""


@dataclass(frozen=True)
class Schedule:
    """How long to measure.

    Attributes:
        blocks: Blocks of four rounds, two a version.
        least_blocks: Blocks that are run even when the time is up.
        round_seconds: What a round should take; decides how many requests it has.
        most_requests: Of one round.
        warm_up: Requests to each version before anything is timed.
        seconds: When no further block is begun.
        typical: Makes one time of those of a block: the median, which no hiccup touches, or the mean.
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
    """Milliseconds of each request, and of those of the present block."""

    ask: Ask
    whole: list[float] = field(default_factory=list)
    block: list[float] = field(default_factory=list)


def alternate(
    candidate: Ask,
    champion: Ask | None,
    schedule: Schedule,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Time two versions in turns, in blocks of four short rounds.

    Args:
        candidate: Makes one request and waits for its answer.
        champion: The same of the champion; None to time the candidate alone.
        schedule: How long.
        clock: Seconds, monotonic.
    """
    a, b = _Times(candidate), None if champion is None else _Times(champion)
    pair = [a] if b is None else [a, b]
    begun = clock()
    requests = min(_warm_up(times, schedule, clock) for times in pair)
    ratios: list[float] = []
    for block in range(schedule.blocks):
        if block >= schedule.least_blocks and clock() - begun > schedule.seconds:
            break
        for letter in _ORDERS[block % len(_ORDERS)]:
            _round(a if letter == "a" else b, requests, clock)
        typical = [_end_block(times, schedule.typical) for times in pair]
        ratios += [typical[0] / typical[1]] if b is not None else []
    return Paired(_timing(a), None if b is None else _timing(b), _ratio(ratios) if ratios else None)


def _warm_up(times: _Times, schedule: Schedule, clock: Callable[[], float]) -> int:
    """Return how many requests a round should have."""
    begun, took = clock(), list[float]()
    while len(took) < schedule.warm_up and (len(took) < _LEAST or clock() - begun < schedule.seconds / 4):
        sent = clock()
        times.ask()
        took.append(clock() - sent)
    a_request = max(statistics.median(took), 1e-9)
    return max(1, min(schedule.most_requests, int(schedule.round_seconds / a_request)))


def _round(times: _Times | None, requests: int, clock: Callable[[], float]) -> None:
    if times is None:
        return
    for _ in range(requests):
        sent = clock()
        times.ask()
        times.block.append((clock() - sent) * 1e3)


def _end_block(times: _Times, typical: Callable[[list[float]], float]) -> float:
    value = typical(times.block)
    times.whole += times.block
    times.block = []
    return value


def _timing(times: _Times) -> Timing:
    ordered = sorted(times.whole)
    return Timing(quantile(ordered, 0.5), quantile(ordered, 0.95), statistics.fmean(ordered), len(ordered))


def _ratio(ratios: Sequence[float]) -> Ratio:
    """Return the median of the blocks' ratios, and the interval of a bootstrap that draws runs of neighboring blocks.

    Neighbors share what else the machine does: drawn one by one, they would promise more than they know.
    """
    chance = random.Random(0)  # noqa: S311 - resampling, no secret
    length = max(1, len(ratios) // _RUNS)
    runs = [ratios[start : start + length] for start in range(len(ratios) - length + 1)]
    drawn = (chain.from_iterable(chance.choices(runs, k=-(-len(ratios) // length))) for _ in range(_RESAMPLES))
    medians = sorted(map(statistics.median, drawn))
    return Ratio(statistics.median(ratios), quantile(medians, 0.025), quantile(medians, 0.975), len(ratios))
