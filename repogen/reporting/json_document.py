"""Reports as the one JSON document that ``--json`` prints; its keys are a contract."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from repogen.repository.decode import json_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.serving import SmokeCheck, SmokeReport
    from repogen.errors import ErrorRecord, RepogenError

_MS = 3


def build_json(report: BuildReport) -> str:
    """Return the document of ``repogen build --json``."""
    document = {
        "repository": str(report.repository),
        "models": [_model(model) for model in report.models],
        "error": None if report.error is None else error_document(report.error),
    }
    return json.dumps(document, indent=2)


def smoke_json(repository: str, reports: Iterable[SmokeReport]) -> str:
    """Return the document of ``repogen smoke --json``."""
    models = [{"name": report.model, **_smoke(report)} for report in reports]
    return json.dumps({"repository": repository, "models": models}, indent=2)


def error_json(error: RepogenError) -> str:
    """Return the document of a command that failed before it had anything to report."""
    problems = [
        {"where": problem.where, "key": problem.key_path, "what": problem.what, "hint": problem.hint}
        for problem in getattr(error, "problems", ())
    ]
    document = {"repository": None, "models": [], "error": error_document(error.record), "problems": problems}
    return json.dumps(document, indent=2)


def _model(model: ModelReport) -> dict[str, object]:
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
            # nothing measured is no zero
            "max_abs_diff": model.max_abs_diff if model.parity_cases else None,
            "max_rel_diff": model.max_rel_diff if model.parity_cases else None,
            "passed": model.parity_cases > 0,
        },
        "nodes": {"exported": model.nodes_exported or None, "optimized": model.nodes_optimized or None},
        "exporters": [dataclasses.asdict(rung) for rung in model.rungs],
        "passes": [dataclasses.asdict(outcome) for outcome in model.passes],
        "notes": list(model.notes),
        "smoke": None if model.smoke is None else _smoke(model.smoke),
        "registry_version": model.registry_version,
        "seconds": {step: round(seconds, _MS) for step, seconds in model.seconds.items()},
        "peak_rss_bytes": model.peak_rss_bytes or None,
        "error": None if model.error is None else error_document(model.error),
    }


def _smoke(report: SmokeReport) -> dict[str, object]:
    return {
        "version": report.version,
        "passed": report.passed,
        "server": report.server,
        "server_version": report.server_version,
        "runtime": report.runtime,
        "checks": [_check(check) for check in report.checks],
        "overrides": list(report.overrides),
        "latency_ms": None if report.latency is None else dataclasses.asdict(report.latency),
    }


def error_document(error: ErrorRecord) -> dict[str, object]:
    """Return an error as it stands in every ``--json`` document."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "where": error.where,
        "exit_code": error.exit_code,
    }


def _check(check: SmokeCheck) -> dict[str, object]:
    largest = check.max_abs_diff
    return {**dataclasses.asdict(check), "max_abs_diff": None if largest is None else json_number(largest)}
