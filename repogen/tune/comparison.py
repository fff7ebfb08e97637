"""Configs side by side: all are served at the same time, and measured one after another in interleaved rounds."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.tune import ComparisonRow
from repogen.bench.statistics import estimate
from repogen.errors import RepogenError
from repogen.tune.search import middle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from repogen.artifacts.tune import Baseline, Figures, Objective
    from repogen.tune.interface import Candidate
    from repogen.tune.search import SearchPlan


@dataclass
class Comparison:
    """The figures of several configs, by name.

    Attributes:
        rounds: The figures of each round; a config that failed is missing.
        errors: Why configs are missing.
    """

    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def compare(
    configs: Mapping[str, Callable[[], AbstractContextManager[Candidate]]],
    rounds: int,
    seconds: float,
    on_round: Callable[[int], None] = lambda _number: None,
) -> Comparison:
    """Measure configs in turn; every other round is in reverse order, so that a drift of the machine's speed cancels.

    Args:
        configs: Serves each config.
        rounds: Number of rounds.
        seconds: Duration of each measurement.
        on_round: Called before each round.
    """
    result = Comparison({name: [] for name in configs})
    with ExitStack() as stack:
        candidates: dict[str, Candidate] = {}
        for name, serve in configs.items():
            try:
                candidates[name] = stack.enter_context(serve())
            except RepogenError as error:
                _drop(result, candidates, name, error)
        for number in range(1, rounds + 1):
            on_round(number)
            for name in list(candidates) if number % 2 else list(reversed(candidates)):
                try:
                    result.rounds[name].append(candidates[name].measure(seconds))
                except RepogenError as error:
                    _drop(result, candidates, name, error)
    return result


def comparison_rows(comparison: Comparison, plan: SearchPlan) -> tuple[ComparisonRow, ...]:
    """Return a row for each config that was measured; the ratios refer to the tuned config."""
    tuned = comparison.rounds.get("tuned", [])
    names: tuple[Baseline, ...] = ("tuned", "spec", "auto")
    return tuple(_row(name, comparison.rounds[name], tuned, plan) for name in names if comparison.rounds.get(name))


def _drop(result: Comparison, candidates: dict[str, Candidate], name: str, error: RepogenError) -> None:
    candidates.pop(name, None)
    result.rounds.pop(name)
    result.errors[name] = error.message


def _row(name: Baseline, rounds: Sequence[Figures], tuned: Sequence[Figures], plan: SearchPlan) -> ComparisonRow:
    ratios = [_times_better(a, b, plan.objective) for a, b in zip(tuned, rounds, strict=False)]
    p50, p95, p99, throughput = (
        estimate([getattr(each, figure) for each in rounds]) for figure in ("p50", "p95", "p99", "throughput")
    )
    figures = middle(rounds)
    return ComparisonRow(
        *(name, p50, p95, p99, throughput, figures.memory_bytes),
        ratio=None if name == "tuned" or not ratios else estimate(ratios),
        violations=plan.violations(figures),
    )


def _times_better(tuned: Figures, other: Figures, objective: Objective) -> float:
    if objective == "throughput":
        return tuned.throughput / other.throughput
    return other.p50 / tuned.p50
