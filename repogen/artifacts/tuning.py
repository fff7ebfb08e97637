"""What a report reads of ``tune.json``, which ``repogen tune`` writes; other keys of the file are ignored."""

from __future__ import annotations

from dataclasses import dataclass, field

from repogen.artifacts.bench import Estimate  # noqa: TC001 - pydantic decodes by these annotations


@dataclass(frozen=True)
class TrialFigures:
    """What was measured of one config: rows per second, and the 99th percentile of the latency in milliseconds."""

    throughput: float
    p99: float


@dataclass(frozen=True)
class TrialRecord:
    """One config that was tried.

    Attributes:
        number: Number of the trial.
        origin: ``spec``, ``auto`` or ``search``.
        settings: The value of each parameter.
        state: How it ended.
        figures: What was measured; None if nothing was.
        violations: The constraints that the figures violate.
    """

    number: int
    origin: str
    settings: dict[str, int | str]
    state: str
    figures: TrialFigures | None = None
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class LossyRecord:
    """The lossy passes and their quality, in one line."""

    summary: str


@dataclass(frozen=True)
class PassRecord:
    """A list of optimization passes that was considered.

    Attributes:
        name: Value of the parameter ``passes``.
        reason: Why it could not be chosen; None if it could.
        nodes: Number of nodes of the graph; None without one.
        max_abs_diff: Largest absolute difference from the original model; None without a graph.
        lossy: The lossy passes; None if there are none.
    """

    name: str
    reason: str | None = None
    nodes: int | None = None
    max_abs_diff: float | None = None
    lossy: LossyRecord | None = None


@dataclass(frozen=True)
class ComparedConfig:
    """One config of the final comparison, with the factor by which the chosen one is better."""

    name: str
    p50: Estimate
    p99: Estimate
    throughput: Estimate
    ratio: Estimate | None = None


@dataclass(frozen=True)
class TuningRecord:
    """The search of one model.

    Attributes:
        model: Model name.
        version: The published version that was measured.
        objective: What was optimized.
        batch: Rows of each request; 0 for a model that does not batch.
        concurrency: Number of requests at a time.
        constraints: The constraints.
        passes: The optimization passes that were considered.
        trials: The trials.
        pareto: Numbers of the trials on the Pareto front.
        chosen: Number of the chosen trial; None if there is none.
        comparison: The chosen config and the baselines.
        diff: Changes to the spec as a unified diff.
        notes: What the user should know.
    """

    model: str
    version: int
    objective: str
    batch: int
    concurrency: int
    constraints: tuple[str, ...] = ()
    passes: tuple[PassRecord, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    pareto: tuple[int, ...] = ()
    chosen: int | None = None
    comparison: tuple[ComparedConfig, ...] = ()
    diff: str = ""
    notes: tuple[str, ...] = field(default=())
