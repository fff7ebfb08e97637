"""Reports as the JSON documents that ``--json`` prints; their keys are a contract."""

from __future__ import annotations

import dataclasses
import math
from functools import singledispatch
from typing import TYPE_CHECKING

from repogen.artifacts.attestation import SignReport
from repogen.artifacts.bench import BenchReport, ModelBench
from repogen.artifacts.deployment import DeployReport, ModelDeployment
from repogen.artifacts.difference import DiffReport, Metric
from repogen.artifacts.inventory import ModelRecord, VersionRecord, VersionsReport
from repogen.artifacts.page import RenderedReport
from repogen.artifacts.plan import ModelPlan, PlanReport
from repogen.artifacts.promotion import GateResult, History, Period, PromotionReport
from repogen.artifacts.prune import PruneReport
from repogen.artifacts.report import BuildReport, ModelReport
from repogen.artifacts.rollback import RollbackReport
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncReport
from repogen.artifacts.transfer import TransferReport
from repogen.artifacts.tune import PassCandidate, Trial, TuneReport
from repogen.artifacts.verification import VerifyReport
from repogen.errors import ErrorRecord, RepogenError
from repogen.files.url import relative_text
from repogen.repository.decode import json_number
from repogen.triton_config.rules.findings import Finding, count_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.built_model import ErrorDistribution, Lossy, ParityCase
    from repogen.artifacts.environment import Check
    from repogen.artifacts.registry import AliasMove
    from repogen.artifacts.tensors import TensorSpec
    from repogen.artifacts.versions import Provenance

_FINDINGS_SCHEMA = 1


