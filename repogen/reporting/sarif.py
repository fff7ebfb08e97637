"""Findings as SARIF 2.1.0, the format of GitHub code scanning and of editors.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. Of the fingerprints, GitHub compares
``primaryLocationLineHash`` only:
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from repogen.explain import explain
from repogen.files.url import is_url
from repogen.triton_config.rules.findings import RULES
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repogen.triton_config.rules.findings import Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_HOME = "https://github.com/triton-repogen/repogen"
_NUMBER = re.compile(r"[0-9]+")


def sarif_document(findings: Sequence[Finding], workspace: Path) -> dict[str, object]:
    """Return the document of ``repogen check --format sarif``: one run, with the rules that have findings.

    Args:
        findings: The findings.
        workspace: The checkout. Paths in it are written relative to it, as GitHub requires.
    """
    codes = sorted({finding.code for finding in findings})
    driver = {
        "name": "repogen",
        "semanticVersion": __version__,
        "informationUri": _HOME,
        "rules": [_rule(code) for code in codes],
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "results": list(_results(findings, codes, workspace.resolve())),
            }
        ],
    }


def _rule(code: str) -> dict[str, object]:
    """Return the description of a rule; its page is the help text."""
    title, _, page = explain(code).partition("\n")
    summary = page.strip().partition("\n\n")[0].replace("\n", " ")
    return {
        "id": code,
        "shortDescription": {"text": RULES[code]},
        "fullDescription": {"text": summary},
        "helpUri": f"{_HOME}/blob/main/repogen/explain/rules/{code}.md",
        "help": {"text": f"{title.removeprefix('# ')}\n\n{page.strip()}", "markdown": page.strip()},
    }


def _results(findings: Iterable[Finding], codes: Sequence[str], workspace: Path) -> Iterable[dict[str, object]]:
    occurrences: Counter[str] = Counter()
    for finding in findings:
        location = _uri(finding.path, workspace)
        digest = _digest(finding, location)
        occurrences[digest] += 1
        region = {"startLine": finding.line or 1, "startColumn": finding.column or 1}
        yield {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": finding.severity,
            "message": {"text": _text(finding)},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": location}, "region": region}}],
            "partialFingerprints": {"primaryLocationLineHash": f"{digest}:{occurrences[digest]}"},
        }


def _uri(path: str, workspace: Path) -> str:
    """Return a path as a relative URI in the workspace, else as a ``file:`` URI."""
    if is_url(path):
        return path
    absolute_path = Path.cwd() / path
    resolved = absolute_path.parent.resolve() / absolute_path.name if path else workspace
    if resolved.is_relative_to(workspace):
        return quote(os.fsencode(resolved.relative_to(workspace)))
    return resolved.as_uri()


def _text(finding: Finding) -> str:
    """Return the message; a byte of a name that is not UTF-8 is written as an escape.

    A name must not become a link: ``[text](target)`` is one in messages of SARIF (section 3.11.6).
    """
    text = "\n".join(part for part in (finding.message, finding.hint, finding.fix) if part)
    return text.encode(errors="backslashreplace").decode().replace("](", "] (")


def _digest(finding: Finding, location: str) -> str:
    """Return a hash that stays the same if the finding moves to another line, or a number in its message changes."""
    parts = (finding.code, location, _NUMBER.sub("0", finding.message))
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
