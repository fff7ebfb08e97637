"""Reports and errors for a GitHub Actions runner: annotations, the step's summary, and its outputs.

Active where the runner says so by its environment; outside of it every function here does nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.reporting.annotations import build_annotations, error_annotations, promotion_annotations, smoke_annotations
from repogen.reporting.markdown import error_markdown, promotion_markdown, report_markdown, smoke_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.promotion import PromotionReport
    from repogen.artifacts.report import BuildReport
    from repogen.artifacts.serving import SmokeReport
    from repogen.errors import RepogenError
    from repogen.reporting.annotations import Annotation
    from repogen.spec.models import Spec

SUMMARY_BYTES = 2**20
"""GitHub refuses a larger summary of a step, the whole of it."""
_CUT = "\n\nThe rest was left out: GitHub shows at most 1 MiB. The report's file has it all.\n"


@dataclass(frozen=True)
class Runner:
    """The files by which a step speaks to its runner.

    Attributes:
        summary: Markdown appended to it is shown on the run's page.
        output: Outputs of the step.
        workspace: What annotations' files are relative to.
        temp: Removed with the job.
    """

    summary: Path
    output: Path
    workspace: Path
    temp: Path

    def tell(self, annotations: Iterable[Annotation], markdown: str, outputs: Mapping[str, str], *, err: bool) -> None:
        """Say it all; a runner whose files cannot be written costs a line on standard error, not the build.

        Args:
            annotations: Printed.
            markdown: The step's summary, also written to a file of its own, which becomes the output ``report``.
            outputs: Other outputs of the step.
            err: Print to standard error.
        """
        for annotation in annotations:
            click.echo(annotation.command(self.workspace), err=err)
        try:
            report = Path(tempfile.mkdtemp(prefix="repogen-", dir=self.temp)) / "report.md"
            report.write_text(markdown, encoding="utf-8")
            _append(self.summary, _bounded(markdown, SUMMARY_BYTES - _size(self.summary)))
            _append(self.output, "".join(output_lines(name, value) for name, value in outputs.items()))
            _append(self.output, output_lines("report", str(report)))
        except OSError as error:
            click.echo(f"the runner's files cannot be written: {error}", err=True)


def runner(environment: Mapping[str, str] = os.environ) -> Runner | None:
    """Return the runner that this process is a step of; None outside of GitHub Actions."""
    summary, output = environment.get("GITHUB_STEP_SUMMARY"), environment.get("GITHUB_OUTPUT")
    if environment.get("GITHUB_ACTIONS") != "true" or not summary or not output:
        return None
    return Runner(
        Path(summary),
        Path(output),
        Path(environment.get("GITHUB_WORKSPACE") or Path.cwd()),
        Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir()),
    )


def guarded(text: str) -> str:
    """Return ``text`` so that the runner takes no line of it for a command: messages quote what others wrote."""
    if runner() is None:
        return text
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def tell_build(report: BuildReport, spec: Spec, *, err: bool) -> None:
    """Tell the runner of a build.

    Args:
        report: The build.
        spec: Its spec, for the lines of its models.
        err: Print annotations to standard error, because standard output is one JSON document.
    """
    found = runner()
    if found is None:
        return
    models = [
        {
            "name": model.name,
            "status": model.status.value,
            "version": model.version,
            "registry_version": model.registry_version,
            "sha256": model.sha256 or None,
            "size": model.size or None,
        }
        for model in report.models
    ]
    outputs = _outputs(_shown(report.repository, found.workspace), models, failed=report.exit_code != 0)
    found.tell(build_annotations(report, spec), report_markdown(report), outputs, err=err)


def tell_smoke(directory: Path, reports: Sequence[SmokeReport], *, err: bool) -> None:
    """Tell the runner of a smoke test."""
    found = runner()
    if found is None:
        return
    models = [{"name": r.model, "status": "passed" if r.passed else "failed", "version": r.version} for r in reports]
    failed = not all(report.passed for report in reports)
    outputs = _outputs(_shown(directory, found.workspace), models, failed=failed)
    found.tell(smoke_annotations(reports), smoke_markdown(reports), outputs, err=err)


def tell_promotion(report: PromotionReport, spec: Spec | None, *, err: bool) -> None:
    """Tell the runner of a promotion; a step may make several, so that only ``failed`` and ``report`` are outputs."""
    found = runner()
    if found is not None:
        outputs = {"failed": "true" if report.exit_code else "false"}
        found.tell(promotion_annotations(report, spec), promotion_markdown(report), outputs, err=err)


def tell_error(error: RepogenError, command: str) -> None:
    """Tell the runner of a command that failed before it had anything to report."""
    found = runner()
    if found is not None:
        outputs = _outputs("", [], failed=True)
        found.tell(error_annotations(error), error_markdown(error, command), outputs, err=True)


def output_lines(name: str, value: str) -> str:
    """Return the lines that set an output of the step, whatever ``value`` holds: its end cannot be guessed."""
    delimiter = f"end_{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _outputs(repository: str, models: Sequence[Mapping[str, object]], *, failed: bool) -> dict[str, str]:
    return {"repository": repository, "models": json.dumps(models), "failed": "true" if failed else "false"}


def _shown(path: Path, workspace: Path) -> str:
    """Return ``path`` relative to the workspace, as other actions take it; whole when it lies elsewhere."""
    full, top = path.resolve(), workspace.resolve()
    return (full.relative_to(top) if full.is_relative_to(top) else full).as_posix()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _bounded(markdown: str, room: int) -> str:
    data = markdown.encode()
    if len(data) <= room:
        return markdown
    kept = data[: max(room - len(_CUT.encode()), 0)].decode(errors="ignore")
    return kept.rpartition("\n")[0] + _CUT if kept else ""


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)
