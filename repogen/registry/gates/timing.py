"""The gates that time requests: latency and throughput."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import GateResult, Paired, Ratio
from repogen.registry.gates.ab_timing import alternate
from repogen.registry.gates.interface import Champion, Gate, Requires, Versions, judge_figure
from repogen.smoke.inference import RefusedError
from repogen.spec.gates import LatencyGate, ThroughputGate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.smoke.inference import WireTensor

_BURST_ROUNDS = 3
"""Rounds of bursts take longer than those of single requests: fewer fit into the same time, and they vary more."""
_BURST_WARM_UP = 3


@dataclass(frozen=True)
class Times:
    """Times of both versions.

    Attributes:
        paired: The times.
        champion: The champion that they are compared with.
        burst: Requests per burst; 1 for single requests.
    """

    paired: Paired
    champion: Champion
    burst: int = 1


class Latency(Gate[LatencyGate, Times]):
    """Latency of single-row requests, one after another."""

    options = LatencyGate
    requires = Requires.SERVED

    def compares(self, options: LatencyGate) -> bool:
        """Return whether the ratio is limited, or recorded because there is no limit."""
        return options.max_ratio is not None or options.p95_max_ms is None

    def measure(self, options: LatencyGate, versions: Versions) -> Times:
        """Time both versions alternately."""
        candidate = versions.candidate.require_served()
        request = candidate.row()
        champion = _comparable_champion(versions.champion, request)
        served_champion = champion.served
        champion_request = None if served_champion is None else lambda: served_champion.send(request)
        return Times(alternate(lambda: candidate.send(request), champion_request, versions.schedule), champion)

    def judge(self, options: LatencyGate, measurement: Times) -> Iterator[GateResult]:
        """Yield the 95th percentile, and the ratio of medians."""
        paired = measurement.paired
        candidate = paired.candidate
        text = f"{candidate.p95:.2f} ms (p50 {candidate.p50:.2f}, {candidate.requests} requests)"
        yield judge_figure("latency.p95_max_ms", candidate.p95, text, at_most=options.p95_max_ms)
        name, limit = "latency.max_ratio", options.max_ratio
        if paired.ratio is not None and paired.champion is not None:
            text = f"p50 {candidate.p50:.2f} ms, champion {paired.champion.p50:.2f} ms"
            yield _judge_ratio(name, paired.ratio, text, at_most=limit)
        elif limit is not None:
            yield measurement.champion.judge_missing(name, f"<= {limit:g}")


class Throughput(Gate[ThroughputGate, Times]):
    """Rows per second in bursts of single-row requests."""

    options = ThroughputGate
    requires = Requires.SERVED

    def compares(self, options: ThroughputGate) -> bool:
        """Return True: the ratio is recorded also without a limit."""
        return True

    def measure(self, options: ThroughputGate, versions: Versions) -> Times:
        """Time bursts of both versions alternately."""
        candidate = versions.candidate.require_served()
        request, size = candidate.row(), candidate.burst_size()
        champion = _comparable_champion(versions.champion, request)
        served_champion = champion.served
        champion_burst = None if served_champion is None else lambda: served_champion.send_many(request, size)
        schedule = replace(
            versions.schedule,
            round_seconds=_BURST_ROUNDS * versions.schedule.round_seconds,
            warm_up=_BURST_WARM_UP,
            typical=statistics.fmean,  # throughput includes every outlier
        )
        paired = alternate(lambda: candidate.send_many(request, size), champion_burst, schedule)
        return Times(paired, champion, size)

    def judge(self, options: ThroughputGate, measurement: Times) -> Iterator[GateResult]:
        """Yield the ratio of rows per second, or the candidate's rows per second."""
        paired, burst, limit = measurement.paired, measurement.burst, options.min_ratio
        rows = burst / paired.candidate.mean * 1e3
        if paired.ratio is not None and paired.champion is not None:
            champion_rows = burst / paired.champion.mean * 1e3
            text = f"{rows:.0f} rows/s, champion {champion_rows:.0f} rows/s, in bursts of {burst}"
            yield _judge_ratio("throughput.min_ratio", _inverse(paired.ratio), text, at_least=limit)
        elif limit is not None:
            yield measurement.champion.judge_missing("throughput.min_ratio", f">= {limit:g}")
        else:
            yield judge_figure("throughput", rows, f"{rows:.0f} rows/s in bursts of {burst}")


def _comparable_champion(champion: Champion, request: list[WireTensor]) -> Champion:
    """Return the champion; without the served version if it does not accept the candidate's golden row."""
    if champion.served is not None:
        try:
            champion.served.send(request)
        except RefusedError as error:
            return replace(champion, served=None, obstacle=f"it rejects the candidate's inputs: {error.message}")
    return champion


def _judge_ratio(
    gate: str, ratio: Ratio, text: str, *, at_most: float | None = None, at_least: float | None = None
) -> GateResult:
    limit = at_most if at_most is not None else at_least
    is_close = limit is not None and ratio.low < limit < ratio.high
    note = "the limit is within the confidence interval: a second run may have a different result" if is_close else ""
    text = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), {text}"
    return judge_figure(gate, ratio.value, text, at_most=at_most, at_least=at_least, note=note)


def _inverse(ratio: Ratio) -> Ratio:
    return Ratio(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.blocks)
