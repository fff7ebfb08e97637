"""Reports, findings and errors as human-readable text."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from repogen.artifacts.report import ModelReport, Status
from repogen.artifacts.serving import UNKNOWN_RUNTIME
from repogen.files.url import relative_text
from repogen.reporting.json import relative_path
from repogen.reporting.notes import model_notes, parity_text
from repogen.reporting.table import hanging, notes_section, table, verdict
from repogen.serving.served_models import CLIENT_IMPORTS
from repogen.spec.problems import printable
from repogen.triton_config.rules.findings import RULES, count_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.environment import Check
    from repogen.artifacts.report import BuildReport
    from repogen.artifacts.serving import Endpoint, SmokeReport
    from repogen.check.fix import FixedFile, FixReport
    from repogen.errors import ErrorRecord
    from repogen.serving.served_models import ServedModel
    from repogen.triton_config.rules.findings import Finding

_BUILD_HEADINGS = ("model", "status", "version", "batch", "exporter", "opset", "nodes", "parity", "smoke", "seconds")
_ATTEMPT_HEADINGS = ("exporter", "graph", "seconds", "why")
_SMOKE_HEADINGS = ("model", "version", "smoke", "checks", "p50 / p95", "server")
_STATISTICS_HEADINGS = ("code", "findings", "fixes", "unsafe fixes", "rule")
_SERVED_HEADINGS = ("model", "state", "versions")
_MAX_EXAMPLES = 5
_MAX_REASON = 500
_WITHOUT_PREFIX = frozenset({"spec.problems", "interrupted"})
"""Errors whose message needs no ``error:`` before it."""
_MAX_LENGTH = 2_000
MAX_COMPARED = 2_000
"""Lines of a file that are compared with difflib, whose time can grow with the cube of their number."""


def error_text(error: ErrorRecord, *, debug: bool) -> str:
    """Return an error as ``where: message``, its hint, how to read more, and its details with ``--debug``."""
    place = f"{error.where}: " if error.where and not error.message.startswith(error.where) else ""
    lines = [error.message if error.code in _WITHOUT_PREFIX else f"error: {place}{error.message}"]
    if error.hint:
        lines.append(f"  hint: {error.hint}".replace("\n", "\n    "))
    lines.append(f"  more: repogen explain {error.code}")
    if debug and error.details:
        lines.append(error.details.rstrip())
    return "\n".join(lines)


def model_error_text(model: str, error: ErrorRecord, *, debug: bool) -> str:
    """Return ``error_text`` after the model's name, which is not repeated if the message begins with it."""
    error = replace(error, message=error.message.removeprefix(f"{model}: "))
    return f"{model}: {error_text(error, debug=debug)}"


def build_text(report: BuildReport, *, debug: bool) -> str:
    """Return the summary of a build; failures come last, next to the prompt."""
    parts = [table(_BUILD_HEADINGS, [_build_row(model) for model in report.models])]
    notes = [*report.notes, *(f"{model.name}: {note}" for model in report.models for note in model_notes(model))]
    if notes:
        parts.append(notes_section(notes))
    if any(model.status is not Status.FAILED for model in report.models):
        parts.append(f"repository: {relative_text(report.repository)}")
    if servers := dict.fromkeys(_server_text(model.smoke) for model in report.models if model.smoke is not None):
        parts.append(f"tested on: {'; '.join(servers)}")
    if report.page is not None:
        parts.append(f"report: {os.path.relpath(report.page)}")
    parts += [model_error_text(model.name, model.error, debug=debug) for model in report.models if model.error]
    if report.error is not None:
        parts.append(error_text(report.error, debug=debug))
    return "\n\n".join(parts)


def diagnose_text(model: ModelReport, *, debug: bool) -> str:
    """Return the result of every exporter for one model, and the error when none succeeded."""
    parts = []
    if model.attempts:
        rows = [
            (attempt.exporter, "ok" if attempt.ok else "FAILED", f"{attempt.seconds:.1f}", attempt.reason or "-")
            for attempt in model.attempts
        ]
        parts.append(table(_ATTEMPT_HEADINGS, rows))
    elif model.error is None:
        parts.append(f"{model.name} needs no export ({model.exporter}): ok, {model.parity_cases} parity cases passed")
    notes = [*model.notes, *([f"max_batch_size is 0: {model.batch_reason}"] if model.batch_reason else [])]
    if notes:
        parts.append(notes_section(notes))
    if model.error is not None:
        parts.append(model_error_text(model.name, model.error, debug=debug))
    return "\n\n".join(parts)


def smoke_text(reports: Sequence[SmokeReport]) -> str:
    """Return one line per check of each version, and a table at the end."""
    parts = [_smoke_section(report) for report in reports]
    if reports:
        parts.append(table(_SMOKE_HEADINGS, [_smoke_row(report) for report in reports]))
    return "\n\n".join(parts)


