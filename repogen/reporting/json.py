"""Reports as the JSON documents that ``--json`` prints; their keys are a contract."""

from __future__ import annotations

import dataclasses
import math
import os
from functools import singledispatch
from typing import TYPE_CHECKING

from repogen.artifacts.deployment import DeployReport, ModelDeployment
from repogen.artifacts.promotion import GateResult, History, PromotionReport
from repogen.artifacts.report import BuildReport, ModelReport
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncReport
from repogen.errors import ErrorRecord, RepogenError
from repogen.triton_config.rules.findings import Finding, count_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.environment import Check

_FINDINGS_SCHEMA = 1


@singledispatch
def as_dict(report: object) -> dict[str, object]:
    """Return a report as ``--json`` prints it: dicts, lists, strings, numbers, booleans and None.

    Example::

        repogen.as_dict(repogen.build("repogen.yaml"))["models"][0]["status"]  # 'published'

    Args:
        report: What ``repogen.build``, ``promote``, ``rollback``, ``history``, ``sync`` or ``deploy`` returned, an
            element of what ``smoke`` or ``check`` returned, or a ``RepogenError``.

    Raises:
        TypeError: It is something else.
    """
    raise TypeError(f"repogen has no JSON form of {type(report).__name__}")


@as_dict.register
def _(report: BuildReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "models": [as_dict(model) for model in report.models],
        "notes": list(report.notes),
        "error": None if report.error is None else as_dict(report.error),
    }


@as_dict.register
def _(model: ModelReport) -> dict[str, object]:
    return {
        "name": model.name,
        "status": model.status.value,
        "version": model.version,
        "sha256": model.sha256 or None,
        "size": model.size or None,
        "exporter": model.exporter or None,
        "opset": model.opset or None,
        "ir_version": model.ir_version or None,
        "max_batch_size": model.max_batch_size,
        "batch_reason": model.batch_reason or None,
        "parity": {
            "cases": model.parity_cases,
            "skipped": list(model.parity_skipped),
            # A difference that was not measured is null, not 0.
            "max_abs_diff": model.max_abs_diff if model.parity_cases else None,
            "max_rel_diff": model.max_rel_diff if model.parity_cases else None,
            "passed": model.parity_cases > 0,
        },
        "nodes": {"exported": model.nodes_exported or None, "optimized": model.nodes_optimized or None},
        "exporters": [dataclasses.asdict(attempt) for attempt in model.attempts],
        "passes": [dataclasses.asdict(outcome) for outcome in model.passes],
        "notes": list(model.notes),
        "smoke": None if model.smoke is None else _smoke_result(model.smoke),
        "registry_version": model.registry_version,
        "seconds": {step: round(seconds, 3) for step, seconds in model.seconds.items()},
        "peak_rss_bytes": model.peak_rss_bytes or None,
        "error": None if model.error is None else as_dict(model.error),
    }


@as_dict.register
def _(report: SmokeReport) -> dict[str, object]:
    return {"name": report.model, **_smoke_result(report)}


@as_dict.register
def _(report: PromotionReport) -> dict[str, object]:
    return {
        "model": report.model,
        "alias": report.alias,
        "old": report.old,
        "new": report.new,
        "outcome": report.outcome.value,
        "gates": [_gate(gate) for gate in report.gates],
        "server": report.server or None,
        "indicative": report.indicative,
        "move": None if report.move is None else dataclasses.asdict(report.move),
        "notes": list(report.notes),
    }


@as_dict.register
def _(history: History) -> dict[str, object]:
    periods = [
        {**dataclasses.asdict(period), "since": period.since or None, "until": period.until or None}
        for period in history.periods
    ]
    return {"model": history.model, "periods": periods}


@as_dict.register
def _(report: DeployReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "dry_run": report.dry_run,
        "interrupted": report.interrupted,
        "servers": [
            {
                "server": server.server,
                "mode": None if server.mode is None else server.mode.value,
                "models": [as_dict(model) for model in server.models],
                "note": server.note or None,
                "error": None if server.error is None else as_dict(server.error),
            }
            for server in report.servers
        ],
    }


