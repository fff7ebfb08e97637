"""The differences of two versions as text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.files.url import is_model_uri
from repogen.reporting.json import relative_path
from repogen.reporting.markdown import diff_page
from repogen.reporting.notes import size_text
from repogen.reporting.table import table
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.difference import DiffReport, VersionRef, WeightsDiff

    Rows = list[tuple[str, str, str]]

_MAX_NAMES = 10
_MAX_ROWS = 30
_MAX_LENGTH = 500


def diff_text(report: DiffReport) -> str:
    """Return what differs: a summary, tables, and the difference of config.pbtxt."""
    before, after = _titles(report)
    parts = ["\n".join([_headline(report), *(f"  {printable(line, _MAX_LENGTH)}" for line in _summary(report))])]
    parts += [table((heading, before, after), rows) for heading, rows in _tables(report)]
    if report.config:
        parts.append("\n".join(report.config))
    return "\n\n".join(parts)


def diff_markdown(report: DiffReport) -> str:
    """Return the same as Markdown, for a comment on a pull request."""
    before, after = _titles(report)
    return diff_page(
        headline=f"repogen diff: {_headline(report)}",
        summary=[printable(line, _MAX_LENGTH) for line in _summary(report)],
        tables=[
            (heading, [tuple(printable(cell, _MAX_LENGTH) for cell in row) for row in rows])
            for heading, rows in _tables(report)
        ],
        before=before,
        after=after,
        config="\n".join(report.config or ()),
    )


def _titles(report: DiffReport) -> tuple[str, str]:
    """Return the headings of both versions, with their repositories if the numbers are equal."""
    before, after = report.before, report.after
    if before.version == after.version or is_model_uri(before.repository):
        return _place(before), _place(after)
    return f"version {before.version}", f"version {after.version}"


def _place(ref: VersionRef) -> str:
    """Return a version and its repository; the URI of a registered version has its number in the registry."""
    repository = relative_path(str(ref.repository))
    return repository if is_model_uri(ref.repository) else f"version {ref.version} of {repository}"


def _headline(report: DiffReport) -> str:
    before, after = report.before, report.after
    if before.repository == after.repository:
        return f"{before.model}: version {before.version} -> version {after.version}"
    return f"{before.model}: {_place(before)} -> {_place(after)}"


def _summary(report: DiffReport) -> Iterator[str]:
    """Yield one line for each subject that was compared."""
    if report.identical:
        yield "all files are the same, according to the manifests"
    elif report.signature is not None:
        yield f"inputs and outputs: {'differ' if report.signature else 'the same'}"
    yield from report.signature or ()
    if report.weights is not None:
        yield f"weights: {_weights_text(report.weights)}"
    if report.nodes is not None:
        old, new = report.nodes
        yield f"nodes: {old}" if old == new and not report.operators else f"nodes: {old} -> {new}"
    sizes = tuple(map(size_text, report.sizes))
    yield f"size: {sizes[0]}" if sizes[0] == sizes[1] else f"size: {sizes[0]} -> {sizes[1]}"
    if report.config is not None:
        yield f"config.pbtxt: {'differs' if report.config else 'the same'}"
    if report.inputs:
        yield f"inputs of the build that differ: {_limited(report.inputs)}"
    yield from report.notes


def _weights_text(weights: WeightsDiff) -> str:
    renamed = f"; {weights.renamed} renamed" if weights.renamed else ""
    if weights.unchanged:
        count = weights.same + weights.renamed
        return f"the same ({count} tensor{'' if count == 1 else 's'}){renamed}"
    parts = [f"{weights.same} the same"]
    for kind, names in (("changed", weights.changed), ("new", weights.added), ("removed", weights.removed)):
        if names:
            parts.append(f"{len(names)} {kind} ({_limited(names)})")
    return ", ".join(parts) + renamed


def _tables(report: DiffReport) -> Iterator[tuple[str, Rows]]:
    """Yield the heading of the first column, and the rows of each table that has any."""
    operators = [(count.name, str(count.before), str(count.after)) for count in report.operators]
    tables: dict[str, Rows] = {
        "metric": [(metric.name, _number(metric.before), _number(metric.after)) for metric in report.metrics],
        "fact": [(change.name, change.before or "-", change.after or "-") for change in report.facts],
        "operator": _shortened(operators),
        "file": _shortened([(file.path, _file_size(file.before), _file_size(file.after)) for file in report.files]),
    }
    yield from ((heading, rows) for heading, rows in tables.items() if rows)


def _shortened(rows: Rows) -> Rows:
    left = len(rows) - _MAX_ROWS
    return rows if left <= 0 else [*rows[:_MAX_ROWS], (f"and {left} more", "-", "-")]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(int(value)) if float(value).is_integer() else f"{value:.1e}"


def _file_size(size: int | None) -> str:
    return "-" if size is None else f"{size:,} bytes"


def _limited(names: Sequence[str]) -> str:
    left = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {left} more" if left > 0 else "")
