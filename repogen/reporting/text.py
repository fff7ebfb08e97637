"""Reports as text for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from repogen.artifacts.report import ModelReport, Status
from repogen.reporting.notes import model_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repogen.artifacts.report import BuildReport
    from repogen.artifacts.serving import SmokeReport
    from repogen.errors import ErrorRecord

_HEADINGS = ("model", "status", "version", "batch", "exporter", "opset", "nodes", "parity", "smoke", "seconds")
# Each has an entry on the page «Why was my model refused?».
_EXPLAINED = ("source.", "export.", "validate.", "parity.", "config.", "worker.")
_RUNG_HEADINGS = ("exporter", "graph", "seconds", "why")
_SAYS_IT_ALL = frozenset({"spec.problems", "interrupted"})
_SMOKE_HEADINGS = ("model", "version", "smoke", "checks", "p50 / p95", "server")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return aligned columns, a rule under the headings.

    >>> print(table(("a", "b"), [("1", "22")]))
    a  b
    -  --
    1  22
    """
    cells = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    cells.insert(1, tuple("-" * width for width in widths))
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def build_text(report: BuildReport, *, debug: bool) -> str:
    """Return the summary of a build: failures last, where the eye is."""
    parts = [table(_HEADINGS, [_row(model) for model in report.models])]
    notes = [f"  {model.name}: {note}" for model in report.models for note in model_notes(model)]
    if notes:
        parts.append("notes:\n" + "\n".join(notes))
    if any(m.status is not Status.FAILED for m in report.models):
        parts.append(f"repository: {os.path.relpath(report.repository)}")
    parts += [f"{m.name}: {error_text(m.error, debug=debug)}" for m in report.models if m.error is not None]
    if report.error is not None:
        parts.append(error_text(report.error, debug=debug))
    return "\n\n".join(parts)


def rungs_text(model: ModelReport, *, debug: bool) -> str:
    """Return how every exporter fared with one model, and the error when none held."""
    parts = []
    if model.rungs:
        rows = [(r.exporter, "holds" if r.ok else "fails", f"{r.seconds:.1f}", r.reason or "-") for r in model.rungs]
        parts.append(table(_RUNG_HEADINGS, rows))
    elif model.error is None:
        parts.append(f"{model.name} is not exported ({model.exporter}), and holds: {model.parity_cases} cases agree")
    notes = [*model.notes, *([f"max_batch_size is 0: {model.batch_reason}"] if model.batch_reason else [])]
    if notes:
        parts.append("notes:\n" + "\n".join(f"  {note}" for note in notes))
    if model.error is not None:
        parts.append(f"{model.name}: {error_text(model.error, debug=debug)}")
    return "\n\n".join(parts)


def _row(model: ModelReport) -> tuple[str, ...]:
    nodes = (
        f"{model.nodes_exported}"
        if model.nodes_exported == model.nodes_optimized
        else (f"{model.nodes_exported} -> {model.nodes_optimized}")
    )
    return (
        model.name,
        model.status.value,
        _or_dash(model.version),
        _or_dash(model.max_batch_size),
        model.exporter or "-",
        _or_dash(model.opset or None),
        nodes if model.nodes_exported else "-",
        f"{model.max_abs_diff:.1e} in {model.parity_cases}" if model.parity_cases else "-",
        _smoke_cell(model),
        f"{sum(model.seconds.values()):.1f}",
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _smoke_cell(model: ModelReport) -> str:
    if model.smoke is None:
        return "-"
    passed = sum(1 for check in model.smoke.checks if check.passed)
    latency = f", p50 {model.smoke.latency.p50:.1f} ms" if model.smoke.latency else ""
    return f"{passed}/{len(model.smoke.checks)}{latency}"


def error_text(error: ErrorRecord, *, debug: bool) -> str:
    """Return an error as ``where: message``, its hint below, and its details when debugging."""
    place = f"{error.where}: " if error.where and not error.message.startswith(error.where) else ""
    lines = [error.message if error.code in _SAYS_IT_ALL else f"error: {place}{error.message}"]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    if error.code.startswith(_EXPLAINED):
        lines.append(f"  code: {error.code} (docs/refusals.md)")
    if debug and error.details:
        lines.append(error.details.rstrip())
    return "\n".join(lines)


def smoke_text(reports: Sequence[SmokeReport]) -> str:
    """Return what a Triton answered, a line a check, and a table at the end."""
    parts = []
    for report in reports:
        verdict = "passed" if report.passed else "FAILED"
        head = (
            f"{report.model} version {report.version}: {verdict} on Triton {report.server_version} ({report.server}), "
        )
        lines = [f"{head}{report.runtime}"]
        for check in report.checks:
            mark = "warn" if check.warning else "ok" if check.passed else "FAIL"
            lines.append(f"  {mark:4} {check.name}{': ' + check.detail if check.detail else ''}")
        lines += [f"  note override: {override}" for override in report.overrides]
        if report.latency is not None:
            latency = report.latency
            lines.append(
                f"  latency of one row over {latency.requests} requests: p50 {latency.p50:.1f} ms, "
                f"p95 {latency.p95:.1f} ms, p99 {latency.p99:.1f} ms"
            )
        parts.append("\n".join(lines))
    if reports:
        parts.append(table(_SMOKE_HEADINGS, [_smoke_row(report) for report in reports]))
    return "\n\n".join(parts)


def _smoke_row(report: SmokeReport) -> tuple[str, ...]:
    passed = sum(1 for check in report.checks if check.passed)
    latency = f"{report.latency.p50:.1f} / {report.latency.p95:.1f} ms" if report.latency else "-"
    verdict = "passed" if report.passed else "FAILED"
    server = f"Triton {report.server_version} ({report.server})"
    return (report.model, str(report.version), verdict, f"{passed}/{len(report.checks)}", latency, server)
