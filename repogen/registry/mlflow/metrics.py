"""Params, metrics and tags that describe a model's build in MLflow."""

from __future__ import annotations

import getpass
import json
import os
from typing import TYPE_CHECKING

from repogen.files.git import git
from repogen.registry.mlflow.entries import tag_text
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.versions import StagedVersion
    from repogen.spec.models import ModelSpec

# Source: mlflow.utils.validation: a param may have 6,000 characters, a tag 8,000.
_MAX_LENGTH = 5000
REPORT_FILE = "report.md"
HTML_FILE = "report.html"
SECONDS = "seconds/"
"""Section of the metrics with the duration of each step."""


def params(staged: StagedVersion, report: ModelReport) -> dict[str, str]:
    """Return the choices and versions of a build as text."""
    origin = staged.manifest.provenance
    values = {
        "exporter": report.exporter,
        "opset": str(report.opset),
        "ir_version": str(report.ir_version),
        "passes": ", ".join(outcome.name for outcome in report.passes if outcome.applied) or "none",
        "lossy": "no" if report.lossy is None else str(report.lossy),
        "max_batch_size": str(report.max_batch_size),
        "target": origin.target,
        "spec_sha256": origin.spec_sha256,
        **{f"tool.{name}": version for name, version in origin.tools.items()},
    }
    return {key: value[:_MAX_LENGTH] for key, value in values.items()}


def metrics(built: BuiltModel, report: ModelReport) -> Iterator[tuple[str, float, int]]:
    """Yield name, value and step; each parity case is a step of one metric, so that cases need no names.

    MLflow's pages show the metrics with the same text before the slash as one section.
    """
    cases = built.parity.cases
    yield "parity/cases", float(len(cases)), 0
    yield "parity/max_abs_diff", built.parity.max_abs_diff, 0
    yield "parity/max_rel_diff", built.parity.max_rel_diff, 0
    yield "parity/min_cosine", min((case.cosine for case in cases), default=1.0), 0
    for step, case in enumerate(cases):
        yield "parity_case/max_abs_diff", case.max_abs_diff, step
        yield "parity_case/max_rel_diff", case.max_rel_diff, step
        yield "parity_case/cosine", case.cosine, step
    yield from _optimization(report)
    if report.opset:  # Python code and ensembles have no graph
        yield "graph/nodes_exported", float(report.nodes_exported), 0
        yield "graph/nodes_optimized", float(report.nodes_optimized), 0
    if report.size:
        yield "model/size_bytes", float(report.size), 0
    yield "build/peak_rss_bytes", float(report.peak_rss_bytes), 0
    for step_name, seconds in report.seconds.items():
        yield f"{SECONDS}{step_name}", seconds, 0
    if report.smoke is not None:
        checks = report.smoke.checks
        yield "smoke/checks", float(len(checks)), 0
        yield "smoke/checks_passed", float(sum(check.passed for check in checks)), 0
        if report.smoke.latency is not None:
            for quantile in ("p50", "p95", "p99"):
                yield f"latency/{quantile}_ms", getattr(report.smoke.latency, quantile), 0


def _optimization(report: ModelReport) -> Iterator[tuple[str, float, int]]:
    for outcome in report.passes:
        if outcome.gain is not None:
            yield f"optimize/{outcome.name}_gain", outcome.gain.ratio, 0
        if outcome.quality is not None:
            yield f"optimize/{outcome.name}_quality", outcome.quality.optimized, 0
            yield "optimize/reference_quality", outcome.quality.reference, 0


def headlines(report: ModelReport) -> Iterator[tuple[str, float, int]]:
    """Yield the metrics of a model that the build's run shows, by the model's name."""
    yield f"{report.name}/max_abs_diff", report.max_abs_diff, 0
    if report.size:
        yield f"{report.name}/size_bytes", float(report.size), 0
    if report.smoke is not None and report.smoke.latency is not None:
        yield f"{report.name}/latency_p95_ms", report.smoke.latency.p95, 0


def model_tags(model: ModelSpec) -> dict[str, str]:
    """Return tags for the description and the source of a model: its kind, and each option that the spec sets."""
    source = model.source.model_dump(mode="json", exclude_defaults=True)
    tags = {"repogen.source": model.source.kind, "mlflow.note.content": model.description}
    for option, value in source.items():
        if option != "kind":
            tags[f"repogen.source.{option}"] = value if isinstance(value, str) else json.dumps(value)
    return {key: value[:_MAX_LENGTH] for key, value in tags.items() if value}


def version_description(staged: StagedVersion, report: ModelReport) -> str:
    """Return what the page of a registered version says about it, as Markdown."""
    origin, smoke = staged.manifest.provenance, report.smoke
    lines = [
        _origin(staged, report),
        f"Target: Triton {origin.target}, max_batch_size {report.max_batch_size}",
    ]
    if report.lossy is not None:
        lines.append(str(report.lossy).capitalize())
    if report.has_parity:
        lines.append(
            f"Parity with PyTorch: largest difference {report.max_abs_diff:.1e} in {report.parity_cases} cases"
        )
    if smoke is not None:
        lines.append(f"Smoke test: passed on Triton {smoke.server_version} ({smoke.server})")
    if origin.git_commit:
        lines.append(f"Git commit: {origin.git_commit}")
    return "".join(f"- {line}\n" for line in lines)


def _origin(staged: StagedVersion, report: ModelReport) -> str:
    """Return what a version is: the graph of an exporter, an ensemble, or Python code."""
    steps = staged.manifest.provenance.steps
    if steps:
        return f"Ensemble of {', '.join(steps)}"
    return f"Exported with {report.exporter}, opset {report.opset}" if report.opset else "Python code"


def run_tags(root: Path, environment: Mapping[str, str], command: str = "repogen build") -> dict[str, str]:
    """Return tags for the user, commit, branch and CI run of a build; unknown values are left out.

    Args:
        root: Directory of the spec.
        environment: The process's environment variables.
        command: The command that creates the run.
    """
    branch = (
        environment.get("GITHUB_HEAD_REF")
        or environment.get("GITHUB_REF_NAME")
        or git(root, "branch", "--show-current")
    )
    run_url = _ci_run(environment)
    tags = {
        "mlflow.user": environment.get("GITHUB_ACTOR") or _user(),
        "mlflow.source.name": command,
        "mlflow.source.type": "JOB" if run_url else "LOCAL",
        "mlflow.source.git.commit": git(root, "rev-parse", "HEAD") or "",
        "mlflow.source.git.branch": branch,
        "repogen.git.branch": branch,
        "repogen.ci.run_url": run_url,
        "repogen.version": __version__,
    }
    return {key: tag_text(value)[:_MAX_LENGTH] for key, value in tags.items() if value}


def _ci_run(environment: Mapping[str, str]) -> str:
    """Return the URL of the CI run on GitHub, GitLab, or a system that sets BUILD_URL, such as Jenkins."""
    server, repository, run = (environment.get(f"GITHUB_{key}") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL") or environment.get("BUILD_URL") or ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