def findings_text(
    findings: Sequence[Finding], models: int, fixable: Sequence[Finding] = (), unexamined: Sequence[str] = ()
) -> str:
    """Return one paragraph per finding, and a line with the number of models that were checked and of findings.

    Args:
        findings: The findings.
        models: Number of models that were checked.
        fixable: The findings that `--fix` can correct.
        unexamined: One line for each model with code.
    """
    counts = [
        _count(number, severity)
        for severity in ("error", "warning")
        if (number := sum(finding.severity == severity for finding in findings))
    ]
    result = ", ".join(counts) + "; run `repogen explain CODE` for details" if counts else "no findings"
    lines = [*map(_finding_paragraph, findings), f"checked {_count(models, 'model')}: {result}"]
    applicable = [finding.applicability for finding in fixable]
    if safe := applicable.count("safe"):
        lines.append(f"{safe} can be fixed with `--fix`; `--diff` shows how")
    if unsafe := applicable.count("unsafe"):
        lines.append(f"{unsafe} can be fixed with `--fix --unsafe-fixes`, which applies guesses")
    if unexamined:
        lines.append("code that was not examined (load it only if you trust it):")
        more = ["and more"] if len(unexamined) > _MAX_EXAMPLES else []
        lines += [f"  {printable(line, _MAX_LENGTH)}" for line in [*unexamined[:_MAX_EXAMPLES], *more]]
    return "\n".join(lines)


def fixes_text(report: FixReport, verb: str = "fixed") -> str:
    """Return a line with the number of fixes and files, and one line per file that must not be changed."""
    number = sum(file.fixes for file in report.files)
    files = f" in {_count(len(report.files), 'file')}" if report.files else ""
    lines = [f"not changed: {relative_path(str(path))}: {reason}" for path, reason in report.skipped]
    return "\n".join([*lines, f"{verb} {_count(number, 'finding')}{files}"])


def text_diff(file: FixedFile) -> str:
    """Return the unified diff of a corrected file; a line break in its name could begin the diff of another file."""
    name = printable(relative_path(str(file.path)), _MAX_LENGTH)
    texts = (text.encode(errors="surrogateescape").decode(errors="replace") for text in (file.before, file.after))
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in texts)
    lines = unified_diff(before, after, (name, name), "\n")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def unified_diff(before: Sequence[str], after: Sequence[str], names: tuple[str, str], end: str) -> Iterator[str]:
    """Yield a unified diff; of a long file, one hunk without context, because a comparison could take hours.

    Args:
        before: Lines.
        after: Lines.
        names: Names of the two files.
        end: End of the lines that are added, such as those with the names.
    """
    if max(len(before), len(after)) <= MAX_COMPARED:
        yield from difflib.unified_diff(before, after, *names, lineterm=end)
        return
    start, same = equal_ends(before, after)
    old, new = (lines[start : len(lines) - same] for lines in (before, after))
    if old or new:
        ranges = (f"{start + bool(lines)},{len(lines)}" for lines in (old, new))
        yield from (f"--- {names[0]}{end}", f"+++ {names[1]}{end}", "@@ -{} +{} @@{}".format(*ranges, end))
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)


