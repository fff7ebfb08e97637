"""Reports and errors for a GitHub Actions runner: annotations, the step summary, and outputs.

Outside of GitHub Actions, as seen in the environment, every function here does nothing.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.resolve import open_file
from repogen.reporting.annotations import (
    build_annotations,
    error_annotations,
    finding_annotations,
    promotion_annotations,
    record_annotations,
    smoke_annotations,
)
from repogen.reporting.deploy_text import deploy_markdown
from repogen.reporting.markdown import (
    bench_markdown,
    check_markdown,
    error_markdown,
    promotion_markdown,
    report_markdown,
    smoke_markdown,
    tune_markdown,
)
from repogen.reporting.output import write_commands, write_text
from repogen.reporting.registry_text import sync_markdown
from repogen.spec.sources import EnsembleSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.bench import BenchReport
    from repogen.artifacts.deployment import DeployReport
    from repogen.artifacts.promotion import PromotionReport
    from repogen.artifacts.report import BuildReport
    from repogen.artifacts.serving import SmokeReport
    from repogen.artifacts.sync import SyncReport
    from repogen.artifacts.tune import TuneReport
    from repogen.check.checker import CheckReport
    from repogen.errors import RepogenError
    from repogen.reporting.annotations import Annotation
    from repogen.spec.models import Spec

SUMMARY_BYTES = 2**20
"""GitHub rejects a step summary that is larger."""
_TRUNCATED = "\n\nTruncated: GitHub shows at most 1 MiB. The report file is complete.\n"


@dataclass(frozen=True)
class Runner:
    """The files through which a step reports to its runner.

    Attributes:
        summary: Markdown that is appended here is shown on the page of the run.
        output: Outputs of the step.
        workspace: The directory that the files of annotations are relative to.
        temp: A directory that is removed with the job.
    """

    summary: Path
    output: Path
    workspace: Path
    temp: Path

    def write(self, annotations: Iterable[Annotation], markdown: str, outputs: Mapping[str, str], *, err: bool) -> None:
        """Write everything; when the runner's files cannot be written, print that instead of failing the build.

        Args:
            annotations: Annotations to print.
            markdown: The step summary; also written to a file, whose path is the output ``report``.
            outputs: Other outputs of the step.
            err: Print to standard error.
        """
        write_commands([annotation.command(self.workspace) for annotation in annotations], err=err)
        try:
            report = Path(tempfile.mkdtemp(prefix="repogen-", dir=self.temp)) / "report.md"
            report.write_text(markdown, encoding="utf-8")
            _append(self.summary, _truncate(markdown, SUMMARY_BYTES - _size(self.summary)))
            _append(self.output, "".join(output_lines(name, value) for name, value in outputs.items()))
            _append(self.output, output_lines("report", str(report)))
        except OSError as error:
            write_text(f"cannot write the files of the GitHub runner: {error}", err=True)

    def copy_page(self, page: Path) -> dict[str, str]:
        """Copy an HTML report to a file whose name is unique in the workflow run: an artifact gets the file's name."""
        job = re.sub(r"[^A-Za-z0-9_-]", "-", os.environ.get("GITHUB_JOB", "build"))
        copy = self.temp / f"repogen-{job}-{secrets.token_hex(4)}.html"
        try:
            shutil.copyfile(page, copy)
        except OSError as error:
            write_text(f"cannot copy the HTML report: {error}", err=True)
            return {}
        return {"html": str(copy)}


def runner(environment: Mapping[str, str] = os.environ) -> Runner | None:
    """Return the runner of this step; None outside of GitHub Actions."""
    summary, output = environment.get("GITHUB_STEP_SUMMARY"), environment.get("GITHUB_OUTPUT")
    if environment.get("GITHUB_ACTIONS") != "true" or not summary or not output:
        return None
    return Runner(
        Path(summary),
        Path(output),
        workspace(environment),
        Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir()),
    )


