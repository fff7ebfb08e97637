"""Deploys as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.deployment import DeployAction
from repogen.files.url import relative_text
from repogen.reporting.markdown import outcome_page
from repogen.reporting.table import table
from repogen.reporting.text import error_text
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.deployment import DeployReport, ModelDeployment, ServerDeployment

_HEADINGS = ("server", "model", "action", "before", "serves", "repository", "smoke")
_MAX_VERSIONS = 20


def deploy_text(report: DeployReport, *, debug: bool) -> str:
    """Return the versions of each model that each server serves, notes, the result, and failures last."""
    rows = [_row(server, model) for server in report.servers for model in server.models]
    parts = [table(_HEADINGS, rows)] if rows else []
    notes = [f"  {note}" for server in report.servers for note in _notes(server)]
    if notes:
        parts.append("notes:\n" + "\n".join(notes))
    parts.append(_result(report))
    parts += [error_text(error, debug=debug) for server in report.servers for error in server.errors]
    return "\n\n".join(parts)


def deploy_markdown(report: DeployReport) -> str:
    """Return the same as Markdown, for the summary of a job."""
    return outcome_page(
        headline=f"repogen deploy: {_result(report)}",
        errors=[error for server in report.servers for error in server.errors],
        headings=_HEADINGS,
        rows=[_row(server, model) for server in report.servers for model in server.models],
        notes=[note for server in report.servers for note in _notes(server)],
    )


def _row(server: ServerDeployment, model: ModelDeployment) -> tuple[str, ...]:
    passed = sum(check.passed for smoke in model.smoke for check in smoke.checks)
    total = sum(len(smoke.checks) for smoke in model.smoke)
    return (
        server.server,
        printable(model.model),
        model.action.value,
        _versions(model.before),
        _versions(model.serving),
        _versions(model.expected),
        f"{passed}/{total}" if total else "-",
    )


def _versions(versions: tuple[int, ...] | None) -> str:
    if versions is None:
        return "unknown"
    others = f", and {len(versions) - _MAX_VERSIONS} others" if len(versions) > _MAX_VERSIONS else ""
    return f"{', '.join(map(str, versions[:_MAX_VERSIONS]))}{others}" or "-"


def _notes(server: ServerDeployment) -> Iterator[str]:
    if server.note:
        yield f"{server.server}: {server.note}"
    yield from (f"{server.server}: {printable(model.model)}: {model.note}" for model in server.models if model.note)


def _result(report: DeployReport) -> str:
    repository = relative_text(report.repository)
    if not report.servers:
        return f"{repository}: nothing to deploy"
    complete = sum(server.is_complete for server in report.servers)
    total = f"{len(report.servers)} server{'' if len(report.servers) == 1 else 's'}"
    if report.dry_run and not report.exit_code:
        names = dict.fromkeys(printable(model.model) for _, model in report.pending)
        if not names:
            return f"{repository}: nothing to deploy (--dry-run)"
        return f"{repository}: nothing was done (--dry-run); to deploy: {', '.join(names)}"
    if report.interrupted:
        return f"{repository}: interrupted; deployed to {complete} of {total}"
    if report.exit_code:
        return f"{repository}: failed; deployed to {complete} of {total}"
    return f"{repository}: {_success(report, total)}"


def _success(report: DeployReport, total: str) -> str:
    """Return the result without errors; models are skipped if nothing is to be deployed, or by a server that polls."""
    done = sum(any(model.action is not DeployAction.SKIPPED for model in server.models) for server in report.servers)
    skipped = ", ".join(
        f"{printable(model.model)} on {server}"
        for server, model in report.pending
        if model.action is DeployAction.SKIPPED
    )
    actions = {model.action for server in report.servers for model in server.models}
    verb = "up to date on" if actions <= {DeployAction.UNCHANGED, DeployAction.SKIPPED} else "deployed to"
    if skipped:
        result = f"{verb} {done} of {total}; not unloaded" if done else "nothing was unloaded"
        return f"{result}, because the server polls or is in mode none: {skipped}"
    return f"{verb} {total}" if done else "nothing to deploy"
