"""The section of a model with the search of ``repogen tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.reporting.bench_text import decimal
from repogen.reporting.html.charts import Point, Series, plane
from repogen.reporting.html.parts import Code, Facts, Notes, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.tuning import PassRecord, TrialRecord, TuningRecord
    from repogen.reporting.html.charts import Plane
    from repogen.reporting.html.parts import Part

_MAX_DIFF = 20_000
_MAX_TRIALS = 500
"""Trials of the plot, each of which is compared with all others; a search has dozens."""
_BASELINES = {"tuned": "Chosen", "spec": "Original spec", "auto": "Triton's auto-completion"}


def tune_section(tuning: TuningRecord) -> Section:
    """Return the search of one model."""
    return Section("Tuning", tuple(_parts(tuning)))


def _parts(tuning: TuningRecord) -> Iterator[Part]:
    chosen = next((trial for trial in tuning.trials if trial.number == tuning.chosen), None)
    settings = "none" if chosen is None else _settings(chosen)
    yield Facts(
        (
            ("Measured", f"version {tuning.version}, batch {tuning.batch}, {tuning.concurrency} concurrent requests"),
            ("Objective", tuning.objective),
            ("Constraints", ", ".join(tuning.constraints) or "none"),
            ("Trials", f"{len(tuning.trials)}, {len(tuning.pareto)} of them on the Pareto front"),
            ("Chosen", settings),
        )
    )
    if tuning.passes:
        columns = ("Passes", "Nodes", "Largest difference", "Result")
        yield Table("Optimization passes", columns, tuple(map(_passes, tuning.passes)), frozenset({1, 2}))
    if any(trial.figures is not None for trial in tuning.trials):
        yield _pareto_plane(tuning)
    if tuning.comparison:
        rows = tuple(
            (
                _BASELINES.get(row.name, row.name),
                decimal(row.throughput.value),
                decimal(row.p50.value),
                decimal(row.p99.value),
                "-"
                if row.ratio is None
                else f"{decimal(row.ratio.value)} ({decimal(row.ratio.low)} to {decimal(row.ratio.high)})",
            )
            for row in tuning.comparison
        )
        headings = ("Config", "Rows per second", "p50 ms", "p99 ms", "Speedup of the chosen config")
        yield Table("The chosen config and the baselines, in one run", headings, rows, frozenset({1, 2, 3, 4}))
    if tuning.diff:
        yield Code("Changes to the spec", tuning.diff[:_MAX_DIFF])
    if tuning.notes:
        yield Notes(tuning.notes)


def _passes(record: PassRecord) -> tuple[str, ...]:
    nodes = "-" if record.nodes is None else f"{record.nodes:,}"
    difference = "-" if record.max_abs_diff is None else f"{record.max_abs_diff:.2g}"
    lossy = "parity" if record.lossy is None else record.lossy.summary
    return record.name, nodes, difference, lossy if record.reason is None else f"not a candidate: {record.reason}"


def _pareto_plane(tuning: TuningRecord) -> Plane:
    """Return p99 against throughput; the third figure of the front is memory, so a trial can be above the line."""
    measured = [trial for trial in tuning.trials if trial.figures is not None][:_MAX_TRIALS]
    numbers = frozenset(tuning.pareto)
    front = [trial for trial in measured if trial.number in numbers]
    chosen = [trial for trial in measured if trial.number == tuning.chosen]
    others = [trial for trial in measured if trial not in front and trial not in chosen]
    line = [trial for trial in front if not any(_beats(other, trial) for other in front)]
    by_memory = [trial for trial in front if trial not in line]
    series = [
        Series("Other trials", _points(others), 3, line=False),
        Series("Pareto front, with less memory", _points(by_memory), 4, line=False),
        Series("Pareto front", _points(sorted(line, key=_throughput)) if line != chosen else (), 1),
        Series("Chosen", _points(chosen), 2, line=False),
    ]
    return plane(
        (
            "Trials: higher throughput to the right, lower latency at the bottom",
            "Throughput (rows per second)",
            "p99 (ms)",
        ),
        ("Trials", "Number", "Rows per second", "p99 ms", "Settings", "State"),
        [each for each in series if each.points],
        frozenset({1, 2, 3}),
    )


def _beats(trial: TrialRecord, other: TrialRecord) -> bool:
    """Return whether a trial has more throughput and a lower p99 than another."""
    if trial.figures is None or other.figures is None:
        return False
    return trial.figures.throughput > other.figures.throughput and trial.figures.p99 < other.figures.p99


def _throughput(trial: TrialRecord) -> float:
    return 0.0 if trial.figures is None else trial.figures.throughput


def _points(trials: Sequence[TrialRecord]) -> tuple[Point, ...]:
    return tuple(
        Point(
            trial.figures.throughput,
            trial.figures.p99,
            "",
            (
                str(trial.number),
                decimal(trial.figures.throughput),
                decimal(trial.figures.p99),
                _settings(trial),
                ", ".join((trial.state, *trial.violations)),
            ),
        )
        for trial in trials
        if trial.figures is not None
    )


def _settings(trial: TrialRecord) -> str:
    return ", ".join(f"{key} {value}" for key, value in trial.settings.items()) or trial.origin
