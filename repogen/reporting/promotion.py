"""What ``repogen promote`` and ``repogen history`` print."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Outcome, Verdict
from repogen.reporting.text import table

if TYPE_CHECKING:
    from repogen.artifacts.promotion import GateResult, History, Period, PromotionReport

_GATE_HEADINGS = ("gate", "measured", "limit", "verdict")
_HISTORY_HEADINGS = ("alias", "version", "from", "until", "by", "why", "figures")
_INDICATIVE = (
    "times are indicative: the embedded Triton hosts ONNX Runtime in Python; NVIDIA's container (--server docker) "
    "shows production's"
)
_OUTSIDE = "outside"


def promotion_text(report: PromotionReport) -> str:
    """Return the gates as a table, and what became of the alias, last."""
    parts = []
    if report.gates:
        parts.append(table(_GATE_HEADINGS, [_row(gate) for gate in report.gates]))
    notes = [f"{gate.gate}: {gate.note}" for gate in report.gates if gate.note]
    notes += [*report.notes, *((_INDICATIVE,) if report.indicative and _timed(report) else ())]
    if notes:
        parts.append("notes:\n" + "\n".join(f"  {note}" for note in notes))
    if report.server:
        parts.append(f"measured on {report.server}")
    parts.append(_outcome(report))
    return "\n\n".join(parts)


def promotion_json(report: PromotionReport) -> str:
    """Return the document of ``repogen promote --json``."""
    move = report.move
    document = {
        "model": report.model,
        "alias": report.alias,
        "old": report.old,
        "new": report.new,
        "outcome": report.outcome.value,
        "gates": [_gate(gate) for gate in report.gates],
        "server": report.server or None,
        "indicative": report.indicative,
        "move": None if move is None else dataclasses.asdict(move),
        "notes": list(report.notes),
    }
    return json.dumps(document, indent=2)


def history_text(history: History) -> str:
    """Return what served when as a table, newest last, and what was moved outside of repogen."""
    if not history.periods:
        return f"{history.model} has no alias, and never had one that repogen moved"
    parts = [table(_HISTORY_HEADINGS, [_period(period) for period in history.periods])]
    moved = [
        f"{period.alias} was {_whither(period)} outside of repogen: nobody recorded when, by whom or why"
        for period in history.periods
        if period.why == _OUTSIDE and period.present
    ]
    return "\n\n".join([*parts, *moved])


def history_json(history: History) -> str:
    """Return the document of ``repogen history --json``."""
    periods = [
        {**dataclasses.asdict(period), "since": period.since or None, "until": period.until or None}
        for period in history.periods
    ]
    return json.dumps({"model": history.model, "periods": periods}, indent=2)


def _row(gate: GateResult) -> tuple[str, ...]:
    verdict = gate.verdict.value.upper() if gate.verdict is Verdict.FAILED else gate.verdict.value
    return (gate.gate, gate.measured, gate.limit or "-", verdict)


def _gate(gate: GateResult) -> dict[str, object]:
    value = gate.value if gate.value is not None and math.isfinite(gate.value) else None  # JSON has no NaN
    return {**dataclasses.asdict(gate), "verdict": gate.verdict.value, "limit": gate.limit or None, "value": value}


def _timed(report: PromotionReport) -> bool:
    return any(gate.gate.startswith(("latency", "throughput")) and gate.value is not None for gate in report.gates)


def _outcome(report: PromotionReport) -> str:
    whose = f"{report.alias} of {report.model}"
    step = f"version {'-' if report.old is None else report.old} -> {report.new}"
    if report.outcome is Outcome.ALREADY:
        return f"{whose} is version {report.new} already; nothing was measured or moved"
    if report.outcome is Outcome.WOULD_MOVE:
        return f"{whose} would move: {step}; nothing was moved"
    if report.outcome is Outcome.REFUSED:
        failed = sum(gate.verdict is Verdict.FAILED for gate in report.gates)
        stays = "stays unset" if report.old is None else f"stays at version {report.old}"
        gates = "1 gate" if failed == 1 else f"{failed} gates"
        return f"{whose} {stays}: version {report.new} failed {gates}"
    by = f" by {report.move.by} at {report.move.at}" if report.move is not None else ""
    return f"{whose}: {step} ({report.outcome.value}{by})"


def _period(period: Period) -> tuple[str, ...]:
    return (
        period.alias,
        "none" if period.version is None else str(period.version),
        period.since or "unknown",
        "now" if period.present else period.until or "unknown",
        period.by or "unknown",
        period.why,
        _brief(period.figures),
    )


def _brief(figures: dict[str, str]) -> str:
    """Return the figures that had a limit, without what stands beside them; JSON has all of it."""
    shown = (
        f"{gate} {text.partition(' (')[0].partition(' [')[0].partition(',')[0]}"
        for gate, text in figures.items()
        if " [" in text
    )
    return ", ".join(shown) or "-"


def _whither(period: Period) -> str:
    return "deleted" if period.version is None else f"moved to version {period.version}"
