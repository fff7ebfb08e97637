"""What ``repogen check`` prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.reporting.annotations import Annotation
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.triton_config.rules.findings import Finding

_SCHEMA = 1
_LONGEST = 2_000


def findings_text(findings: Sequence[Finding]) -> str:
    """Return a paragraph a finding, and a line that counts them."""
    parts = [_paragraph(finding) for finding in findings]
    counts = [
        f"{number} {severity}{'' if number == 1 else 's'}"
        for severity in ("error", "warning")
        if (number := sum(finding.severity == severity for finding in findings))
    ]
    return "\n".join([*parts, ", ".join(counts) or "no findings"])


def _paragraph(finding: Finding) -> str:
    lines = [f"{_place(finding)}: {finding.severity} {finding.code} {printable(finding.message, _LONGEST)}"]
    if finding.hint:
        lines.append(f"  hint: {printable(finding.hint, _LONGEST)}")
    lines += [f"  + {printable(line, _LONGEST)}" for line in finding.fix.splitlines()]
    return "\n".join(lines)


def _shown(path: str) -> str:
    """Return a path from the working directory, where it is below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _place(finding: Finding) -> str:
    path = printable(_shown(finding.path), _LONGEST)
    return f"{path}:{finding.line}:{finding.column}" if finding.line else path


def findings_json(findings: Sequence[Finding]) -> str:
    """Return one document; ``line`` and ``column`` are null where a finding is about a whole file."""
    return json.dumps(
        {
            "schema": _SCHEMA,
            "findings": [
                {
                    "code": finding.code,
                    "severity": finding.severity,
                    "path": _shown(finding.path),
                    "line": finding.line or None,
                    "column": finding.column or None,
                    "field": finding.field,
                    "message": finding.message,
                    "hint": finding.hint,
                    "fix": finding.fix,
                }
                for finding in findings
            ],
        },
        indent=2,
    )


def findings_github(findings: Sequence[Finding]) -> str:
    """Return one workflow command a finding, which GitHub shows on its line."""
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    return "\n".join(_annotation(finding).command(workspace) for finding in findings)


def _annotation(finding: Finding) -> Annotation:
    message = "\n".join(part for part in (finding.message, finding.hint, finding.fix) if part)
    return Annotation(
        finding.severity, finding.code, message, (f"{finding.path}:{finding.line or 1}:{finding.column or 1}",)
    )
