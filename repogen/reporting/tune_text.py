"""The result of tuning as text; ``--json`` has every trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.reporting.bench_text import decimal, interval_text, machine_text
from repogen.reporting.table import notes_section, table
from repogen.reporting.text import error_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.tune import ComparisonRow, Settings, Trial, TuneReport

_MB = 1e6
_MAX_ROWS = 12
_NAMES = {"tuned": "tuned", "spec": "original spec", "auto": "Triton's auto-complete"}


def tune_text(report: TuneReport, *, debug: bool) -> str:
    """Return the passes, the Pareto front, the comparison, the change to the spec, notes, and the error last."""
    parts = [_title(report), *_passes(report), *_front(report), *_comparison(report), *_change(report)]
    if report.notes:
        parts.append(notes_section(report.notes))
    if report.files:
        parts.append("files:\n" + "\n".join(f"  {path}" for path in report.files))
    parts.append(machine_text(report.machine))
    if report.interrupted:
        parts.append("interrupted; run the same command again to continue")
    if report.error is not None:
        parts.append(error_text(report.error, debug=debug))
    return "\n\n".join(parts)


def settings_text(settings: Settings, base: Settings) -> str:
    """Return the settings that differ from others.

    >>> settings_text({"instance_count": 2, "graph_level": 0}, {"instance_count": 1, "graph_level": 0})
    'instance_count 2'
    """
    changes = [f"{name} {value}" for name, value in settings.items() if base.get(name) != value]
    return ", ".join(changes) or "as in the spec"


def _title(report: TuneReport) -> str:
    counts = {
        state: sum(trial.state == state for trial in report.trials) for state in ("measured", "stopped", "failed")
    }
    ended = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none"
    load = f"{report.concurrency} concurrent requests" if report.concurrency > 1 else "one request at a time"
    rows = f", {report.batch} rows each" if report.batch > 1 else ""
    limits = f", {', '.join(report.constraints)}" if report.constraints else ""
    return (
        f"{report.model} version {report.version}, {report.server}\n"
        f"objective: {report.objective}{limits}; {load}{rows}\n"
        f"trials: {len(report.trials)} ({ended})"
    )


def _passes(report: TuneReport) -> Iterator[str]:
    if not report.passes:
        return
    rows = [(each.name, f"{each.nodes:,}" if each.nodes else "-", str(each)) for each in report.passes]
    yield f"optimization passes\n{table(('passes', 'nodes', 'outputs'), rows)}"


def _front(report: TuneReport) -> Iterator[str]:
    base = next((trial.settings for trial in report.trials if trial.origin == "spec"), {})
    front = [trial for trial in report.trials if trial.number in report.pareto and trial.figures is not None]
    if not front:
        return
    front.sort(key=lambda trial: -(trial.figures.throughput if trial.figures is not None else 0))
    headings = ("trial", "rows/s", "p50 ms", "p99 ms", "memory MB", "settings")
    listed = front[:_MAX_ROWS]
    rows = [_trial_row(trial, base, chosen=trial.number == report.chosen) for trial in listed]
    more = f"\n({len(front) - _MAX_ROWS} more in tune.json)" if len(front) > _MAX_ROWS else ""
    yield f"Pareto front (throughput, p99, memory){_legend(report, listed, base)}\n{table(headings, rows)}{more}"


def _legend(report: TuneReport, rows: Sequence[Trial], base: Settings) -> str:
    """Return which config is the chosen one; the comparison can choose one that is not on the front."""
    chosen = next((trial for trial in report.trials if trial.number == report.chosen), None)
    if chosen is None:
        return ""
    if chosen in rows:
        return "; * is the chosen config"
    return f"; the chosen config is trial {chosen.number}: {settings_text(chosen.settings, base)}"


def _trial_row(trial: Trial, base: Settings, *, chosen: bool) -> tuple[str, ...]:
    figures = trial.figures
    if figures is None:
        return ()
    return (
        f"{trial.number}{'*' if chosen else ''}",
        decimal(figures.throughput),
        decimal(figures.p50),
        decimal(figures.p99),
        f"{figures.memory_bytes / _MB:,.0f}" if figures.memory_bytes else "-",
        settings_text(trial.settings, base),
    )


def _comparison(report: TuneReport) -> Iterator[str]:
    if not report.comparison:
        return
    headings = ("config", "rows/s", "p50 ms", "p99 ms", "speedup of tuned")
    rows = [_comparison_row(row) for row in report.comparison]
    yield f"side by side, medians of interleaved rounds (95% interval)\n{table(headings, rows)}"


def _comparison_row(row: ComparisonRow) -> tuple[str, ...]:
    violations = f"; violates {', '.join(row.violations)}" if row.violations else ""
    return (
        _NAMES[row.name],
        interval_text(row.throughput),
        interval_text(row.p50),
        decimal(row.p99.value),
        f"{interval_text(row.ratio)}{violations}",
    )


def _change(report: TuneReport) -> Iterator[str]:
    if report.diff:
        title = "written to the spec" if report.written else "change to the spec; --write applies it"
        yield f"{title}:\n{report.diff}"
