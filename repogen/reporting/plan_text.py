"""Reports of ``repogen plan``, and explanations of ``repogen build --explain``, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.report import Status
from repogen.files.url import relative_text
from repogen.reporting.notes import size_text
from repogen.reporting.table import notes_section, table
from repogen.reporting.text import model_error_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.plan import ModelPlan, PlanReport
    from repogen.artifacts.report import BuildReport, ModelReport

_PLAN_HEADINGS = ("model", "status", "version", "uses", "seconds", "memory", "reason")
_EXPLAIN_HEADINGS = ("model", "steps", "result", "reason")
_STEPS = {
    "export": frozenset({"worker", "import", "source", "export", "optimize", "validate", "fetch", "keep", "cache"}),
    "configure": frozenset({"configure", "stage"}),
    "smoke": frozenset({"server", "smoke"}),
    "publish": frozenset({"track", "publish", "confirm"}),
}
"""Steps of a build, in groups that run or do not run together."""


def plan_text(report: PlanReport) -> str:
    """Return one row per model, the notes, the number of models to build, and why others are rejected."""
    headings = _PLAN_HEADINGS if report.shards is None else (*_PLAN_HEADINGS[:2], "shard", *_PLAN_HEADINGS[2:])
    parts = [table(headings, [_plan_row(model) for model in report.models])] if report.models else []
    if report.notes:
        parts.append(notes_section(report.notes))
    rejected = [model_error_text(model.name, model.error, debug=False) for model in report.models if model.error]
    estimated = any(not model.cost.measured for model in report.pending)
    total = f"about {report.seconds:.0f} s, one at a time" if report.pending else "nothing to build"
    parts.append(
        f"{len(report.pending)} of {len(report.models)} models would be built: {total}"
        + (f"; {len(rejected)} rejected" if rejected else "")
        + ("; ~ marks an estimate: the model was not measured yet" if estimated else "")
    )
    parts.append(f"repository: {relative_text(report.repository)}")
    return "\n\n".join([*parts, *rejected])


def explain_text(report: BuildReport) -> str:
    """Return which steps of each model ran, which results came from the cache, and why."""
    rows = [row for model in report.models for row in _explained(model)]
    return table(_EXPLAIN_HEADINGS, rows) if rows else ""


def _plan_row(model: ModelPlan) -> tuple[str, ...]:
    sign = "" if model.cost.measured else "~"
    return (
        model.name,
        model.status.replace("-", " "),
        *([] if model.shard is None else [str(model.shard)]),
        "-" if model.version is None else str(model.version),
        ", ".join(model.dependencies) or "-",
        f"{sign}{model.cost.seconds:.1f}",
        f"{sign}{size_text(model.cost.memory_bytes)}",
        "; ".join(model.reasons) or "-",
    )


def _explained(model: ModelReport) -> Iterator[tuple[str, str, str, str]]:
    if model.status is Status.UNCHANGED:
        yield model.name, "all", "not run", f"no input changed since version {model.version}"
        return
    reasons = "; ".join(model.reasons)
    if model.from_cache:
        yield model.name, "export to validate", "from the cache", "an earlier build had the same inputs for these steps"
    else:
        why = "; ".join(model.export_reasons) or f"{reasons}, and no earlier result is in the cache"
        yield model.name, "export to validate", _result(model, "export"), why
    yield model.name, "configure, stage", _result(model, "configure"), reasons
    smoke = _result(model, "smoke")
    yield model.name, "smoke", smoke, reasons if smoke == "ran" else _why_not(model, "--no-smoke was given")
    publish = _result(model, "publish")
    dry_run = "--dry-run was given" if model.status is Status.VERIFIED else ""
    yield model.name, "publish", publish, reasons if publish == "ran" else _why_not(model, dry_run)


def _result(model: ModelReport, group: str) -> str:
    return "ran" if model.seconds.keys() & _STEPS[group] else "not run"


def _why_not(model: ModelReport, reason: str) -> str:
    return reason if model.error is None else "the model failed"
