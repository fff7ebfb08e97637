"""Benchmarks as text that fits 80 columns; ``--json`` has every figure with its interval."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from repogen.reporting.table import table
from repogen.reporting.text import model_error_text

if TYPE_CHECKING:
    from repogen.artifacts.bench import BenchReport, BenchRow, Estimate, Machine, ModelBench

_MB = 2**20
_WIDTH = 80


def bench_text(report: BenchReport, *, debug: bool) -> str:
    """Return a table per model and batch size, then notes, the machine, and failures last."""
    parts = [part for model in report.models for part in _model_parts(model)]
    parts += [machine_text(report.machine), method_text(report)]
    parts += [model_error_text(model.name, model.error, debug=debug) for model in report.models if model.error]
    return "\n\n".join(parts)


def decimal(value: float) -> str:
    """Return a number with three or more digits, without an exponent.

    >>> [decimal(value) for value in (0.00885, 1.0991, 15.446, 123.4, 33627.4)]
    ['0.009', '1.10', '15.4', '123', '33,627']
    """
    digits = next((digits for limit, digits in ((1, 3), (10, 2), (100, 1)) if abs(value) < limit), 0)
    return f"{value:,.{digits}f}"


def interval_text(estimate: Estimate | None) -> str:
    """Return an estimate with its interval; ``-`` for None."""
    if estimate is None:
        return "-"
    return f"{decimal(estimate.value)} ({decimal(estimate.low)}-{decimal(estimate.high)})"


def variant_text(row: BenchRow) -> str:
    """Return the name of a row: the variant, and the number of requests at a time if it is not 1."""
    return row.variant if row.concurrency == 1 else f"{row.variant} x{row.concurrency}"


def memory_text(model: ModelBench) -> str:
    """Return the peak memory of each variant; empty if it was not measured."""
    return ", ".join(f"{name} {size / _MB:,.0f} MB" for name, size in model.memory_bytes.items())


def machine_text(machine: Machine) -> str:
    """Return the machine and the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    text = (
        f"machine: {machine.cpu}, {cores} and as many threads per variant, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{machine.system}, {machine.load:g} cores in use before the start, {versions}"
    )
    if machine.busy:
        text += "; other programs were running, so the figures are not reliable"
    return _filled(text)


def method_text(report: BenchReport) -> str:
    """Return how the figures were measured."""
    rounds = "1 round" if report.rounds == 1 else f"{report.rounds} interleaved rounds"
    text = (
        f"method: medians of {rounds} of {report.seconds:g} s for each figure, after a warm-up; in parentheses: 95% "
        "bootstrap interval over the rounds; x4: 4 concurrent requests"
    )
    return _filled(text)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _model_parts(model: ModelBench) -> list[str]:
    title = f"{model.name} version {model.version}" if model.version else model.name
    parts = [f"{title}, {model.server}" if model.server else title]
    headings = ("variant", "p50 ms", "p95 ms", "p99 ms", "rows/s", f"x {model.baseline}")
    for batch, rows in groupby(model.rows, lambda row: row.batch):
        parts.append(f"batch {batch}\n{table(headings, [_row(row) for row in rows])}")
    notes = [f"{each.variant} was not measured: {each.reason}" for each in model.unmeasured]
    notes += [*model.notes, *((f"peak memory: {memory_text(model)}",) if model.memory_bytes else ())]
    return [*parts, "\n".join(f"  {note}" for note in notes)] if notes else parts


def _row(row: BenchRow) -> tuple[str, ...]:
    return (
        variant_text(row),
        interval_text(row.p50),
        decimal(row.p95.value),
        decimal(row.p99.value),
        decimal(row.throughput.value),
        interval_text(row.ratio),
    )
