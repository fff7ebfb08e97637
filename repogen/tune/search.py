"""The search: Optuna proposes settings, and each trial measures them.

A trial measures for a short time first, and is stopped if it is slower than the median of the others at the same step.
The study is a SQLite database, so that the next run continues an interrupted search. Settings are never measured twice:
if Optuna proposes known ones, an untried neighbor of the best settings is measured instead.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import optuna
from optuna.trial import TrialState as OptunaState
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import SQLAlchemyError

from repogen.artifacts.tune import Figures, Trial, TrialState
from repogen.errors import BenchError, RepogenError
from repogen.tune.space import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from repogen.artifacts.tune import Choice, Constraint, Objective, Settings
    from repogen.tune.interface import Candidate, TestBed
    from repogen.tune.space import Space

Origin: TypeAlias = Literal["spec", "auto", "search"]

_RECORD = "repogen.trial"
_NAME = "repogen"
_TRIAL = TypeAdapter(Trial)
_STARTUP_TRIALS = 8
_COMPARED_TRIALS = 4
_MAX_FAILURES = 5
_MAX_COMBINATIONS = 100_000
_RANDOM_DRAWS = 1_000
_DAMAGE = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What Optuna raises for values in its database that it would not write."""
_INFEASIBLE = 1e9
"""Added to the figures of an infeasible config, so that the pruner prefers every feasible one."""


@dataclass(frozen=True)
class SearchPlan:
    """What to search for.

    Attributes:
        space: The parameters and their values.
        objective: What is optimized.
        constraints: Limits that a config must keep.
        baselines: Settings that are measured first; equal ones are measured once.
        trials: Number of trials, those of an earlier run included.
        seconds: Time for this run's trials; a trial that has begun is completed.
        short: Seconds of the first measurement of a trial.
        long: Seconds of each of the others.
        rounds: Number of the others; their median counts.
    """

    space: Space
    objective: Objective
    constraints: tuple[Constraint, ...] = ()
    baselines: tuple[tuple[Origin, Settings], ...] = ()
    trials: int = 50
    seconds: float = 600.0
    short: float = 0.3
    long: float = 0.6
    rounds: int = 3

    def violations(self, figures: Figures) -> tuple[str, ...]:
        """Return the constraints that figures violate, as the user wrote them."""
        return tuple(each.text for each in self.constraints if each.excess(figures) > 0)

    def score(self, figures: Figures) -> float:
        """Return a number that is lower for better figures; any feasible ones are better than infeasible ones."""
        excess = sum(max(each.excess(figures), 0.0) for each in self.constraints)
        value = figures.objective(self.objective)
        return _INFEASIBLE * (1 + excess) if excess else -value if self.objective == "throughput" else value


