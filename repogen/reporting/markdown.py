"""Reports as Markdown, for the step summary on GitHub and the report of an MLflow run.

Everything that a template prints is escaped, except what this module marks as Markdown.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Verdict
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.reporting.bench_text import decimal, interval_text, machine_text, memory_text, method_text, variant_text
from repogen.reporting.notes import model_notes, parity_text, size_text, smoke_notes
from repogen.resources import templates_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2 import Environment

    from repogen.artifacts.bench import BenchReport
    from repogen.artifacts.promotion import GateResult, PromotionReport
    from repogen.artifacts.serving import SmokeReport
    from repogen.artifacts.tune import TuneReport
    from repogen.check.checker import CheckReport
    from repogen.errors import ErrorRecord, RepogenError
    from repogen.triton_config.rules.findings import Finding

# A backslash is enough for some; in some renderers the others would still end a table cell or start a tag.
_INLINE = str.maketrans(
    {character: f"\\{character}" for character in "`*_[]#~"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "\\": "&#92;"}
)
# Text that would start a list or a rule at the beginning of a line.
_LEADING = re.compile(r"^([-+=](?=.)|[0-9]+(?=[.)] ))([.)]?)")
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_BACKTICKS = re.compile(r"`+")


class _Markdown(str):
    """Text that is already Markdown."""

    __slots__ = ()


def report_markdown(report: BuildReport, *, collapse: bool = True) -> str:
    """Return the report of a build: failures with hints, a table with one row per model, then details.

    Failed models come first in every list.

    Args:
        report: The report.
        collapse: Collapse the details of each model with HTML tags, which GitHub supports and MLflow shows as text.
    """
    models = sorted(report.models, key=lambda model: model.status is not Status.FAILED)
    failures = [(model.name, model.error) for model in models if model.error is not None]
    if report.error is not None:
        failures.append(("", report.error))
    return _render("report.md.j2", headline=_headline(report), failures=failures, models=models, collapse=collapse)


def error_markdown(error: RepogenError, command: str) -> str:
    """Return the report of a command, for example ``build``, that failed before it had anything to report."""
    return _render(
        "report.md.j2", headline=f"repogen {command} failed", failures=[("", error.record)], models=[], collapse=True
    )


def smoke_markdown(reports: Sequence[SmokeReport]) -> str:
    """Return the results of smoke tests: failed checks, then a table with one row per model."""
    failure_count = sum(not report.passed for report in reports)
    verdict = (
        f"{failure_count} of {_count_text(len(reports))} failed"
        if failure_count
        else f"{_count_text(len(reports))} passed"
    )
    sorted_reports = sorted(reports, key=lambda report: report.passed)
    return _render("smoke.md.j2", headline=f"repogen smoke: {verdict}", reports=sorted_reports)


def check_markdown(report: CheckReport) -> str:
    """Return the findings of a check: a table with one row per finding, errors first."""
    counts = [
        f"{number} {severity}{'' if number == 1 else 's'}"
        for severity in ("error", "warning")
        if (number := sum(finding.severity == severity for finding in report.findings))
    ]
    headline = f"repogen check: {_count_text(report.models)}, {', '.join(counts) or 'no findings'}"
    findings = sorted(report.findings, key=lambda finding: finding.severity != "error")
    return _render("check.md.j2", headline=headline, findings=findings)


def promotion_markdown(report: PromotionReport) -> str:
    """Return the result of a promotion: what happened to the alias, and every gate, failed ones first."""
    old_text = "no version" if report.old is None else f"version {report.old}"
    headline = (
        f"repogen promote: {report.alias} of {report.model}, {old_text} → version {report.new}: {report.outcome.value}"
    )
    return _render("promotion.md.j2", headline=headline, report=report)


def bench_markdown(report: BenchReport) -> str:
    """Return a benchmark: a table per model, what was not measured, and the machine."""
    failure_count = sum(model.error is not None for model in report.models)
    failed = f", {failure_count} failed" if failure_count else ""
    headline = f"repogen bench: {_count_text(len(report.models))}{failed}"
    return _render("bench.md.j2", headline=headline, report=report)


def tune_markdown(report: TuneReport) -> str:
    """Return the result of tuning a model: the comparison, the change to the spec, notes, and the machine."""
    state = "failed" if report.error else "better settings" if report.improved else "no better settings"
    headline = f"repogen tune: {report.model} version {report.version}, {report.objective}: {state}"
    return _render("tune.md.j2", headline=headline, report=report)


def inline(text: object) -> str:
    r"""Return ``text`` as one line of Markdown that renders as the text itself, also in a table cell.

    >>> inline("a|b <img> *c*\n[d](e)")
    'a&#124;b &lt;img&gt; \\*c\\* \\[d\\](e)'
    """
    escaped = _LEADING.sub(_leading, _line(str(text)).translate(_INLINE))
    return _MENTION.sub("@<!-- -->", escaped)  # GitHub would notify a user or a team


def _line(text: str) -> str:
    """Return text as one line of characters that are visible, which UTF-8 can encode."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def _leading(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}" if match[2] else f"\\{match[1]}"


