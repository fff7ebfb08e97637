"""Reports about the versions of a repository as text."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from repogen.artifacts.rollback import RollbackOutcome
from repogen.artifacts.transfer import PackageFormat
from repogen.reporting.json import relative_path
from repogen.reporting.notes import size_text
from repogen.reporting.table import table
from repogen.repository.hold import hold_note
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.attestation import SignReport
    from repogen.artifacts.inventory import ModelRecord, VersionRecord, VersionsReport
    from repogen.artifacts.prune import PruneReport
    from repogen.artifacts.rollback import RollbackReport
    from repogen.artifacts.transfer import TransferReport
    from repogen.artifacts.verification import Discrepancy, VerifyReport

_VERSION_HEADINGS = (
    "model",
    "version",
    "served",
    "size",
    "created",
    "parity",
    "registry",
    "commit",
    "signed",
    "sha256",
)
_DEFAULT = "model_repository"
_PRUNE_HEADINGS = ("model", "version", "action", "size", "reason")
_NEXT_STEPS = {
    PackageFormat.SAGEMAKER: "set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME={name} in the environment of the SageMaker model",
    PackageFormat.AZUREML: "to register it: az ml model create --name {name} --type triton_model --path {target}",
    PackageFormat.OCI: "its model repository is in /models",
}
_DIGITS = 12
_MAX_LENGTH = 2_000


def versions_text(report: VersionsReport) -> str:
    """Return one row per version, then notes."""
    rows = [_version_row(model, version) for model in report.models for version in model.versions]
    notes = [
        *(f"{model.name}: {model.problem}" for model in report.models if model.problem),
        *(
            f"{version.model}: version {version.version}: {version.problem}"
            for model in report.models
            for version in model.versions
            if version.problem
        ),
        *(f"{model.name}: {hold_note(model.held)}" for model in report.models if model.held is not None),
        *report.notes,
    ]
    parts = [table(_VERSION_HEADINGS, rows)] if rows else []
    parts += _note_lines(notes)
    if not report.models:
        parts.append(f"{relative_path(str(report.repository))} has no models")
    return "\n\n".join(parts)


def verify_text(report: VerifyReport) -> str:
    """Return one line per finding, and a line with what was compared."""
    lines = [printable(_finding_line(report, finding), _MAX_LENGTH) for finding in report.findings]
    compared = f"{_count(report.models, 'model')}, {_count(report.versions, 'version')}, {_count(report.files, 'file')}"
    result = _count(len(report.findings), "finding") if report.findings else "no findings"
    signed = f"; {report.signed} of {_count(report.versions, 'version')} signed" if report.signed else ""
    return "\n".join([*lines, f"compared {compared} ({size_text(report.size)}) with the manifests: {result}{signed}"])


def rollback_text(report: RollbackReport) -> str:
    """Return the notes, then what is served."""
    before, after = (", ".join(map(str, numbers)) or "none" for numbers in (report.before, report.after))
    parts = (
        ["notes:\n" + "\n".join(f"  {printable(note, _MAX_LENGTH)}" for note in report.notes)] if report.notes else []
    )
    if report.outcome is RollbackOutcome.UNCHANGED:
        hold = "no version is held" if report.held is None else f"version {report.held} was held before"
        parts.append(f"{report.model}: unchanged; {hold}, and version {after} is served")
        return "\n\n".join(parts)
    verb = "would serve" if report.dry_run else "serves"
    if before != after:
        parts.append(f"{report.model}: {verb} version {after} instead of {before}")
    elif report.outcome is RollbackOutcome.HELD:
        parts.append(f"{report.model}: {'would hold' if report.dry_run else 'holds'} version {after}, which is served")
    else:
        parts.append(f"{report.model}: the hold {'would end' if report.dry_run else 'ended'}; serves version {after}")
    if report.outcome is RollbackOutcome.HELD:
        command = ["repogen", "rollback", report.model, "--release"]
        if str(report.repository) != _DEFAULT:
            command += ["--repository", str(report.repository)]
        parts.append(f"build and sync keep it until `{shlex.join(command)}`")
    return "\n\n".join(parts)


def prune_text(report: PruneReport) -> str:
    """Return one row per version, and a line with what was deleted."""
    action = "would be deleted" if report.dry_run else "deleted"
    rows = [
        (
            version.model,
            str(version.version),
            "kept" if version.keep_reason else action,
            size_text(version.size),
            version.keep_reason,
        )
        for version in report.versions
    ]
    deleted = report.deleted
    freed = f" ({size_text(sum(version.size for version in deleted))})" if deleted else ""
    line = f"{_count(len(deleted), 'version')}{freed} {action}"
    return "\n\n".join([*([table(_PRUNE_HEADINGS, rows)] if rows else []), line])


def transfer_text(report: TransferReport) -> str:
    """Return one line per version."""
    source, target = (relative_path(str(path)) for path in (report.source, report.target))
    return "\n".join(printable(line, _MAX_LENGTH) for line in _transfer_lines(report, source, target))


def sign_text(report: SignReport) -> str:
    """Return one line."""
    return f"{printable(report.model)}: signed version {report.version}"


def _transfer_lines(report: TransferReport, source: str, target: str) -> Iterator[str]:
    if report.format is not None:
        yield from _package_lines(report, report.format, source, target)
        return
    for version in report.versions:
        origin = f"version {version.source} of {source}"
        if not version.published:
            yield f"{version.model}: {origin} is already version {version.number} of {target}"
            continue
        verb = "would be published" if report.dry_run else "published"
        yield f"{version.model}: {origin} {verb} as version {version.number} of {target} ({size_text(version.size)})"
        if version.held is not None:
            yield f"{version.model}: not served: {hold_note(version.held)}"


def _package_lines(report: TransferReport, package_format: PackageFormat, source: str, target: str) -> Iterator[str]:
    for version in report.versions:
        verb = ("would be packed in" if report.dry_run else "packed in") if version.published else "is already in"
        yield f"{version.model}: version {version.source} of {source} {verb} {target} ({size_text(version.size)})"
    if report.digest:
        yield f"{target}: {report.digest}"
    if not report.dry_run:
        yield _NEXT_STEPS[package_format].format(name=report.versions[-1].model, target=target)


def _note_lines(notes: Sequence[str]) -> list[str]:
    """Return a paragraph with the notes; none without notes."""
    return ["notes:\n" + "\n".join(f"  {printable(note, _MAX_LENGTH)}" for note in notes)] if notes else []


def _finding_line(report: VerifyReport, finding: Discrepancy) -> str:
    path = os.path.join(  # noqa: PTH118 - for relative_path, which takes text
        report.repository, finding.model, "" if finding.version is None else str(finding.version)
    )
    return f"{relative_path(path)}: {finding.message}"


def _version_row(model: ModelRecord, version: VersionRecord) -> tuple[str, ...]:
    manifest = version.manifest
    origin = None if manifest is None else manifest.provenance
    served = "held" if version.version == model.held else "yes" if version.served else "-"
    registry = "-" if version.registry_version is None else str(version.registry_version)
    return (
        version.model,
        str(version.version),
        served,
        size_text(version.size),
        version.created or "-",
        f"{origin.parity_max_abs_diff:.1e} in {origin.parity_cases}" if origin and origin.parity_cases else "-",
        f"{registry} ({', '.join(version.aliases)})" if version.aliases else registry,
        (origin.git_commit[:_DIGITS] + ("-dirty" if origin.git_commit.endswith("-dirty") else "") if origin else "")
        or "-",
        "yes" if version.signed else "-",
        "-" if manifest is None else manifest.sha256[:_DIGITS],
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
