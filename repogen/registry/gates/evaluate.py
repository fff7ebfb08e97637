"""Figures -> verdicts, and nothing else: what cannot be measured does not pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import GateResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.promotion import Figures, Paired, Ratio
    from repogen.spec.gates import GatesSpec, HoldoutGate, LatencyGate, ThroughputGate

    Results = Iterator[GateResult]

MB = 2**20
NO_CHAMPION = "no champion to compare with"
CANDIDATE, CHAMPION = "candidate", "champion"
"""Obstacles of everything that asks the one or the other; every other obstacle bears its gate's name."""
_FAILED_SHOWN = 3
_OTHERS_KEPT = 20


def judge(gates: GatesSpec, figures: Figures) -> tuple[GateResult, ...]:
    """Hold what was measured against the limits.

    A ratio to a champion that does not exist passes, with a note. A figure that could not be measured, for whatever
    reason, fails its limits.
    """
    results = [*_smoke(figures), *_parity(gates, figures), *_size(gates, figures)]
    if gates.latency is not None:
        results += _latency(gates.latency, figures)
    if gates.throughput is not None:
        results += _throughput(gates.throughput, figures)
    if gates.holdout is not None:
        results += _holdout(gates.holdout, figures)
    return tuple(results)


def passed(results: tuple[GateResult, ...]) -> bool:
    """Tell whether no gate failed."""
    return all(result.verdict is not Verdict.FAILED for result in results)