def equal_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines are equal at the beginning, and of the others at the end."""
    start = _equal(before, after)
    return start, _equal(before[start:][::-1], after[start:][::-1])


def _equal(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def statistics_text(findings: Sequence[Finding]) -> str:
    """Return a table with the number of findings per code."""
    rows = [
        (count.code, str(count.count), str(count.safe_fixes), str(count.unsafe_fixes), RULES[count.code])
        for count in count_findings(findings)
    ]
    return table(_STATISTICS_HEADINGS, rows) if rows else "no findings"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def serve_text(endpoint: Endpoint, models: Sequence[ServedModel]) -> str:
    """Return the addresses, the state of each model, and example requests for the first ones."""
    rows = [
        (
            model.name,
            "READY" if model.versions else "not served",
            ", ".join(model.versions) or "-",
        )
        for model in models
    ]
    parts = [f"gRPC {endpoint.grpc}\nHTTP {endpoint.http}\nmetrics {endpoint.metrics}"]
    parts.append(table(_SERVED_HEADINGS, rows) if rows else "no models")
    reasons = [f"  {model.name}: {printable(model.reason, _MAX_REASON)}" for model in models if model.reason]
    if reasons:
        parts.append("\n".join(["not served:", *reasons]))
    ready = [model for model in models if model.versions]
    parts += [f"{model.name}:\n{model.curl}" for model in ready[:_MAX_EXAMPLES] if model.curl]
    if ready:
        client = f"client = grpcclient.InferenceServerClient({endpoint.grpc!r})"
        parts.append("\n".join(["in Python:", *CLIENT_IMPORTS, client]))
        parts += [model.python for model in ready[:_MAX_EXAMPLES]]
    return "\n\n".join(parts) + "\n"


def doctor_text(checks: Sequence[Check]) -> str:
    """Return a section per group with one line per check, and one command per missing part."""
    sections = []
    for group in dict.fromkeys(check.group for check in checks):
        members = [check for check in checks if check.group == group]
        width = max(len(check.name) for check in members)
        lines = [_doctor_line(check, width) for check in members]
        sections.append("\n".join([group, *lines]))
    required = dict.fromkeys(check.remedy for check in checks if not check.ok and check.remedy)
    optional = {check.remedy: check.name for check in checks if check.ok and check.remedy}
    if required:
        sections.append("to fix:\n" + "\n".join(f"  {remedy}" for remedy in required))
    elif all(check.ok for check in checks):
        sections.append("no problems found")
    if optional:
        sections.append("optional:\n" + "\n".join(f"  {name}: {remedy}" for remedy, name in optional.items()))
    return "\n\n".join(sections)


def _doctor_line(check: Check, width: int) -> str:
    """Return the state, name and details of a check; on a terminal, details that do not fit have several lines."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _MAX_LENGTH
    state = f"{_doctor_state(check):7}"
    text = hanging(f"  {state}  {check.name.ljust(width)}  ", check.found, columns)
    return text.replace(state, verdict(state.rstrip(), 7), 1)


def _doctor_state(check: Check) -> str:
    if not check.ok:
        return "MISSING"
    return "-" if check.optional and check.remedy else "ok"


def _build_row(model: ModelReport) -> tuple[str, ...]:
    before, after = model.nodes_exported, model.nodes_optimized
    return (
        model.name,
        model.status.value,
        _or_dash(model.version),
        _or_dash(model.max_batch_size),
        model.exporter or "-",
        _or_dash(model.opset or None),
        (f"{before}" if before == after else f"{before} -> {after}") if before else "-",
        parity_text(model),
        _smoke_cell(model.smoke),
        f"{sum(model.seconds.values()):.1f}",
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _passed_checks(report: SmokeReport) -> str:
    return f"{sum(check.passed for check in report.checks)}/{len(report.checks)}"


def _smoke_cell(report: SmokeReport | None) -> str:
    if report is None:
        return "-"
    return _passed_checks(report) + (f", p50 {report.latency.p50:.1f} ms" if report.latency else "")


def _smoke_section(report: SmokeReport) -> str:
    outcome = verdict("passed" if report.passed else "FAILED")
    version = f" version {report.version}" if report.version else ""
    lines = [f"{printable(report.model)}{version}: {outcome} on {_server_text(report)}"]
    for check in report.checks:
        result = "warn" if check.warning else "ok" if check.passed else "FAIL"
        lines.append(f"  {verdict(result, 4)} {check.name}{': ' + check.detail if check.detail else ''}")
    lines += [f"  note override: {override}" for override in report.overrides]
    if (latency := report.latency) is not None:
        lines.append(
            f"  latency of one row over {latency.requests} requests: p50 {latency.p50:.1f} ms, "
            f"p95 {latency.p95:.1f} ms, p99 {latency.p99:.1f} ms"
        )
    return "\n".join(lines)


def _server_text(report: SmokeReport) -> str:
    runtime = "" if report.runtime == UNKNOWN_RUNTIME else f", {report.runtime}"
    return f"Triton {report.server_version} ({report.server}){runtime}"


def _smoke_row(report: SmokeReport) -> tuple[str, ...]:
    latency = f"{report.latency.p50:.1f} / {report.latency.p95:.1f} ms" if report.latency else "-"
    outcome = "passed" if report.passed else "FAILED"
    warnings = sum(check.warning for check in report.checks)
    checks = _passed_checks(report) + (f", {warnings} with a warning" if warnings else "")
    server = f"Triton {report.server_version} ({report.server})"
    return (report.model, _or_dash(report.version or None), outcome, checks, latency, server)


def _finding_paragraph(finding: Finding) -> str:
    path = printable(relative_path(finding.path), _MAX_LENGTH)
    place = f"{path}:{finding.line}:{finding.column}" if finding.line else path
    lines = [f"{place}: {verdict(finding.severity)} {finding.code} {printable(finding.message, _MAX_LENGTH)}"]
    if finding.hint:
        lines.append(f"  hint: {printable(finding.hint, _MAX_LENGTH)}")
    lines += [f"  + {printable(line, _MAX_LENGTH)}" for line in finding.fix.splitlines()]
    return "\n".join(lines)