@singledispatch
def as_dict(report: object) -> dict[str, object]:
    """Return a report as ``--json`` prints it: dicts, lists, strings, numbers, booleans and None.

    Example::

        repogen.as_dict(repogen.build("repogen.yaml"))["models"][0]["status"]  # 'published'

    Args:
        report: The report that a function of ``repogen`` returned, an element of what ``smoke`` or ``check`` returned,
            or a ``RepogenError``.

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
        "report": None if report.page is None else str(report.page),
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
            "passed": model.has_parity,
            "sweep": [] if model.parity is None else [_parity_case(case) for case in model.parity.cases],
            "outputs": [] if model.parity is None else [_distribution(output) for output in model.parity.outputs],
        },
        "nodes": {"exported": model.nodes_exported or None, "optimized": model.nodes_optimized or None},
        "exporters": [dataclasses.asdict(attempt) for attempt in model.attempts],
        "passes": [dataclasses.asdict(outcome) for outcome in model.passes],
        "lossy": None if model.lossy is None else _lossy(model.lossy),
        "notes": list(model.notes),
        "smoke": None if model.smoke is None else _smoke_result(model.smoke),
        "registry_version": model.registry_version,
        "reasons": list(model.reasons),
        "from_cache": model.from_cache,
        "seconds": {step: round(seconds, 3) for step, seconds in model.seconds.items()},
        "peak_rss_bytes": model.peak_rss_bytes or None,
        "inputs": [] if model.manifest is None else tensor_documents(model.manifest.signature.inputs),
        "outputs": [] if model.manifest is None else tensor_documents(model.manifest.signature.outputs),
        "operators": dict(model.operators),
        "config": model.config or None,
        "provenance": None if model.manifest is None else provenance_document(model.manifest.provenance),
        "error": None if model.error is None else as_dict(model.error),
    }


@as_dict.register
def _(report: PlanReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "target": report.target,
        "models": [as_dict(model) for model in report.models],
        "shards": report.shards,
        "seconds": round(report.seconds, 3),
        "notes": list(report.notes),
    }


@as_dict.register
def _(model: ModelPlan) -> dict[str, object]:
    return {
        "name": model.name,
        "status": model.status,
        "reasons": list(model.reasons),
        "version": model.version,
        "dependencies": list(model.dependencies),
        "fingerprint": dict(sorted(model.fingerprint.items())),
        "cost": {
            "seconds": round(model.cost.seconds, 3),
            "memory_bytes": model.cost.memory_bytes,
            "measured": model.cost.measured,
        },
        "shard": model.shard,
        "error": None if model.error is None else as_dict(model.error),
    }


@as_dict.register
def _(report: SmokeReport) -> dict[str, object]:
    return {"name": report.model, **_smoke_result(report)}


@as_dict.register
def _(report: BenchReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "machine": dataclasses.asdict(report.machine),
        "rounds": report.rounds,
        "seconds": report.seconds,
        "models": [as_dict(model) for model in report.models],
    }


@as_dict.register
def _(model: ModelBench) -> dict[str, object]:
    return {
        **dataclasses.asdict(model),
        "rows": [dataclasses.asdict(row) for row in model.rows],
        "unmeasured": [dataclasses.asdict(each) for each in model.unmeasured],
        "notes": list(model.notes),
        "server": model.server or None,
        "error": None if model.error is None else as_dict(model.error),
    }


@as_dict.register
def _(report: TuneReport) -> dict[str, object]:
    return {
        "model": report.model,
        "version": report.version,
        "repository": str(report.repository),
        "server": report.server,
        "machine": dataclasses.asdict(report.machine),
        "objective": report.objective,
        "constraints": list(report.constraints),
        "batch": report.batch,
        "concurrency": report.concurrency,
        "space": {name: list(values) for name, values in report.space.items()},
        "passes": [as_dict(candidate) for candidate in report.passes],
        "trials": [as_dict(trial) for trial in report.trials],
        "resumed": report.resumed,
        "pareto": list(report.pareto),
        "chosen": report.chosen,
        "comparison": [
            {**dataclasses.asdict(row), "memory_bytes": row.memory_bytes or None, "violations": list(row.violations)}
            for row in report.comparison
        ],
        "improved": report.improved,
        "diff": report.diff,
        "written": report.written,
        "interrupted": report.interrupted,
        "notes": list(report.notes),
        "files": [str(path) for path in report.files],
        "error": None if report.error is None else as_dict(report.error),
    }


@as_dict.register
def _(candidate: PassCandidate) -> dict[str, object]:
    return {
        "name": candidate.name,
        "passes": list(candidate.passes),
        "reason": candidate.reason or None,
        "sha256": candidate.sha256 or None,
        "nodes": candidate.nodes or None,
        "parity_cases": candidate.parity_cases,
        "max_abs_diff": candidate.max_abs_diff if candidate.sha256 and math.isfinite(candidate.max_abs_diff) else None,
        "lossy": None if candidate.lossy is None else _lossy(candidate.lossy),
        "seconds": candidate.seconds,
    }


@as_dict.register
def _(trial: Trial) -> dict[str, object]:
    figures = trial.figures
    return {
        "number": trial.number,
        "origin": trial.origin,
        "settings": dict(trial.settings),
        "state": trial.state.value,
        "figures": None
        if figures is None
        else {**dataclasses.asdict(figures), "memory_bytes": figures.memory_bytes or None},
        "violations": list(trial.violations),
        "reason": trial.reason or None,
        "seconds": trial.seconds,
    }


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
        "move": None if report.move is None else _with_figures(report.move),
        "steps": [dataclasses.asdict(step) for step in report.steps],
        "notes": list(report.notes),
    }


@as_dict.register
def _(history: History) -> dict[str, object]:
    periods = [
        {**_with_figures(period), "since": period.since or None, "until": period.until or None}
        for period in history.periods
    ]
    return {"model": history.model, "periods": periods}


def _with_figures(record: AliasMove | Period) -> dict[str, object]:
    """Return the fields of a record; each figure has its number and its text."""
    fields = dataclasses.asdict(record)
    values = fields.pop("values")
    fields["ensemble"] = record.ensemble or None
    fields["figures"] = {gate: {"value": values.get(gate), "text": text} for gate, text in record.figures.items()}
    return fields


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
def _(report: VersionsReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "owner": report.owner or None,
        "models": [_model_record(model) for model in report.models],
        "notes": list(report.notes),
    }


@as_dict.register
def _(report: VerifyReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "ok": not report.findings,
        "models": report.models,
        "versions": report.versions,
        "files": report.files,
        "size": report.size,
        "signed": report.signed,
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
    }


@as_dict.register
def _(report: SignReport) -> dict[str, object]:
    return {**dataclasses.asdict(report), "repository": str(report.repository)}


@as_dict.register
def _(report: RollbackReport) -> dict[str, object]:
    return {
        **dataclasses.asdict(report),
        "repository": str(report.repository),
        "outcome": report.outcome.value,
        "before": list(report.before),
        "after": list(report.after),
        "notes": list(report.notes),
    }


@as_dict.register
def _(report: PruneReport) -> dict[str, object]:
    return {
        "repository": str(report.repository),
        "dry_run": report.dry_run,
        "deleted": len(report.deleted),
        "freed": sum(version.size for version in report.deleted),
        "versions": [
            {**dataclasses.asdict(version), "deleted": not version.keep_reason} for version in report.versions
        ],
    }


@as_dict.register
def _(report: TransferReport) -> dict[str, object]:
    return {
        "source": str(report.source),
        "target": str(report.target),
        "dry_run": report.dry_run,
        "versions": [dataclasses.asdict(version) for version in report.versions],
        "format": None if report.format is None else report.format.value,
        "digest": report.digest or None,
    }


@as_dict.register
def _(report: RenderedReport) -> dict[str, object]:
    return {
        **dataclasses.asdict(report),
        "path": str(report.path),
        "repository": str(report.repository),
        "measured": list(report.measured),
        "notes": list(report.notes),
    }


@as_dict.register
def _(report: DiffReport) -> dict[str, object]:
    weights = report.weights
    return {
        "before": {**dataclasses.asdict(report.before), "repository": str(report.before.repository)},
        "after": {**dataclasses.asdict(report.after), "repository": str(report.after.repository)},
        "identical": report.identical,
        "signature": None if report.signature is None else list(report.signature),
        "weights": None if weights is None else {"unchanged": weights.unchanged, **_lists(dataclasses.asdict(weights))},
        "facts": [dataclasses.asdict(change) for change in report.facts],
        "nodes": None if report.nodes is None else list(report.nodes),
        "operators": [dataclasses.asdict(count) for count in report.operators],
        "metrics": [_metric(metric) for metric in report.metrics],
        "sizes": list(report.sizes),
        "files": [dataclasses.asdict(file) for file in report.files],
        "config": None if report.config is None else list(report.config),
        "inputs": list(report.inputs),
        "notes": list(report.notes),
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
    findings: Sequence[Finding],
    models: int,
    fixed: Sequence[Mapping[str, object]] = (),
    unexamined: Sequence[str] = (),
) -> dict[str, object]:
    """Return the document of ``repogen check --format json``.

    Args:
        findings: The findings.
        models: Number of models that were checked.
        fixed: Path and number of fixes of each file that was corrected.
        unexamined: One line for each model with code.
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
        "unexamined_code": list(unexamined),
    }


