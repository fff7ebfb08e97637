"""Errors and findings as GitHub workflow commands: one annotation per problem, on its line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Verdict
from repogen.reporting.output import without_legacy_commands
from repogen.spec.problems import SpecProblemsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.artifacts.promotion import GateResult, PromotionReport
    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.serving import SmokeReport
    from repogen.errors import ErrorRecord, RepogenError
    from repogen.spec.models import Spec
    from repogen.triton_config.rules.findings import Finding

# Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions; escapes as in GitHub's own
# toolkit, where `%` comes first.
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<line>[0-9]+))?(?::(?P<col>[0-9]+))?")


@dataclass(frozen=True)
class Annotation:
    """A message on a line of a file of the workspace.

    Attributes:
        level: ``error``, ``warning`` or ``notice``.
        title: One line.
        message: Any text.
        places: ``file``, ``file:line`` or ``file:line:column``, the best first; the first one whose file is in the
            workspace is used.
        root: Second directory that files are relative to, after the working directory.
    """

    level: str
    title: str
    message: str
    places: tuple[str, ...] = ()
    root: Path = Path()

    def command(self, workspace: Path) -> str:
        """Return the annotation as one line for the runner.

        Args:
            workspace: The directory that GitHub shows files relative to.
        """
        positions = (_position(place, self.root, workspace.resolve()) for place in self.places)
        properties = {**next(filter(None, positions), {}), "title": self.title}
        parameters = ",".join(
            f"{name}={_replace_control(value).translate(_PROPERTY)}" for name, value in properties.items()
        )
        message = _replace_control(self.message).translate(_DATA)
        return without_legacy_commands(f"::{self.level} {parameters}::{message}")


def error_annotations(error: RepogenError) -> list[Annotation]:
    """Return one annotation per problem: all problems of a spec, not only the first."""
    if isinstance(error, SpecProblemsError):
        return [
            Annotation(
                "error", error.code, _with_hint(f"{p.key_path}: {p.what}" if p.key_path else p.what, p.hint), (p.where,)
            )
            for p in error.problems
        ]
    return [_of_record(error.record)]


def record_annotations(errors: Iterable[ErrorRecord]) -> list[Annotation]:
    """Return one annotation per error."""
    return [_of_record(error) for error in errors]


def build_annotations(report: BuildReport, spec: Spec) -> list[Annotation]:
    """Return an error for each failed model, on its line in the spec or its source, and the warnings."""
    annotations = [annotation for model in report.models for annotation in _of_model(model, spec)]
    return annotations if report.error is None else [*annotations, _of_record(report.error)]


def smoke_annotations(reports: Iterable[SmokeReport]) -> list[Annotation]:
    """Return an error for each failed check, and a warning for each check with a warning."""
    return [annotation for report in reports for annotation in _of_smoke(report, (), failures=True)]


def promotion_annotations(report: PromotionReport, spec: Spec | None) -> list[Annotation]:
    """Return an error for each failed gate, on the model's line in the spec if there is one."""
    place = "" if spec is None else spec.where(f"models.{report.model}.promotion")
    return [
        Annotation("error", f"{report.model}: {gate.gate}", _failure(gate), (place,))
        for gate in report.gates
        if gate.verdict is Verdict.FAILED
    ]


def finding_annotations(findings: Iterable[Finding]) -> list[Annotation]:
    """Return one annotation per finding, on its line."""
    return [
        Annotation(
            finding.severity,
            finding.code,
            "\n".join(part for part in (finding.message, finding.hint, finding.fix) if part),
            (f"{finding.path}:{finding.line or 1}:{finding.column or 1}",),
        )
        for finding in findings
    ]


def _failure(gate: GateResult) -> str:
    return _with_hint(f"measured {gate.measured}, limit {gate.limit or 'none'}", gate.note)


def _of_model(model: ModelReport, spec: Spec) -> Iterator[Annotation]:
    model_line = spec.where(f"models.{model.name}")
    if (error := model.error) is not None:
        places = (error.where, model_line)
        yield Annotation(
            "error", f"{model.name}: {error.code}", _with_hint(error.message, error.hint), places, spec.root
        )
    if model.parity_skipped:
        text = f"parity.budget_seconds was used up; number of skipped parity cases: {len(model.parity_skipped)}"
        yield Annotation("warning", f"{model.name}: parity", text, (model_line,))
    if model.smoke is not None:
        yield from _of_smoke(model.smoke, (model_line,), failures=False)


def _of_smoke(report: SmokeReport, places: tuple[str, ...], *, failures: bool) -> Iterator[Annotation]:
    for check in report.checks:
        title = f"{report.model}: {check.name}"
        if check.warning:
            yield Annotation("warning", title, check.detail, places)
        elif failures and not check.passed:
            yield Annotation("error", title, check.detail or "failed", places)


def _of_record(error: ErrorRecord) -> Annotation:
    return Annotation("error", error.code, _with_hint(error.message, error.hint), (error.where,))


def _with_hint(message: str, hint: str) -> str:
    return f"{message}\n{hint}" if hint else message


def _replace_control(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _position(place: str, root: Path, workspace: Path) -> dict[str, str]:
    """Return the properties that locate a place; none when it is not a file of the workspace."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return {}
    for base in (Path(), root):
        file = Path(os.path.realpath(base / match["file"]))  # unlike resolve, for links that lead to themselves
        if file.is_relative_to(workspace) and file.is_file():
            properties = {"file": file.relative_to(workspace).as_posix(), "line": match["line"], "col": match["col"]}
            return {name: value for name, value in properties.items() if value}
    return {}
