"""The result of tuning as text and as Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from repogen.artifacts.bench import Estimate, Machine
from repogen.artifacts.built_model import Lossy, Quality
from repogen.artifacts.tune import ComparisonRow, Figures, PassCandidate, Settings, Trial, TrialState, TuneReport
from repogen.errors import BenchError
from repogen.reporting.markdown import tune_markdown
from repogen.reporting.results import REPORTS, read_results
from repogen.reporting.tune_text import tune_text
from repogen.tune.record import write_record

SPEC: Settings = {"max_batch_size": 8, "instance_count": 1}
TUNED: Settings = {"max_batch_size": 8, "instance_count": 4}
LOSSY = Lossy(("int8-dynamic",), "qint8", Quality(0.98, 0.975, 0.01))
PASSES = (
    PassCandidate("spec", (), sha256="a", nodes=9, parity_cases=14, max_abs_diff=4.76e-06),
    PassCandidate("int8-dynamic", ("int8-dynamic",), "", "b", 12, 14, 0.0312, LOSSY),
    PassCandidate("onnxsim", ("onnxsim",), "same graph as spec"),
)


def estimate(value: float) -> Estimate:
    """Return an estimate with an interval of 5% around it."""
    return Estimate(value, value * 0.95, value * 1.05)


def row(name: str, speed: float) -> ComparisonRow:
    """Return a row of the comparison."""
    ratio = None if name == "tuned" else estimate(2000 / speed)
    return ComparisonRow(
        name,  # type: ignore[arg-type] # any of the names
        *(estimate(1.0), estimate(2.0), estimate(3.0), estimate(speed)),
        ratio=ratio,
        violations=("p99 < 2ms",) if name == "auto" else (),
    )


REPORT = TuneReport(
    *("digits", 3, Path("r"), "Triton 2.51.0 (embedded)", Machine("EPYC", 2, 2**34, 0.1, "Linux", {}), "throughput"),
    constraints=("p99 < 2ms",),
    batch=1,
    concurrency=16,
    space={"instance_count": (1, 2, 4)},
    trials=(
        Trial(1, "spec", SPEC, TrialState.MEASURED, Figures(1.5, 2.0, 3.0, 1000.0, 10**8)),
        Trial(2, "search", TUNED, TrialState.MEASURED, Figures(1.0, 1.5, 2.0, 2000.0, 2 * 10**8)),
        Trial(3, "search", {**TUNED, "instance_count": 2}, TrialState.FAILED, reason="exited"),
    ),
    pareto=(1, 2),
    chosen=2,
    comparison=(row("tuned", 2000), row("spec", 1000), row("auto", 500)),
    improved=True,
    diff="--- a/repogen.yaml\n+++ b/repogen.yaml\n-count: 1\n+count: 4",
    notes=("a note",),
    files=(Path("build/reports/tune/digits/tune.json"),),
)


def test_text_has_the_front_the_comparison_and_the_change() -> None:
    """The chosen config is marked, and its settings are those that differ from the spec."""
    text = tune_text(REPORT, debug=False)

    assert "objective: throughput, p99 < 2ms; 16 concurrent requests" in text
    assert "trials: 3 (2 measured, 1 failed)" in text
    chosen = next(line for line in text.splitlines() if line.startswith("2*"))
    assert chosen.split() == ["2*", "2,000", "1.00", "2.00", "200", "instance_count", "4"]
    assert "2.00 (1.90-2.10)" in text
    assert "4.00 (3.80-4.20); violates p99 < 2ms" in text
    assert "change to the spec; --write applies it:\n--- a/repogen.yaml" in text
    assert "a note" in text
    assert "tune.json" in text


def test_text_names_a_chosen_config_that_is_not_on_the_front() -> None:
    """The best trials are measured again, and another of them can be the best then."""
    text = tune_text(replace(REPORT, pareto=(1,)), debug=False)

    assert "memory); the chosen config is trial 2: instance_count 4\n" in text
    assert "* is the chosen config" not in text


def test_text_has_the_passes_and_their_accuracy() -> None:
    """What was measured of each graph, or why it cannot be chosen; the front names the passes of a trial."""
    tuned = replace(REPORT.trials[1], settings={**TUNED, "passes": "int8-dynamic"})
    spec = replace(REPORT.trials[0], settings={**SPEC, "passes": "spec"})
    lines = tune_text(replace(REPORT, passes=PASSES, trials=(spec, tuned)), debug=False).splitlines()
    rows = lines[lines.index("optimization passes") + 3 :]
    assert [line.split(maxsplit=2) for line in rows[:3]] == [
        ["spec", "9", "parity in 14 cases, largest difference 4.8e-06"],
        [
            "int8-dynamic",
            "12",
            "lossy: int8-dynamic, quality 0.98 -> 0.975 (budget 0.01); in 14 cases, largest difference 0.031",
        ],
        ["onnxsim", "-", "not a candidate: same graph as spec"],
    ]
    assert any(line.startswith("2*") and line.endswith("instance_count 4, passes int8-dynamic") for line in lines)
    assert "optimization passes" not in tune_text(REPORT, debug=False)


def test_text_of_a_written_spec_and_of_an_interruption() -> None:
    """The next step is named."""
    assert "written to the spec:" in tune_text(replace(REPORT, written=True), debug=False)
    interrupted = replace(REPORT, interrupted=True, comparison=(), diff="")
    assert "run the same command again to continue" in tune_text(interrupted, debug=False)
    assert (interrupted.exit_code, REPORT.exit_code) == (130, 0)


def test_error_is_last() -> None:
    """It has the closest config."""
    error = replace(BenchError("no config keeps p99 < 2ms", "relax it", code="tune.infeasible").record, exit_code=1)
    report = replace(REPORT, error=error, chosen=None, pareto=(), comparison=(), diff="")

    text = tune_text(report, debug=False)

    assert "Pareto" not in text
    assert "no config keeps p99 < 2ms" in text.rpartition("\n\n")[2]
    assert report.exit_code == 1


def test_markdown_is_escaped() -> None:
    """The diff is a code block."""
    page = tune_markdown(replace(REPORT, notes=("<b>|",), passes=PASSES))

    assert page.startswith("### repogen tune: digits version 3, throughput: better settings")
    assert "| onnxsim | - | not a candidate: same graph as spec |" in page
    assert "| tuned | 2,000 (1,900-2,100) |" in page
    assert "```text\n--- a/repogen.yaml" in page
    assert "&lt;b&gt;&#124;" in page


def test_html_reports_read_what_tune_writes(tmp_path: Path) -> None:
    """The figures of every trial, the front, and the comparison; a file that does not fit would count as absent."""
    write_record(replace(REPORT, passes=PASSES), tmp_path)
    record = read_results(tmp_path / REPORTS, REPORT.model).tuning
    assert record is not None
    assert [(trial.number, trial.settings, trial.violations) for trial in record.trials] == [
        (trial.number, trial.settings, trial.violations) for trial in REPORT.trials
    ]
    assert [trial.figures and (trial.figures.throughput, trial.figures.p99) for trial in record.trials] == [
        trial.figures and (trial.figures.throughput, trial.figures.p99) for trial in REPORT.trials
    ]
    assert [(row.name, row.throughput, row.ratio) for row in record.comparison] == [
        (row.name, row.throughput, row.ratio) for row in REPORT.comparison
    ]
    assert [(each.name, each.nodes, each.reason) for each in record.passes] == [
        (each.name, each.nodes or None, each.reason or None) for each in PASSES
    ]
    assert [each.lossy and each.lossy.summary for each in record.passes] == [None, str(LOSSY), None]
    assert (record.chosen, record.pareto, record.constraints) == (REPORT.chosen, REPORT.pareto, REPORT.constraints)