def doctor_document(checks: Sequence[Check]) -> dict[str, object]:
    """Return the document of ``repogen doctor --json``."""
    return {"ok": all(check.ok for check in checks), "checks": [dataclasses.asdict(check) for check in checks]}


def relative_path(path: str) -> str:
    """Return a path relative to the working directory if it is below that, else unchanged."""
    relative = relative_text(path)
    return path if relative.startswith("..") else relative


def _lists(document: dict[str, object]) -> dict[str, object]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in document.items()}


def _metric(metric: Metric) -> dict[str, object]:
    before, after = (None if value is None else json_number(value) for value in (metric.before, metric.after))
    return {"name": metric.name, "before": before, "after": after}


def _model_record(model: ModelRecord) -> dict[str, object]:
    return {
        "name": model.name,
        "served": list(model.served),
        "held": model.held,
        "problem": model.problem,
        "versions": [_version_record(model, version) for version in model.versions],
    }


def _version_record(model: ModelRecord, version: VersionRecord) -> dict[str, object]:
    manifest = version.manifest
    origin = None if manifest is None else manifest.provenance
    return {
        "version": version.version,
        "served": version.served,
        "held": version.version == model.held,
        "problem": version.problem,
        "size": version.size,
        "created": version.created or None,
        "sha256": None if manifest is None else manifest.sha256,
        "content_sha256": None if manifest is None else manifest.content_sha256,
        "target": None if origin is None else origin.target,
        "parity": None if origin is None else _recorded_parity(origin),
        "confirmed": version.confirmed,
        "registry_version": version.registry_version,
        "aliases": list(version.aliases),
        "git_commit": None if origin is None else origin.git_commit or None,
        "signed": version.signed,
    }


def _recorded_parity(origin: Provenance) -> dict[str, object]:
    return {
        "cases": origin.parity_cases,
        "max_abs_diff": json_number(origin.parity_max_abs_diff) if origin.parity_cases else None,
        "max_rel_diff": json_number(origin.parity_max_rel_diff) if origin.parity_cases else None,
    }


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


def provenance_document(origin: Provenance) -> dict[str, object]:
    """Return how a version was built."""
    return {
        "target": origin.target,
        "git_commit": origin.git_commit or None,
        "tools": dict(origin.tools),
        "fingerprint": dict(origin.fingerprint),
    }


def tensor_documents(tensors: Iterable[TensorSpec]) -> list[dict[str, object]]:
    """Return inputs or outputs."""
    return [{"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in tensors]


def _parity_case(case: ParityCase) -> dict[str, object]:
    return {
        "name": case.name,
        "sizes": dict(case.sizes),
        "passed": case.passed,
        "reason": case.reason,
        "max_abs_diff": json_number(case.max_abs_diff),
        "max_rel_diff": json_number(case.max_rel_diff),
        "cosine": case.cosine,
        "outputs": [
            {
                "name": output.name,
                "max_abs_diff": json_number(output.max_abs_diff),
                "max_rel_diff": json_number(output.max_rel_diff),
            }
            for output in case.outputs
        ],
    }


def _distribution(output: ErrorDistribution) -> dict[str, object]:
    return {**dataclasses.asdict(output), "histogram": {str(key): n for key, n in output.histogram.items()}}


def _lossy(lossy: Lossy) -> dict[str, object]:
    return {**dataclasses.asdict(lossy), "passes": list(lossy.passes), "summary": str(lossy)}


def _smoke_check(check: SmokeCheck) -> dict[str, object]:
    largest = check.max_abs_diff
    # JSON has no NaN and no infinity: they are the strings `nan` and `inf`.
    finite = largest is None or math.isfinite(largest)
    return {**dataclasses.asdict(check), "max_abs_diff": largest if finite else str(largest)}


def _gate(gate: GateResult) -> dict[str, object]:
    value = gate.value if gate.value is not None and math.isfinite(gate.value) else None
    return {**dataclasses.asdict(gate), "verdict": gate.verdict.value, "limit": gate.limit or None, "value": value}