def _smoke(figures: Figures) -> Results:
    if figures.smoke is None:
        return
    checks = figures.smoke.checks
    failed = [f"{check.name}: {check.detail}" for check in checks if not check.passed]
    more = len(failed) - _FAILED_SHOWN
    note = "; ".join(failed[:_FAILED_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    verdict = Verdict.PASSED if figures.smoke.passed else Verdict.FAILED
    yield GateResult("smoke", f"{len(checks) - len(failed)}/{len(checks)} checks", "all", verdict, note)


def _parity(gates: GatesSpec, figures: Figures) -> Results:
    served = figures.smoke.max_abs_diff if figures.smoke is not None else None
    worst = figures.parity_built if served is None else _worse(figures.parity_built, served)
    asked = "not asked" if served is None else f"{served:.1e}"
    shown = f"{worst:.1e} (built {figures.parity_built:.1e}, served {asked})"
    yield _held("parity.max_abs_diff", worst, shown, most=gates.parity.max_abs_diff)


def _worse(one: float, other: float) -> float:
    """Return the larger difference; NaN is the largest."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _size(gates: GatesSpec, figures: Figures) -> Results:
    megabytes = figures.size / MB
    most = gates.size.max_mb if gates.size is not None else None
    yield _held("size.max_mb", megabytes, f"{megabytes:.3g} MB", most=most)
    if gates.size is None or gates.size.max_ratio is None:
        return
    gate, most = "size.max_ratio", gates.size.max_ratio
    if figures.champion_size is None:
        yield _without_champion(gate, figures, f"<= {most:g}")
        return
    ratio = figures.size / max(figures.champion_size, 1)
    beside = f"{ratio:.3f}, to version {figures.champion}'s {figures.champion_size / MB:.3g} MB"
    yield _held(gate, ratio, beside, most=most)


def _latency(limits: LatencyGate, figures: Figures) -> Results:
    paired = figures.latency
    if paired is None:
        named = {"latency.p95_max_ms": limits.p95_max_ms, "latency.max_ratio": limits.max_ratio}
        yield from _unmeasured("latency", {gate: f"<= {most:g}" for gate, most in named.items() if most}, figures)
        return
    own = paired.candidate
    shown = f"{own.p95:.2f} ms (p50 {own.p50:.2f}, {own.requests} requests)"
    yield _held("latency.p95_max_ms", own.p95, shown, most=limits.p95_max_ms)
    gate, most = "latency.max_ratio", limits.max_ratio
    if paired.ratio is not None and paired.champion is not None:
        beside = f"p50 {own.p50:.2f} to {paired.champion.p50:.2f} ms"
        yield _ratio(gate, paired.ratio, beside, most=most)
    elif most is not None:
        yield _without_champion(gate, figures, f"<= {most:g}")


def _throughput(limits: ThroughputGate, figures: Figures) -> Results:
    gate, least, paired = "throughput.min_ratio", limits.min_ratio, figures.bursts
    if paired is None:
        yield from _unmeasured("throughput", {gate: f">= {least:g}"} if least else {}, figures)
        return
    own = _rows_a_second(paired, figures.burst)
    if paired.ratio is not None and paired.champion is not None:
        theirs = figures.burst / paired.champion.mean * 1e3
        beside = f"{own:.0f} to {theirs:.0f} rows/s in bursts of {figures.burst}"
        yield _ratio(gate, _inverse(paired.ratio), beside, least=least)
    elif least is not None:
        yield _without_champion(gate, figures, f">= {least:g}")
    else:
        yield _held("throughput", own, f"{own:.0f} rows/s in bursts of {figures.burst}")


def _rows_a_second(paired: Paired, burst: int) -> float:
    return burst / paired.candidate.mean * 1e3


def _inverse(ratio: Ratio) -> Ratio:
    return type(ratio)(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.blocks)


def _holdout(limits: HoldoutGate, figures: Figures) -> Results:
    least, most = limits.min, limits.max_drop
    shown = {"holdout.min": f">= {least:g}"} if least is not None else {}
    shown |= {"holdout.max_drop": f"<= {most:g}"} if most is not None else {}
    if figures.holdout is None:
        yield from _unmeasured("holdout", shown, figures)
        return
    value, wrong = _chosen(figures.holdout, limits.metric)
    if value is None:
        for gate, limit in (shown or {"holdout": ""}).items():
            yield GateResult(gate, "-", limit, Verdict.FAILED, wrong)
        return
    yield _held("holdout.min", value, f"{value:.6g}", least=limits.min)
    yield from _drop(limits, value, figures)
    others = [] if limits.metric is None else [name for name in figures.holdout if name != limits.metric]
    for name in others[:_OTHERS_KEPT]:
        yield _held(f"holdout[{name}]", figures.holdout[name], f"{figures.holdout[name]:.6g}")


def _drop(limits: HoldoutGate, value: float, figures: Figures) -> Results:
    if limits.max_drop is None:
        return
    gate, limit = "holdout.max_drop", f"<= {limits.max_drop:g}"
    if figures.champion_holdout is None:
        yield _without_champion(gate, figures, limit)
        return
    theirs, wrong = _chosen(figures.champion_holdout, limits.metric)
    if theirs is None:
        yield GateResult(gate, "-", limit, Verdict.FAILED, f"version {figures.champion}: {wrong}")
        return
    drop = round(theirs - value, 12)  # 0.95 - 0.945 is not above 0.005
    side = "below" if drop >= 0 else "above"
    yield _held(gate, drop, f"{abs(drop):.6g} {side} version {figures.champion}'s {theirs:.6g}", most=limits.max_drop)


def _chosen(found: dict[str, float], metric: str | None) -> tuple[float | None, str]:
    """Return the figure that the limits are about, or why there is none."""
    if metric is not None and metric in found:
        return found[metric], ""
    if metric is None and len(found) == 1:
        return next(iter(found.values())), ""
    names = ", ".join(name or "one number" for name in found) or "nothing"
    wish = f"no {metric!r} among them" if metric is not None else "say which with holdout.metric"
    return None, f"the callable returned {names}: {wish}"


def _held(
    gate: str, value: float, shown: str, *, most: float | None = None, least: float | None = None, note: str = ""
) -> GateResult:
    """Hold a figure against a limit; NaN passes none."""
    if most is None and least is None:
        return GateResult(gate, shown, "", Verdict.RECORDED, note, value)
    good = value <= most if most is not None else value >= (least if least is not None else math.inf)
    limit = f"<= {most:g}" if most is not None else f">= {least:g}"
    return GateResult(gate, shown, limit, Verdict.PASSED if good else Verdict.FAILED, note, value)


def _ratio(
    gate: str, ratio: Ratio, beside: str, *, most: float | None = None, least: float | None = None
) -> GateResult:
    shown = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), {beside}"
    limit = most if most is not None else least
    close = limit is not None and ratio.low < limit < ratio.high
    note = "the limit lies within the spread: a second run may decide otherwise" if close else ""
    return _held(gate, ratio.value, shown, most=most, least=least, note=note)


def _without_champion(gate: str, figures: Figures, limit: str) -> GateResult:
    """Return the verdict on a comparison with nobody: it passes only where there is no champion at all."""
    if figures.champion is None:
        return GateResult(gate, "-", limit, Verdict.PASSED, NO_CHAMPION)
    why = figures.obstacles.get(gate.partition(".")[0]) or figures.obstacles.get(CHAMPION) or "not measured"
    return GateResult(gate, "-", limit, Verdict.FAILED, f"version {figures.champion}: {why}")


def _unmeasured(gate: str, limits: dict[str, str], figures: Figures) -> Results:
    why = figures.obstacles.get(gate) or figures.obstacles.get(CANDIDATE) or "not measured"
    for name, limit in (limits or {gate: ""}).items():
        yield GateResult(name, "-", limit, Verdict.FAILED, why)
