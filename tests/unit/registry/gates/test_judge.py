"""Figures against limits: what passes, what fails, and what is only recorded."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.promotion import Figures, GateResult, Paired, Ratio, Timing
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.registry.gates.evaluate import CANDIDATE, CHAMPION, MB, judge, passed
from repogen.spec.gates import GatesSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

GOOD = SmokeReport("m", 1, "embedded", "2.51.0", "ORT", (SmokeCheck("golden", passed=True, max_abs_diff=3e-7),))
BAD = replace(GOOD, checks=(*GOOD.checks, SmokeCheck("batch 2", passed=False, detail="off by 1")))
TIMES = Paired(Timing(2.0, 4.0, 2.0, 100), Timing(1.6, 3.0, 1.6, 100), Ratio(1.25, 1.2, 1.3, 12))
FIGURES = Figures(
    parity_built=2e-7,
    size=3 * MB,
    champion=7,
    champion_size=2 * MB,
    smoke=GOOD,
    latency=TIMES,
    bursts=TIMES,
    burst=16,
    holdout={"accuracy": 0.945},
    champion_holdout={"accuracy": 0.95},
)
ALONE = replace(
    FIGURES,
    champion=None,
    champion_size=None,
    latency=replace(TIMES, champion=None, ratio=None),
    bursts=replace(TIMES, champion=None, ratio=None),
    champion_holdout=None,
)


def judged(gates: Mapping[str, object], figures: Figures = FIGURES) -> dict[str, GateResult]:
    """Return the results by gate."""
    return {result.gate: result for result in judge(GatesSpec.model_validate(gates), figures)}


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
        ("holdout.min", {"holdout": {"callable": "g.py:f", "min": 0.945}}, "passed"),
        ("holdout.min", {"holdout": {"callable": "g.py:f", "min": 0.95}}, "failed"),
        ("holdout.max_drop", {"holdout": {"callable": "g.py:f", "max_drop": 0.005}}, "passed"),
        ("holdout.max_drop", {"holdout": {"callable": "g.py:f", "max_drop": 0.004}}, "failed"),
    ],
)
def test_a_figure_is_held_against_its_limit(gate: str, limits: dict[str, object], verdict: str) -> None:
    """A figure at the limit passes."""
    assert verdict == judged(limits)[gate].verdict.value


def test_a_failed_smoke_check_fails_the_gate_with_its_words() -> None:
    """The figure counts what passed."""
    result = judged({}, replace(FIGURES, smoke=BAD))["smoke"]
    assert (result.measured, result.verdict.value, result.note) == ("1/2 checks", "failed", "batch 2: off by 1")


def test_nan_passes_no_limit() -> None:
    """Neither one from above nor one from below."""
    figures = replace(FIGURES, parity_built=nan, holdout={"": nan})
    found = judged({"parity": {"max_abs_diff": 1}, "holdout": {"callable": "g.py:f", "min": 0}}, figures)
    verdicts = (found["parity.max_abs_diff"].verdict.value, found["holdout.min"].verdict.value)
    assert verdicts == ("failed", "failed")


RATIOS = {
    "size": {"max_ratio": 1},
    "latency": {"max_ratio": 1},
    "throughput": {"min_ratio": 1},
    "holdout": {"callable": "g.py:f", "max_drop": 0},
}


def test_without_a_champion_every_comparison_passes_with_a_note() -> None:
    """There is nobody to be worse than."""
    results = judge(GatesSpec.model_validate(RATIOS), ALONE)
    compared = [result for result in results if result.measured == "-"]
    assert [result.gate for result in compared] == [
        "size.max_ratio",
        "latency.max_ratio",
        "throughput.min_ratio",
        "holdout.max_drop",
    ]
    assert {"no champion to compare with"} == {result.note for result in compared}
    assert passed(results)


def test_a_champion_that_cannot_be_measured_fails_every_comparison() -> None:
    """It is there, so a comparison was asked for that nobody made."""
    figures = replace(ALONE, champion=7, obstacles={CHAMPION: "gone"})
    results = judge(GatesSpec.model_validate(RATIOS), figures)
    assert {"version 7: gone"} == {result.note for result in results if result.verdict.value == "failed"}
    assert sum(result.verdict.value == "failed" for result in results) == 4


def test_a_candidate_that_cannot_be_measured_fails_every_limit() -> None:
    """Limits of gates that need the server fail with the reason, the others are judged."""
    figures = replace(
        FIGURES, latency=None, bursts=None, holdout=None, champion_holdout=None, obstacles={CANDIDATE: "no"}
    )
    found = judged(RATIOS | {"size": {"max_mb": 3}}, figures)
    failed = {gate: result.note for gate, result in found.items() if result.verdict.value == "failed"}
    assert failed == dict.fromkeys(("latency.max_ratio", "throughput.min_ratio", "holdout.max_drop"), "no")


def test_a_limit_within_the_spread_is_said_to_be_close() -> None:
    """The median decides, and the note warns."""
    close = judged({"latency": {"max_ratio": 1.26}})["latency.max_ratio"]
    clear = judged({"latency": {"max_ratio": 1.4}})["latency.max_ratio"]
    assert (close.verdict.value, close.note.partition(":")[0]) == ("passed", "the limit lies within the spread")
    assert clear.note == ""


@pytest.mark.parametrize(
    ("holdout", "metric", "said"),
    [
        ({"a": 1.0, "b": 2.0}, None, "the callable returned a, b: say which with holdout.metric"),
        ({"a": 1.0}, "b", "the callable returned a: no 'b' among them"),
        ({"": 1.0}, "b", "the callable returned one number: no 'b' among them"),
    ],
)
def test_a_figure_that_is_not_there_fails(holdout: dict[str, float], metric: str | None, said: str) -> None:
    """Several figures need a name."""
    gates = {"holdout": {"callable": "g.py:f", "min": 0, "metric": metric}}
    result = judged(gates, replace(FIGURES, holdout=holdout))["holdout.min"]
    assert ("failed", said) == (result.verdict.value, result.note)


def test_other_figures_are_recorded() -> None:
    """What the callable returns beside the metric is kept."""
    gates = {"holdout": {"callable": "g.py:f", "min": 0.9, "metric": "a"}}
    found = judged(gates, replace(FIGURES, holdout={"a": 0.95, "rows": 20.0}))
    assert {gate: result.verdict.value for gate, result in found.items() if gate.startswith("holdout")} == {
        "holdout.min": "passed",
        "holdout[rows]": "recorded",
    }
