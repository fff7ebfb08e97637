"""The search on a synthetic model whose best settings are known; Optuna and its database are real."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.tune import Figures, Objective, TrialState
from repogen.errors import BenchError
from repogen.tune.constraints import parse_constraints
from repogen.tune.search import Search, SearchPlan, open_study, pareto_front, study_in
from repogen.tune.space import Space, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.tune import Settings

SPACE = Space(
    {
        "max_batch_size": (1, 2, 4, 8, 16),
        "dynamic_batching": ("on", "off"),
        "max_queue_delay_microseconds": (0, 100, 500, 1000),
        "instance_count": (1, 2, 4),
        "intra_op_thread_count": (0, 1, 2, 4),
    }
)
OPTIMUM: Settings = {
    "max_batch_size": 8,
    "dynamic_batching": "on",
    "max_queue_delay_microseconds": 100,
    "instance_count": 2,
    "intra_op_thread_count": 1,
}
BASELINE: Settings = {
    "max_batch_size": 1,
    "dynamic_batching": "off",
    "instance_count": 1,
    "intra_op_thread_count": 0,
}


def distance(settings: Settings) -> int:
    """Return in how many steps settings differ from the best ones; settings without batching are far away."""
    return sum(
        abs(values.index(settings[name]) - values.index(OPTIMUM[name])) if name in settings else 3
        for name, values in SPACE.choices.items()
    )


@dataclass
class Synthetic:
    """A test bed whose figures depend on the distance to the best settings.

    Attributes:
        fails: Raises an error for settings that cannot be served.
        opened: The settings that were measured, in order.
        measured: Number of measurements.
    """

    fails: Callable[[Settings], None] = lambda _settings: None
    opened: list[Settings] = field(default_factory=list)
    measured: int = 0

    @contextmanager
    def open(self, settings: Settings) -> Iterator[Served]:
        """Serve settings."""
        self.opened.append(settings)
        self.fails(settings)
        yield Served(self, settings)


@dataclass
class Served:
    """A candidate of the test bed."""

    bed: Synthetic
    settings: Settings

    def measure(self, seconds: float) -> Figures:
        """Return figures that are the same each time."""
        assert seconds > 0
        self.bed.measured += 1
        steps = distance(self.settings)
        latency = 1.0 + steps
        return Figures(
            latency, 2 * latency, 3 * latency, 1000.0 / (1 + steps), 100 * int(self.settings["instance_count"])
        )


def plan(trials: int = 60, objective: Objective = "throughput", *constraints: str) -> SearchPlan:
    """Return a plan that is limited by its trials."""
    return SearchPlan(SPACE, objective, parse_constraints(constraints), (("spec", BASELINE),), trials)


def searched(search_plan: SearchPlan, bed: Synthetic) -> Search:
    """Run a search in memory."""
    search = Search(study_in(), search_plan, bed)
    search.run()
    return search


def stored(path: Path, search_plan: SearchPlan, bed: Synthetic) -> Search:
    """Run a search that is stored."""
    with open_study(path / "study.db") as study:
        search = Search(study, search_plan, bed)
        search.run()
    return search


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_finds_the_known_optimum(objective: Objective) -> None:
    """In 60 of 300 combinations; the baseline is first, slow settings are stopped early, none is measured twice."""
    bed = Synthetic()

    search = searched(plan(60, objective), bed)

    assert search.best is not None
    assert search.best.settings == OPTIMUM
    assert (search.trials[0].origin, search.trials[0].settings) == ("spec", BASELINE)
    assert search.trials[0].state is TrialState.MEASURED
    stopped = [trial for trial in search.trials if trial.state is TrialState.STOPPED]
    assert stopped
    assert bed.measured < 60 * 4
    assert len({key_of(settings) for settings in bed.opened}) == len(bed.opened) == 60


def test_best_keeps_the_constraints() -> None:
    """The fastest config uses more memory than allowed."""
    search = searched(plan(60, "throughput", "memory < 150B"), Synthetic())

    assert search.best is not None
    assert search.best.settings == {**OPTIMUM, "instance_count": 1}
    assert all(
        trial.violations == ("memory < 150B",) for trial in search.trials if trial.settings["instance_count"] != 1
    )


def test_no_config_keeps_the_constraints() -> None:
    """The closest one is known."""
    search = searched(plan(60, "throughput", "p99 < 2ms"), Synthetic())

    assert search.best is None
    assert search.closest is not None
    assert search.closest.settings == OPTIMUM


def test_failed_trial_does_not_stop_the_study() -> None:
    """A server that exits, or wrong answers, fail the trial; the optimum among the others is found."""

    def fails(settings: Settings) -> None:
        if settings["instance_count"] == 2:
            raise BenchError("the Triton server exited during the measurement", code="bench.server-died")

    search = searched(plan(60), Synthetic(fails))

    assert search.best is not None
    assert {**search.best.settings, "instance_count": 2} == OPTIMUM
    failed = [trial for trial in search.trials if trial.state is TrialState.FAILED]
    assert failed
    assert {trial.reason for trial in failed} == {"the Triton server exited during the measurement"}
    assert len(failed) < 20


def test_error_of_every_trial_is_raised() -> None:
    """Five failures in a row from the start: the cause is not a setting."""

    def fails(_settings: Settings) -> None:
        raise BenchError("no server", code="bench.not-served")

    bed = Synthetic(fails)
    with pytest.raises(BenchError, match="no server"):
        searched(plan(60), bed)
    assert len(bed.opened) == 5


def test_interrupted_search_continues(tmp_path: Path) -> None:
    """Trials are kept, the interrupted one is repeated, and the count includes the earlier ones."""
    first = Synthetic()

    def interrupt(_settings: Settings) -> None:
        if len(first.opened) == 7:
            raise KeyboardInterrupt

    first.fails = interrupt
    with open_study(tmp_path / "study.db") as study, pytest.raises(KeyboardInterrupt):
        Search(study, plan(10), first).run()

    second = Synthetic()
    search = stored(tmp_path, plan(10), second)

    assert search.resumed == 6
    assert [trial.number for trial in search.trials] == list(range(1, 11))
    assert second.opened[0] == first.opened[-1]
    assert len(second.opened) == 4
    assert [trial.settings for trial in search.trials[:6]] == first.opened[:6]


def test_complete_search_measures_nothing_again(tmp_path: Path) -> None:
    """Only the result is computed again."""
    best = stored(tmp_path, plan(10), Synthetic()).best
    bed = Synthetic()

    assert stored(tmp_path, plan(10), bed).best == best
    assert bed.opened == []


def test_small_space_is_exhausted() -> None:
    """Every combination is measured once, without those of parameters that have no effect."""
    space = Space({"dynamic_batching": ("on", "off"), "max_queue_delay_microseconds": (0, 100, 500, 1000)})
    bed = Synthetic()
    search = Search(study_in(), SearchPlan(space, "throughput", trials=50), _AnyBed(bed))
    search.run()

    assert search.exhausted
    assert len(search.trials) == 5


@dataclass
class _AnyBed:
    """Completes settings of a smaller space."""

    bed: Synthetic

    @contextmanager
    def open(self, settings: Settings) -> Iterator[Served]:
        """Serve settings with those of the baseline."""
        with self.bed.open({**BASELINE, **settings}) as served:
            yield served


def test_time_ends_the_search() -> None:
    """No trial begins after the deadline; the progress has the time that is left."""
    ticks = iter(range(0, 1000, 10))
    left: list[float] = []
    search = Search(
        study_in(),
        SearchPlan(SPACE, "throughput", trials=50, seconds=100),
        Synthetic(),
        on_begin=lambda _settings, seconds: left.append(seconds),
        clock=lambda: float(next(ticks)),
    )
    search.run()

    assert 1 < len(search.trials) < 5
    assert left == sorted(left, reverse=True)


def test_damaged_study_is_an_error(tmp_path: Path) -> None:
    """The message has the remedy."""
    (tmp_path / "study.db").write_bytes(b"not a database" * 100)

    with pytest.raises(BenchError, match="can't be used") as caught, open_study(tmp_path / "study.db"):
        pass

    assert caught.value.code == "tune.storage"
    assert "--restart" in caught.value.hint


def test_pareto_front() -> None:
    """The best config is in the front, and no config of the front beats another in every figure."""
    search = searched(plan(40), Synthetic())
    front = pareto_front(search.trials)

    assert search.best is not None
    assert search.best.number in front
    figures = [trial.figures for trial in search.trials if trial.number in front]
    for one in figures:
        for other in figures:
            assert one is not None
            assert other is not None
            better = (one.throughput >= other.throughput, one.p99 <= other.p99, one.memory_bytes <= other.memory_bytes)
            assert one == other or not all(better)
