"""Promotions, alias history and syncs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Outcome, Verdict
from repogen.artifacts.sync import CHANGES, SyncAction
from repogen.files.url import relative_text
from repogen.reporting.markdown import outcome_page
from repogen.reporting.table import notes_section, table
from repogen.reporting.text import error_text
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from repogen.artifacts.promotion import GateResult, History, Period, PromotionReport, StepMove
    from repogen.artifacts.sync import Followed, SyncedVersion, SyncReport

_GATE_HEADINGS = ("gate", "measured", "limit", "verdict")
_HISTORY_HEADINGS = ("alias", "version", "from", "until", "by", "why", "figures")
_SYNC_HEADINGS = ("model", "action", "version", "alias")
_INDICATIVE = (
    "times are only indicative: the embedded Triton runs ONNX Runtime in Python; for production times, measure with "
    "NVIDIA's container (--server docker)"
)
_OUTSIDE = "outside"
_ALIASED_ACTIONS = frozenset({SyncAction.PUBLISHED, SyncAction.KEPT, SyncAction.FAILED, SyncAction.IGNORED})
"""Actions on the version that the alias points to; other rows are about versions without the alias."""


def promotion_text(report: PromotionReport) -> str:
    """Return the gates as a table, then the notes, then what happened to the alias."""
    parts = []
    if report.gates:
        parts.append(table(_GATE_HEADINGS, [_gate_row(gate) for gate in report.gates]))
    notes = [f"{gate.gate}: {gate.note}" for gate in report.gates if gate.note]
    notes += [*report.notes, *((_INDICATIVE,) if report.indicative and _has_times(report) else ())]
    if notes:
        parts.append(notes_section(notes))
    if report.server:
        parts.append(f"measured on {report.server}")
    parts.append(outcome_text(report))
    return "\n\n".join(parts)


def outcome_text(report: PromotionReport) -> str:
    """Return what happened to the alias, and to that of the steps of an ensemble."""
    outcome = _promotion_outcome(report)
    if report.steps and report.outcome is not Outcome.REFUSED:
        outcome += f"\nwith its steps: {', '.join(map(_step_text, report.steps))}"
    return outcome


def history_text(history: History) -> str:
    """Return a table of what each alias pointed to, newest last, and the moves that repogen did not make."""
    if not history.periods:
        return f"no alias history recorded for {history.model}"
    parts = [table(_HISTORY_HEADINGS, [_period_row(period) for period in history.periods])]
    moves = [
        f"{period.alias} was {_destination(period)} outside of repogen: when, by whom and why are not recorded"
        for period in history.periods
        if period.why == _OUTSIDE and period.present
    ]
    return "\n\n".join([*parts, *moves])


def sync_text(report: SyncReport, *, debug: bool) -> str:
    """Return one row per version, notes, what happened to the repository, and failures last."""
    parts = []
    if report.versions:
        parts.append(table(_SYNC_HEADINGS, [_sync_row(version, report) for version in report.versions]))
    notes = [f"{printable(version.model)}: {version.note}" for version in report.versions if version.note]
    if notes:
        parts.append(notes_section(notes))
    parts.append(f"{relative_text(report.repository)}: {_sync_outcome(report)}")
    parts += [error_text(version.error, debug=debug) for version in report.versions if version.error is not None]
    return "\n\n".join(parts)


def followed_text(followed: Followed, *, begins: bool, debug: bool) -> str:
    """Return what one sync of ``repogen sync --listen`` did; empty if it changed nothing, except for the first one."""
    parts = [f"{count} rejected: {reason}" for reason, count in sorted(followed.rejections.items())]
    if followed.error is not None:
        parts.append(error_text(followed.error.record, debug=debug))
    elif followed.report is not None and (begins or followed.report.changed or followed.report.exit_code):
        parts.append(sync_text(followed.report, debug=debug))
    return "\n\n".join(parts)


def sync_markdown(report: SyncReport) -> str:
    """Return the same as Markdown, for the summary of a job."""
    return outcome_page(
        headline=f"repogen sync: {relative_text(report.repository)}: {_sync_outcome(report)}",
        errors=[version.error for version in report.versions if version.error is not None],
        headings=_SYNC_HEADINGS,
        rows=[_sync_row(version, report) for version in report.versions],
        notes=[f"{printable(version.model)}: {version.note}" for version in report.versions if version.note],
    )


def _gate_row(gate: GateResult) -> tuple[str, ...]:
    verdict = gate.verdict.value.upper() if gate.verdict is Verdict.FAILED else gate.verdict.value
    return (gate.gate, gate.measured, gate.limit or "-", verdict)


def _has_times(report: PromotionReport) -> bool:
    return any(gate.gate.startswith(("latency", "throughput")) and gate.value is not None for gate in report.gates)


def _promotion_outcome(report: PromotionReport) -> str:
    alias = f"{report.alias} of {report.model}"
    change = f"version {report.new}" if report.old is None else f"version {report.old} -> {report.new}"
    if report.outcome is Outcome.ALREADY:
        return f"{alias} already points to version {report.new}; nothing was measured or moved"
    if report.outcome is Outcome.WOULD_MOVE:
        return f"{alias} would move: {change}; nothing was moved"
    if report.outcome is Outcome.REFUSED:
        failure_count = sum(gate.verdict is Verdict.FAILED for gate in report.gates)
        current = "is still unset" if report.old is None else f"still points to version {report.old}"
        gates = "1 gate" if failure_count == 1 else f"{failure_count} gates"
        return f"not promoted: version {report.new} failed {gates}; {alias} {current}"
    by = f" by {report.move.by} at {report.move.at}" if report.move is not None else ""
    return f"{alias}: {change} ({report.outcome.value}{by})"


def _step_text(step: StepMove) -> str:
    old = f"{step.old} -> " if step.moves and step.old is not None else ""
    return f"{step.model} version {old}{step.new}"


def _period_row(period: Period) -> tuple[str, ...]:
    return (
        period.alias,
        "none" if period.version is None else str(period.version),
        period.since or "unknown",
        "now" if period.present else period.until or "unknown",
        period.by or "unknown",
        f"{period.why}, with {period.ensemble}" if period.ensemble else period.why,
        _limited_figures(period.figures),
    )


def _limited_figures(figures: dict[str, str]) -> str:
    """Return the figures that had a limit, without their details; ``--json`` has all of them."""
    parts = (
        f"{gate} {text.partition(' (')[0].partition(' [')[0].partition(',')[0]}"
        for gate, text in figures.items()
        if " [" in text
    )
    return ", ".join(parts) or "-"


def _destination(period: Period) -> str:
    return "deleted" if period.version is None else f"moved to version {period.version}"


def _sync_row(version: SyncedVersion, report: SyncReport) -> tuple[str, ...]:
    number = "-" if version.version is None else str(version.version)
    aliased = version.version is not None and version.action in _ALIASED_ACTIONS
    would = "would be " if report.dry_run and version.action in CHANGES else ""
    return (printable(version.model), f"{would}{version.action.value}", number, report.alias if aliased else "-")


def _sync_outcome(report: SyncReport) -> str:
    if report.changed:
        return "nothing was done (--dry-run)" if report.dry_run else f"updated to {report.alias}"
    if any(version.action is SyncAction.FAILED for version in report.versions):
        return "unchanged"
    if not report.versions:
        return f"no model has the alias {report.alias}, and none is served"
    ignored = [version for version in report.versions if version.action is SyncAction.IGNORED]
    held = sum(version.held for version in ignored)
    pending = sum(version.version is not None for version in ignored)  # others have no version in the registry
    states = [f"{_models(count)} {state}" for count, state in ((held, "held"), (pending, "pending")) if count]
    return f"nothing changed; {', '.join(states)}" if states else "up to date with the registry"


def _models(count: int) -> str:
    """Return a number of models as the subject of a sentence."""
    return "1 model is" if count == 1 else f"{count} models are"