def diff_page(**variables: object) -> str:
    """Return the differences of two versions, see ``templates/diff.md.j2``."""
    return _render("diff.md.j2", **variables)


def outcome_page(**variables: object) -> str:
    """Return the result of a command, see ``templates/outcome.md.j2``."""
    return _render("outcome.md.j2", **variables)


def fenced(text: str) -> str:
    r"""Return ``text`` as a code block whose fence is longer than any in the text.

    >>> fenced("a\n```\nb")
    '````text\na\n```\nb\n````'
    """
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    printable = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text.replace("\r\n", "\n")
    )
    return _Markdown(f"{fence}text\n{printable.rstrip()}\n{fence}")


def _render(template: str, **variables: object) -> str:
    return f"{_environment().get_template(template).render(variables).strip()}\n"


@cache
def _environment() -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - takes 30 ms, and few commands need it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - the same

    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        autoescape=False,  # Jinja escapes for HTML only; `finalize` escapes for Markdown
        finalize=_escape,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    return environment


def _escape(value: object) -> str:
    return value if isinstance(value, _Markdown) else inline("-" if value is None else value)


def _headline(report: BuildReport) -> str:
    counts = {status: sum(model.status is status for model in report.models) for status in Status}
    parts = [f"{n} {status.value}" for status, n in counts.items() if n]
    return f"repogen build: {', '.join(parts) or 'no models'}"


def _count_text(number: int) -> str:
    return f"{number} model{'' if number == 1 else 's'}"


def _status(model: ModelReport) -> str:
    return _Markdown("**failed**") if model.status is Status.FAILED else model.status.value


def _error_message(error: ErrorRecord) -> str:
    complete = not error.where or error.where in error.message
    return error.message if complete else f"{error.where}: {error.message}"


def _html(text: str) -> str:
    """Return ``text`` for a line that begins with an HTML tag, which Markdown does not process."""
    return _Markdown(html.escape(_line(text)))


def _seconds(seconds: dict[str, float]) -> str:
    return ", ".join(f"{step} {duration:.1f}" for step, duration in seconds.items())


def _failures_first(gates: Iterable[GateResult]) -> list[GateResult]:
    return sorted(gates, key=lambda gate: gate.verdict is not Verdict.FAILED)


def _verdict(gate: GateResult) -> str:
    return _Markdown("**failed**") if gate.verdict is Verdict.FAILED else gate.verdict.value


def _severity(finding: Finding) -> str:
    return _Markdown("**error**") if finding.severity == "error" else finding.severity


def _nodes(model: ModelReport) -> str:
    if not model.nodes_exported:
        return "-"
    if model.nodes_exported == model.nodes_optimized:
        return f"{model.nodes_optimized}"
    return f"{model.nodes_exported} → {model.nodes_optimized}"


def _parity(model: ModelReport) -> str:
    return parity_text(model, " cases")


def _latency(smoke: SmokeReport | None) -> str:
    if smoke is None or smoke.latency is None:
        return "-"
    return f"{smoke.latency.p50:.1f} / {smoke.latency.p95:.1f} / {smoke.latency.p99:.1f} ms"


def _smoke(smoke: SmokeReport | None) -> str:
    if smoke is None:
        return "-"
    pass_count = sum(check.passed for check in smoke.checks)
    return f"{pass_count}/{len(smoke.checks)}" if smoke.passed else _Markdown(f"**{pass_count}/{len(smoke.checks)}**")


_FILTERS: dict[str, Callable[..., object]] = {
    "decimal": decimal,
    "failures_first": _failures_first,
    "fenced": fenced,
    "html": _html,
    "interval": interval_text,
    "latency": _latency,
    "machine": machine_text,
    "memory": memory_text,
    "method": method_text,
    "nodes": _nodes,
    "notes": model_notes,
    "parity": _parity,
    "seconds": _seconds,
    "size": size_text,
    "severity": _severity,
    "smoke": _smoke,
    "smoke_notes": smoke_notes,
    "status": _status,
    "variant": variant_text,
    "error_message": _error_message,
    "verdict": _verdict,
}
