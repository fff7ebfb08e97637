"""How the built-in gates judge their measurements: what passes, what fails, and what is only recorded."""

from __future__ import annotations

import os
import traceback
from dataclasses import replace
from math import nan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.promotion import GateResult, Paired, Ratio, Timing
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.errors import SourceError
from repogen.registry.gates import evaluation
from repogen.registry.gates.evaluation import Evaluation, Evaluations
from repogen.registry.gates.interface import Champion, NotMeasuredError
from repogen.registry.gates.recorded import MB, Differences, Parity, Size, Sizes, Smoke
from repogen.registry.gates.timing import Latency, Throughput, Times
from repogen.spec.gates import EvaluationGate, GatesSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.registry.gates.interface import Gate
    from repogen.worker.evaluation import EvaluationJob

GATES: dict[str, Gate[Any, Any]] = {
    "smoke": Smoke(),
    "parity": Parity(),
    "size": Size(),
    "latency": Latency(),
    "throughput": Throughput(),
    "evaluation": Evaluation(),
}
GOOD = SmokeReport("m", 1, "embedded", "2.51.0", "ORT", (SmokeCheck("golden", passed=True, max_abs_diff=3e-7),))
BAD = replace(GOOD, checks=(*GOOD.checks, SmokeCheck("batch 2", passed=False, detail="off by 1")))
TIMES = Paired(Timing(2.0, 4.0, 2.0, 100), Timing(1.6, 3.0, 1.6, 100), Ratio(1.25, 1.2, 1.3, 12))
CHAMPION = Champion(7)
MEASUREMENTS: dict[str, object] = {
    "smoke": GOOD,
    "parity": Differences(2e-7, 3e-7),
    "size": Sizes(3 * MB, 2 * MB, CHAMPION),
    "latency": Times(TIMES, CHAMPION),
    "throughput": Times(TIMES, CHAMPION, 16),
    "evaluation": Evaluations({"accuracy": 0.945}, {"accuracy": 0.95}, CHAMPION),
}


def without_champion(champion: Champion) -> dict[str, object]:
    """Return the measurements without figures of the champion."""
    times = replace(TIMES, champion=None, ratio=None)
    return MEASUREMENTS | {
        "size": Sizes(3 * MB, None, champion),
        "latency": Times(times, champion),
        "throughput": Times(times, champion, 16),
        "evaluation": Evaluations({"accuracy": 0.945}, None, champion),
    }


def results_of(gates: Mapping[str, object], measurements: Mapping[str, object] | None = None) -> dict[str, GateResult]:
    """Return the results of the active gates by name."""
    active = GatesSpec.model_validate(gates).active()
    return {
        result.gate: result
        for name, options in active.items()
        for result in GATES[name].judge(options, (measurements or MEASUREMENTS)[name])
    }


@pytest.mark.parametrize(
    ("gate", "limits", "verdict"),
    [
        ("parity.max_abs_diff", {"parity": {"max_abs_diff": 3e-7}}, "passed"),
        ("parity.max_abs_diff", {"parity": {"max_abs_diff": 2e-7}}, "failed"),
        ("parity.max_abs_diff", {}, "recorded"),
        ("smoke", {}, "passed"),
        ("size.max_mb", {"size": {"max_mb": 3}}, "passed"),
        ("size.max_mb", {"size": {"max_mb": 2.9}}, "failed"),
        ("size.max_mb", {}, "recorded"),
        ("size.max_ratio", {"size": {"max_ratio": 1.5}}, "passed"),
        ("size.max_ratio", {"size": {"max_ratio": 1.4}}, "failed"),
        ("latency.p95_max_ms", {"latency": {"p95_max_ms": 4}}, "passed"),
        ("latency.p95_max_ms", {"latency": {"p95_max_ms": 3.9}}, "failed"),
        ("latency.max_ratio", {"latency": {"max_ratio": 1.25}}, "passed"),
        ("latency.max_ratio", {"latency": {"max_ratio": 1.1}}, "failed"),
        ("latency.max_ratio", {"latency": {}}, "recorded"),
        ("throughput.min_ratio", {"throughput": {"min_ratio": 0.8}}, "passed"),
        ("throughput.min_ratio", {"throughput": {"min_ratio": 0.81}}, "failed"),
        ("evaluation.min", {"evaluation": {"callable": "g.py:f", "min": 0.945}}, "passed"),
        ("evaluation.min", {"evaluation": {"callable": "g.py:f", "min": 0.95}}, "failed"),
        ("evaluation.max_drop", {"evaluation": {"callable": "g.py:f", "max_drop": 0.005}}, "passed"),
        ("evaluation.max_drop", {"evaluation": {"callable": "g.py:f", "max_drop": 0.004}}, "failed"),
    ],
)
def test_figure_is_compared_with_its_limit(gate: str, limits: dict[str, object], verdict: str) -> None:
    """A figure at the limit passes."""
    assert verdict == results_of(limits)[gate].verdict.value


def test_failed_smoke_check_fails_the_gate() -> None:
    """The note has the check; the figure counts the passed checks."""
    result = results_of({}, MEASUREMENTS | {"smoke": BAD})["smoke"]
    assert (result.measured, result.verdict.value, result.note) == ("1/2 checks", "failed", "batch 2: off by 1")