@dataclass
class Search:
    """The trials of one study.

    Attributes:
        study: Optuna's study.
        plan: What to search for.
        test_bed: Measures settings.
        on_begin: Called before each trial, with its settings and the seconds left.
        on_end: Called after each trial.
        clock: Returns seconds.
        trials: All trials, in order; those of earlier runs first.
        resumed: Number of trials of earlier runs.
        exhausted: Whether every combination was measured.
    """

    study: optuna.Study
    plan: SearchPlan
    test_bed: TestBed
    on_begin: Callable[[Settings, float], None] = lambda _settings, _left: None
    on_end: Callable[[Trial], None] = lambda _trial: None
    clock: Callable[[], float] = time.monotonic
    trials: list[Trial] = field(default_factory=list)
    resumed: int = 0
    exhausted: bool = False
    _by_settings: dict[tuple[tuple[str, Choice], ...], Trial] = field(default_factory=dict)
    _interrupted: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the trials of earlier runs; one that was interrupted is repeated.

        Raises:
            BenchError: A record is damaged.
        """
        try:
            self._read_trials()
        except _DAMAGE as error:
            raise _unusable("the database", error) from error

    def _read_trials(self) -> None:
        for frozen in self.study.get_trials(deepcopy=False):
            if (record := frozen.user_attrs.get(_RECORD)) is not None:
                self._add(_decoded(record))
            elif not frozen.state.is_finished():
                self._interrupted.append(frozen.params)
        for _ in self._interrupted:  # only a running trial can be ended
            self.study.ask()
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.state is OptunaState.RUNNING:
                self.study.tell(frozen.number, state=OptunaState.FAIL)
        self.resumed = len(self.trials)

    @property
    def best(self) -> Trial | None:
        """The best feasible trial so far."""
        ranked = self.ranked
        return ranked[0] if ranked else None

    @property
    def ranked(self) -> list[Trial]:
        """The feasible trials, best first."""
        feasible = [(trial, trial.figures) for trial in self.trials if trial.feasible]
        scored = [(self.plan.score(figures), trial) for trial, figures in feasible if figures is not None]
        return [trial for _, trial in sorted(scored, key=lambda each: (each[0], each[1].number))]

    @property
    def closest(self) -> Trial | None:
        """The trial whose figures are closest to keeping the constraints."""
        scored = [(self.plan.score(trial.figures), trial) for trial in self.trials if trial.figures is not None]
        return min(scored, key=lambda each: each[0], default=(0.0, None))[1]

    def run(self) -> None:
        """Run trials until their number, the time or the space is used up.

        Raises:
            RepogenError: No trial could be measured; the error is that of the last one.
        """
        deadline = self.clock() + self.plan.seconds
        repeated: list[tuple[Origin, Settings]] = [
            ("search", settings) for settings in self._interrupted if settings and settings in self.plan.space
        ]
        for origin, settings in (*self.plan.baselines, *repeated):
            if len(self.trials) < self.plan.trials and key_of(settings) not in self._by_settings:
                self._run_trial(self._trial_with(settings), settings, origin, deadline)
        while len(self.trials) < self.plan.trials and self.clock() < deadline:
            trial = self.study.ask()
            settings = self._suggested(trial)
            if key_of(settings) in self._by_settings:
                self.study.tell(trial, state=OptunaState.FAIL)
                other = self._untried()
                if other is None:
                    self.exhausted = True
                    return
                trial, settings = self._trial_with(other), other
            self._run_trial(trial, settings, "search", deadline)

    def _trial_with(self, settings: Settings) -> optuna.Trial:
        """Return a trial with given settings."""
        self.study.enqueue_trial(dict(settings))
        trial = self.study.ask()
        self._suggested(trial)
        return trial

    def _suggested(self, trial: optuna.Trial) -> Settings:
        settings: Settings = {}
        for name, values in self.plan.space.choices.items():
            if self.plan.space.applies(name, settings):
                settings[name] = cast("Choice", trial.suggest_categorical(name, values))
        return settings

    def _untried(self) -> Settings | None:
        generator = random.Random(len(self.trials))  # noqa: S311 - not a secret
        neighbors = [each for trial in self.ranked[:3] for each in self.plan.space.neighbors(trial.settings)]
        drawn = (self.plan.space.random(generator) for _ in range(_RANDOM_DRAWS))
        for candidates in (neighbors, drawn, self.plan.space.all(_MAX_COMBINATIONS)):
            for settings in candidates:
                if key_of(settings) not in self._by_settings:
                    return settings
        return None

    def _run_trial(self, trial: optuna.Trial, settings: Settings, origin: Origin, deadline: float) -> None:
        self.on_begin(settings, max(deadline - self.clock(), 0.0))
        began = self.clock()
        record = Trial(len(self.trials) + 1, origin, settings, TrialState.FAILED)
        try:
            with self.test_bed.open(settings) as candidate:
                record = self._measure(trial, record, candidate)
        except RepogenError as error:
            record = replace(record, state=TrialState.FAILED, figures=None, reason=error.message)
            if self._fails_always(record):
                trial.set_user_attr(_RECORD, _TRIAL.dump_json(record).decode())
                self.study.tell(trial, state=OptunaState.FAIL)
                raise
        record = replace(record, seconds=round(self.clock() - began, 3))
        self._tell(trial, record)
        self._add(record)
        self.on_end(record)

    def _fails_always(self, record: Trial) -> bool:
        recent = [*self.trials, record][-_MAX_FAILURES:]
        failed = all(trial.state is TrialState.FAILED for trial in (*self.trials, record))
        return failed and len(recent) == min(_MAX_FAILURES, self.plan.trials)

    def _measure(self, trial: optuna.Trial, record: Trial, candidate: Candidate) -> Trial:
        """Measure for a short time, then in rounds, and stop if the figures are worse than those of the others."""
        figures = candidate.measure(self.plan.short)
        rounds: list[Figures] = []
        for step in range(self.plan.rounds + 1):
            trial.report(self.plan.score(figures), step)
            if record.origin == "search" and step < self.plan.rounds and trial.should_prune():
                reason = "worse than the median of the other trials after a short measurement"
                return self._ended(record, TrialState.STOPPED, figures, reason)
            if step < self.plan.rounds:
                rounds.append(candidate.measure(self.plan.long))
                figures = middle(rounds)
        return self._ended(record, TrialState.MEASURED, figures)

    def _ended(self, record: Trial, state: TrialState, figures: Figures, reason: str = "") -> Trial:
        return replace(record, state=state, figures=figures, violations=self.plan.violations(figures), reason=reason)

    def _tell(self, trial: optuna.Trial, record: Trial) -> None:
        """Store the result; a config that failed counts as infeasible, so that the sampler avoids similar ones."""
        if record.figures is None:
            trial.set_constraint("fails", 1.0)
        else:
            for constraint in self.plan.constraints:
                trial.set_constraint(constraint.text, constraint.excess(record.figures))
        trial.set_user_attr(_RECORD, _TRIAL.dump_json(record).decode())
        if record.state is TrialState.MEASURED and record.figures is not None:
            value = record.figures.objective(self.plan.objective)
            self.study.tell(trial, -value if self.plan.objective == "throughput" else value)
        else:
            self.study.tell(trial, state=OptunaState.PRUNED)

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._by_settings[key_of(trial.settings)] = trial


def middle(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure; the memory is the largest.

    >>> middle([Figures(1.0, 2.0, 3.0, 10.0, 5), Figures(2.0, 3.0, 4.0, 20.0, 6), Figures(3.0, 4.0, 5.0, 30.0, 7)])
    Figures(p50=2.0, p95=3.0, p99=4.0, throughput=20.0, memory_bytes=7)
    """
    p50, p95, p99, throughput = (
        median(getattr(each, name) for each in rounds) for name in ("p50", "p95", "p99", "throughput")
    )
    return Figures(p50, p95, p99, throughput, max(each.memory_bytes for each in rounds))


