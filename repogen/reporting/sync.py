"""What ``repogen sync`` prints."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from repogen.artifacts.sync import SyncAction
from repogen.reporting.json_document import error_document
from repogen.reporting.text import error_text, table
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from repogen.artifacts.sync import SyncedVersion, SyncReport

_HEADINGS = ("model", "action", "version", "alias")
_BEARS = frozenset({SyncAction.PUBLISHED, SyncAction.KEPT, SyncAction.FAILED, SyncAction.IGNORED})
"""Actions on the version that the alias points to; other rows are about versions without it."""


def sync_text(report: SyncReport, *, debug: bool) -> str:
    """Return a row a version, notes, what became of the repository, and failures last."""
    parts = []
    if report.versions:
        parts.append(table(_HEADINGS, [_row(version, report.alias) for version in report.versions]))
    notes = [f"  {printable(version.model)}: {version.note}" for version in report.versions if version.note]
    if notes:
        parts.append("notes:\n" + "\n".join(notes))
    parts.append(f"{os.path.relpath(report.repository)}: {_outcome(report)}")
    parts += [error_text(version.error, debug=debug) for version in report.versions if version.error is not None]
    return "\n\n".join(parts)


def sync_json(report: SyncReport) -> str:
    """Return the document of ``repogen sync --json``."""
    document = {
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
                "error": None if version.error is None else error_document(version.error),
            }
            for version in report.versions
        ],
    }
    return json.dumps(document, indent=2)


def _row(version: SyncedVersion, alias: str) -> tuple[str, ...]:
    number = "-" if version.version is None else str(version.version)
    bears = version.version is not None and version.action in _BEARS
    return (printable(version.model), version.action.value, number, alias if bears else "-")


def _outcome(report: SyncReport) -> str:
    if report.changed:
        return "nothing was done (--dry-run)" if report.dry_run else f"follows {report.alias}"
    if any(version.action is SyncAction.FAILED for version in report.versions):
        return "left as it was"
    if not report.versions:
        return f"no model has the alias {report.alias}, and none is served"
    return "already as the registry says"