def workspace(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that GitHub shows files relative to; the working directory outside of GitHub Actions."""
    return Path(environment.get("GITHUB_WORKSPACE") or Path.cwd())


def write_build(report: BuildReport, spec: Spec, *, err: bool) -> None:
    """Write a build to the runner.

    Args:
        report: The report of the build.
        spec: The spec, for the lines of its models.
        err: Print annotations to standard error, because standard output is one JSON document.
    """
    step = runner()
    if step is None:
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
        for model in sorted(report.models, key=lambda model: -_depth(spec, model.name))
    ]
    outputs = _outputs(_workspace_path(report.repository, step.workspace), models, failed=report.exit_code != 0)
    if report.page is not None:
        outputs |= step.copy_page(report.page)
    step.write(build_annotations(report, spec), report_markdown(report), outputs, err=err)


def write_smoke(directory: Path, reports: Sequence[SmokeReport], *, err: bool) -> None:
    """Write a smoke test to the runner."""
    step = runner()
    if step is None:
        return
    models = [{"name": r.model, "status": "passed" if r.passed else "failed", "version": r.version} for r in reports]
    has_failures = not all(report.passed for report in reports)
    outputs = _outputs(_workspace_path(directory, step.workspace), models, failed=has_failures)
    step.write(smoke_annotations(reports), smoke_markdown(reports), outputs, err=err)


def write_check(report: CheckReport, *, failed: bool, err: bool) -> None:
    """Write findings to the runner.

    Args:
        report: The findings.
        failed: Whether the command fails: there are errors, or warnings with ``--strict``.
        err: As for ``write_build``.
    """
    step = runner()
    if step is None:
        return
    severities = [finding.severity for finding in report.findings]
    outputs = {
        "failed": "true" if failed else "false",
        "errors": str(severities.count("error")),
        "warnings": str(severities.count("warning")),
    }
    step.write(finding_annotations(report.findings), check_markdown(report), outputs, err=err)


def write_bench(report: BenchReport, *, err: bool) -> None:
    """Write a benchmark to the runner."""
    step = runner()
    if step is not None:
        outputs = {"failed": "true" if report.exit_code else "false"}
        errors = [model.error for model in report.models if model.error is not None]
        step.write(record_annotations(errors), bench_markdown(report), outputs, err=err)


def write_tune(report: TuneReport, *, err: bool) -> None:
    """Write the result of tuning a model to the runner."""
    step = runner()
    if step is not None:
        outputs = {"failed": "true" if report.exit_code else "false"}
        errors = [] if report.error is None else [report.error]
        step.write(record_annotations(errors), tune_markdown(report), outputs, err=err)


def write_promotion(report: PromotionReport, spec: Spec | None, *, err: bool) -> None:
    """Write a promotion to the runner; a step may run several, so only ``failed`` and ``report`` are outputs."""
    step = runner()
    if step is not None:
        outputs = {"failed": "true" if report.exit_code else "false"}
        step.write(promotion_annotations(report, spec), promotion_markdown(report), outputs, err=err)


def write_deploy(report: DeployReport, *, err: bool) -> None:
    """Write a deploy to the runner."""
    step = runner()
    if step is not None:
        errors = [error for server in report.servers for error in server.errors]
        outputs = {"failed": "true" if report.exit_code else "false"}
        step.write(record_annotations(errors), deploy_markdown(report), outputs, err=err)


def write_sync(report: SyncReport, *, err: bool) -> None:
    """Write a sync to the runner; the output ``changed`` is also set by a dry run."""
    step = runner()
    if step is not None:
        errors = [version.error for version in report.versions if version.error is not None]
        outputs = {
            "repository": _workspace_path(report.repository, step.workspace),
            "changed": "true" if report.changed else "false",
            "failed": "true" if report.exit_code else "false",
        }
        step.write(record_annotations(errors), sync_markdown(report), outputs, err=err)


def write_error(error: RepogenError, command: str) -> None:
    """Write a failure to the runner, of a command that failed before it had anything to report."""
    step = runner()
    if step is not None:
        outputs = _outputs("", [], failed=True)
        step.write(error_annotations(error), error_markdown(error, command), outputs, err=True)


def output_lines(name: str, value: str) -> str:
    """Return the lines that set an output of the step; the delimiter is random, so ``value`` cannot contain it."""
    delimiter = f"end_{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _depth(spec: Spec, name: str) -> int:
    """Return how many ensembles are nested below a model: an ensemble is promoted before its steps, which it moves."""
    source = spec.models[name].source
    return 1 + max(_depth(spec, step.model) for step in source.steps) if isinstance(source, EnsembleSource) else 0


def _outputs(repository: str, models: Sequence[Mapping[str, object]], *, failed: bool) -> dict[str, str]:
    return {"repository": repository, "models": json.dumps(models), "failed": "true" if failed else "false"}


def _workspace_path(path: Path, workspace: Path) -> str:
    """Return ``path`` relative to the workspace, as other actions expect it; absolute when it is elsewhere."""
    absolute_path, root = path.resolve(), workspace.resolve()
    return (absolute_path.relative_to(root) if absolute_path.is_relative_to(root) else absolute_path).as_posix()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _truncate(markdown: str, room: int) -> str:
    data = markdown.encode()
    if len(data) <= room:
        return markdown
    text = data[: max(room - len(_TRUNCATED.encode()), 0)].decode(errors="ignore")
    return text.rpartition("\n")[0] + _TRUNCATED if text else ""


def _append(path: Path, text: str) -> None:
    """Append text, but not through a link of another user; the bytes of a path that are not UTF-8 are kept.

    Raises:
        OSError: The file cannot be opened or written.
    """
    with open(_opened(path), "a", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
    if path.parent == Path("/dev"):  # /dev/stdout leads to no name
        return os.open(path, flags)
    try:
        return open_file(str(path), flags)
    except FileNotFoundError:
        directory = open_file(str(path.parent), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.open(path.name, flags | os.O_CREAT | os.O_NOFOLLOW, 0o664, dir_fd=directory)
        finally:
            os.close(directory)