@as_dict.register
def _(model: ModelDeployment) -> dict[str, object]:
    return {
        "name": model.model,
        "action": model.action.value,
        "expected": list(model.expected),
        "before": None if model.before is None else list(model.before),
        "serving": None if model.serving is None else list(model.serving),
        "note": model.note or None,
        "smoke": [_smoke_result(report) for report in model.smoke],
        "error": None if model.error is None else as_dict(model.error),
    }


@as_dict.register
def _(report: SyncReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "alias": report.alias,
        "dry_run": report.dry_run,
        "changed": report.changed,
        "models": [
            {
                "name": version.model,
                "action": version.action.value,
                "version": version.version,
                "note": version.note or None,
                "error": None if version.error is None else as_dict(version.error),
            }
            for version in report.versions
        ],
    }


@as_dict.register
def _(finding: Finding) -> dict[str, object]:
    """``line`` and ``column`` are null where a finding is about a whole file."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "path": relative_path(finding.path),
        "line": finding.line or None,
        "column": finding.column or None,
        "field": finding.field,
        "message": finding.message,
        "hint": finding.hint,
        "fix": finding.fix,
        "applicability": finding.applicability,
    }


@as_dict.register
def _(error: ErrorRecord) -> dict[str, object]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "where": error.where,
        "exit_code": error.exit_code,
    }


@as_dict.register
def _(error: RepogenError) -> dict[str, object]:
    """The document of a command that failed before it had anything to report."""
    problems = [
        {"where": problem.where, "key": problem.key_path, "what": problem.what, "hint": problem.hint}
        for problem in getattr(error, "problems", ())
    ]
    return {"repository": None, "models": [], "error": as_dict(error.record), "problems": problems}


def smoke_document(repository: str, reports: Iterable[SmokeReport]) -> dict[str, object]:
    """Return the document of ``repogen smoke --json``."""
    return {"repository": repository, "models": [as_dict(report) for report in reports]}


def findings_document(
    findings: Sequence[Finding], models: int, fixed: Sequence[Mapping[str, object]] = ()
) -> dict[str, object]:
    """Return the document of ``repogen check --format json``.

    Args:
        findings: The findings.
        models: Number of models that were checked.
        fixed: Path and number of fixes of each file that was corrected.
    """
    severities = [finding.severity for finding in findings]
    return {
        "schema": _FINDINGS_SCHEMA,
        "findings": [as_dict(finding) for finding in findings],
        "checked_models": models,
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "fixed": list(fixed),
        "statistics": [dataclasses.asdict(count) for count in count_findings(findings)],
    }


def doctor_document(checks: Sequence[Check]) -> dict[str, object]:
    """Return the document of ``repogen doctor --json``."""
    return {"ok": all(check.ok for check in checks), "checks": [dataclasses.asdict(check) for check in checks]}


def relative_path(path: str) -> str:
    """Return a path relative to the working directory if it is below that, else unchanged."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _smoke_result(report: SmokeReport) -> dict[str, object]:
    return {
        "version": report.version,
        "passed": report.passed,
        "server": report.server,
        "server_version": report.server_version,
        "runtime": report.runtime,
        "checks": [_smoke_check(check) for check in report.checks],
        "overrides": list(report.overrides),
        "latency_ms": None if report.latency is None else dataclasses.asdict(report.latency),
    }


def _smoke_check(check: SmokeCheck) -> dict[str, object]:
    largest = check.max_abs_diff
    # JSON has no NaN and no infinity: they are the strings `nan` and `inf`.
    finite = largest is None or math.isfinite(largest)
    return {**dataclasses.asdict(check), "max_abs_diff": largest if finite else str(largest)}


def _gate(gate: GateResult) -> dict[str, object]:
    value = gate.value if gate.value is not None and math.isfinite(gate.value) else None
    return {**dataclasses.asdict(gate), "verdict": gate.verdict.value, "limit": gate.limit or None, "value": value}