def pareto_front(trials: Sequence[Trial]) -> tuple[int, ...]:
    """Return the numbers of the feasible trials that no other one beats in throughput, p99 and memory at once."""
    points = [
        (trial.number, (-trial.figures.throughput, trial.figures.p99, float(trial.figures.memory_bytes)))
        for trial in trials
        if trial.feasible and trial.figures is not None
    ]
    return tuple(
        number
        for number, point in points
        if not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for _, other in points)
    )


@contextmanager
def open_study(path: Path) -> Iterator[optuna.Study]:
    """Open or create the study in a SQLite database.

    Raises:
        BenchError: The database is damaged, or cannot be read or written.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    storage: optuna.storages.RDBStorage | None = None
    try:
        storage = _database(path)
        try:
            study = study_in(storage)
        except _DAMAGE as error:
            raise _unusable(str(path), error) from error
        yield study
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise _unusable(str(path), error) from error
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def study_in(storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    """Return the study of a storage; a new one in memory if there is no storage."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_COMPARED_TRIALS)
    study = optuna.create_study(
        storage=storage, study_name=_NAME, direction="minimize", load_if_exists=True, pruner=pruner
    )
    count = len(study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=_STARTUP_TRIALS, seed=count)
    return study


def _database(path: Path) -> optuna.storages.RDBStorage:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"creator": partial(_connection, path)})
    except (OSError, RuntimeError, *_DAMAGE) as error:  # another version of Optuna wrote it, for example
        raise _unusable(str(path), error) from error


def _connection(path: Path) -> sqlite3.Connection:
    """Connect without waiting for the disk at each of the many commits; a process that is killed loses nothing."""
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _decoded(record: str) -> Trial:
    try:
        return _TRIAL.validate_json(record)
    except ValidationError as error:
        raise _unusable("a record", error) from error


def _unusable(what: str, error: Exception) -> BenchError:
    return BenchError(
        f"the trials of an earlier run can't be used: {type(error).__name__} ({what})",
        "`--restart` discards them",
        code="tune.storage",
        details=str(error),
    )