@pytest.mark.parametrize(("limit", "verdict"), [(3.1e-1, "failed"), (3.2e-1, "passed")])
def test_differences_of_a_lossy_version_add_up(limit: float, verdict: str) -> None:
    """Its golden tensors are ONNX Runtime's, so Triton may differ from PyTorch by the sum; the text says what it is."""
    lossy = "lossy: int8-dynamic, quality 0.958 -> 0.956 (budget 0.01)"
    measurements = MEASUREMENTS | {"parity": Differences(3.1e-1, 1e-2, lossy)}
    result = results_of({"parity": {"max_abs_diff": limit}}, measurements)["parity.max_abs_diff"]
    assert result.verdict.value == verdict
    assert result.measured == f"3.2e-01 (built 3.1e-01, served 1.0e-02; {lossy})"


def test_nan_fails_every_limit() -> None:
    """Upper and lower ones."""
    measurements = {"parity": Differences(nan, 3e-7), "evaluation": Evaluations({"": nan}, None, CHAMPION)}
    gates = {"parity": {"max_abs_diff": 1}, "evaluation": {"callable": "g.py:f", "min": 0}}
    results = results_of(gates, MEASUREMENTS | measurements)
    verdicts = (results["parity.max_abs_diff"].verdict.value, results["evaluation.min"].verdict.value)
    assert verdicts == ("failed", "failed")


RATIOS = {
    "size": {"max_ratio": 1},
    "latency": {"max_ratio": 1},
    "throughput": {"min_ratio": 1},
    "evaluation": {"callable": "g.py:f", "max_drop": 0},
}


def test_comparisons_pass_without_a_champion() -> None:
    """With a note."""
    results = results_of(RATIOS, without_champion(Champion()))
    compared = [result for result in results.values() if result.measured == "-"]
    assert [result.gate for result in compared] == [
        "size.max_ratio",
        "latency.max_ratio",
        "throughput.min_ratio",
        "evaluation.max_drop",
    ]
    assert {"no champion to compare with"} == {result.note for result in compared}
    assert all(result.verdict.value != "failed" for result in results.values())


def test_comparisons_fail_if_the_champion_cannot_be_measured() -> None:
    """With the reason."""
    results = results_of(RATIOS, without_champion(Champion(7, obstacle="gone")))
    failed = [result for result in results.values() if result.verdict.value == "failed"]
    assert (len(failed), {result.note for result in failed}) == (4, {"version 7: gone"})


def test_limit_within_the_confidence_interval_is_noted() -> None:
    """The median decides."""
    close = results_of({"latency": {"max_ratio": 1.26}})["latency.max_ratio"]
    clear = results_of({"latency": {"max_ratio": 1.4}})["latency.max_ratio"]
    assert (close.verdict.value, close.note.partition(":")[0]) == (
        "passed",
        "the limit is within the confidence interval",
    )
    assert clear.note == ""


@pytest.mark.parametrize(
    ("figures", "metric", "note"),
    [
        ({"a": 1.0, "b": 2.0}, None, "the callable returned a, b: select one with evaluation.metric"),
        ({"a": 1.0}, "b", "the callable returned a: 'b' is not among them"),
        ({"": 1.0}, "b", "the callable returned one number: 'b' is not among them"),
    ],
)
def test_missing_figure_fails(figures: dict[str, float], metric: str | None, note: str) -> None:
    """If there are several figures, one must be selected by name."""
    gates = {"evaluation": {"callable": "g.py:f", "min": 0, "metric": metric}}
    result = results_of(gates, MEASUREMENTS | {"evaluation": Evaluations(figures, None, CHAMPION)})["evaluation.min"]
    assert ("failed", note) == (result.verdict.value, result.note)


def test_other_figures_are_recorded() -> None:
    """The callable may return more figures than the metric."""
    gates = {"evaluation": {"callable": "g.py:f", "min": 0.9, "metric": "a"}}
    figures = {"a": 0.95, "rows": 20.0}
    results = results_of(gates, MEASUREMENTS | {"evaluation": Evaluations(figures, None, CHAMPION)})
    assert {gate: result.verdict.value for gate, result in results.items() if gate.startswith("evaluation")} == {
        "evaluation.min": "passed",
        "evaluation[rows]": "recorded",
    }


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_data_that_another_user_replaces_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool, replaced: bool
) -> None:
    """The result, or an error that could quote a private file, is not reported."""
    root, data, private = tmp_path / "spec", tmp_path / "shared" / "data.txt", tmp_path / "private.txt"
    root.mkdir()
    data.parent.mkdir()
    data.write_text("theirs")
    private.write_text("SECRET")
    os.chown(data.parent, 65534, -1)

    def run(job: EvaluationJob) -> dict[str, float]:
        assert job.data is not None
        if replaced:
            job.data.rename(job.data.with_name("moved"))
            job.data.symlink_to(private)
        text = job.data.read_text()
        if replaced:
            job.data.unlink()
            job.data.with_name("moved").rename(job.data)
        if fails:
            raise SourceError(f"could not convert string {text!r} to float64", code="source.user-code")
        return {"": 1.0}

    monkeypatch.setattr(evaluation, "run_evaluation", run)
    options = EvaluationGate(callable="gates.py:f", data=str(data))
    candidate = SimpleNamespace(require_served=lambda: SimpleNamespace(address="127.0.0.1:1"))
    versions: Any = SimpleNamespace(candidate=candidate, champion=CHAMPION, root=root)
    if not fails and not replaced:
        assert Evaluation().measure(options, versions).candidate == {"": 1.0}
        return
    with pytest.raises(NotMeasuredError) as caught:
        Evaluation().measure(options, versions)
    assert ("changed while it was read" in str(caught.value), "SECRET" in str(caught.value)) == (replaced, False)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
