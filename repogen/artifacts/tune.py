"""The values of ``repogen tune``: what is searched for, the trials, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import Final, Literal, Protocol, TypeAlias

from repogen.artifacts.bench import Estimate, Machine, Sample  # noqa: TC001 - the same
from repogen.artifacts.built_model import Lossy  # noqa: TC001 - the same
from repogen.errors import ErrorRecord, ExitCode

Objective: TypeAlias = Literal["throughput", "latency"]
"""``throughput``: most rows per second. ``latency``: lowest median latency."""
MetricName: TypeAlias = Literal["throughput", "p50", "p95", "p99", "memory"]
Choice: TypeAlias = int | str
Settings: TypeAlias = dict[str, Choice]
"""The value of each tuned parameter; parameters that have no effect on each other's choice are left out."""
Baseline: TypeAlias = Literal["tuned", "spec", "auto"]
"""A config in the final comparison: the chosen one, the spec's, and Triton's auto-completed one."""
PARAMETERS: Final = (
    "passes",
    "max_batch_size",
    "dynamic_batching",
    "preferred_batch_size",
    "max_queue_delay_microseconds",
    "instance_count",
    "instance_kind",
    "intra_op_thread_count",
    "inter_op_thread_count",
    "execution_mode",
    "graph_level",
)
"""All parameters; those that apply to a model are searched."""


@dataclass(frozen=True)
class Figures:
    """What was measured of one config under load.

    Attributes:
        p50: Median latency of a request in milliseconds.
        p95: 95th percentile.
        p99: 99th percentile.
        throughput: Rows per second; requests per second for a model that does not batch.
        memory_bytes: Largest resident memory of the server's processes; 0 if it was not measured.
    """

    p50: float
    p95: float
    p99: float
    throughput: float
    memory_bytes: int = 0

    @classmethod
    def of(cls, sample: Sample, memory_bytes: int) -> Figures:
        """Return the figures of a sample."""
        return cls(sample.p50, sample.p95, sample.p99, sample.throughput, memory_bytes)

    def objective(self, objective: Objective) -> float:
        """Return the figure that an objective compares."""
        return self.throughput if objective == "throughput" else self.p50


@dataclass(frozen=True)
class Constraint:
    """A limit that a config must keep.

    Attributes:
        metric: The limited figure.
        limit: The limit: milliseconds, rows per second, or bytes. A minimum for the throughput, otherwise a maximum.
        text: The limit as the user wrote it.
    """

    metric: MetricName
    limit: float
    text: str

    def excess(self, figures: Figures) -> float:
        """Return how far figures are beyond the limit, as a part of the limit; 0 or less if they keep it.

        >>> Constraint("p99", 20.0, "p99 < 20ms").excess(Figures(1.0, 2.0, 30.0, 100.0))
        0.5
        """
        value = figures.memory_bytes if self.metric == "memory" else getattr(figures, self.metric)
        ratio = float(value) / self.limit
        return 1.0 - ratio if self.metric == "throughput" else ratio - 1.0


@dataclass(frozen=True)
class PassCandidate:
    """One value of the parameter ``passes``: the graph that a list of optimization passes gives.

    Attributes:
        name: The value: ``spec`` for the published graph, ``none`` for a graph without passes, otherwise the names of
            the passes, joined by ``+``.
        passes: Names of the passes, in order.
        reason: Why it cannot be chosen; empty if it can.
        sha256: Digest of the graph; empty without one.
        nodes: Number of nodes of the graph.
        parity_cases: Number of comparisons with the original model.
        max_abs_diff: Largest absolute difference from the original model's outputs.
        lossy: The lossy passes, and the quality that was measured; None if there are none.
        seconds: Duration of the build.
    """

    name: str
    passes: tuple[str, ...]
    reason: str = ""
    sha256: str = ""
    nodes: int = 0
    parity_cases: int = 0
    max_abs_diff: float = 0.0
    lossy: Lossy | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return what was measured of the outputs, or why it cannot be chosen.

        >>> str(PassCandidate("onnxsim", ("onnxsim",), parity_cases=12, max_abs_diff=1.19e-07))
        'parity in 12 cases, largest difference 1.2e-07'
        """
        if self.reason:
            return f"not a candidate: {self.reason}"
        measured = f"in {self.parity_cases} cases, largest difference {self.max_abs_diff:.2g}"
        return f"parity {measured}" if self.lossy is None else f"{self.lossy}; {measured}"


class TrialState(StrEnum):
    """How a trial ended."""

    MEASURED = "measured"
    STOPPED = "stopped"
    """A short measurement showed that it is slower than most others."""
    FAILED = "failed"


@dataclass(frozen=True)
class Trial:
    """One config that was tried.

    Attributes:
        number: Number of the trial, from 1.
        origin: ``spec`` for the spec's own settings, ``auto`` for those that Triton's auto-completion chooses, and
            ``search`` for the others.
        settings: The value of each parameter.
        state: How it ended.
        figures: Medians; if the trial was stopped, of the measurements before that; None if it failed.
        violations: The constraints that the figures violate, as the user wrote them.
        reason: Why it failed or was stopped.
        seconds: Duration.
    """

    number: int
    origin: Literal["spec", "auto", "search"]
    settings: Settings
    state: TrialState
    figures: Figures | None = None
    violations: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def feasible(self) -> bool:
        """Whether it was measured completely and violates no constraint."""
        return self.state is TrialState.MEASURED and not self.violations


@dataclass(frozen=True)
class ComparisonRow:
    """One config of the final comparison, measured in interleaved rounds with the others.

    Attributes:
        name: The config.
        p50: Median latency in milliseconds.
        p95: 95th percentile.
        p99: 99th percentile.
        throughput: Rows per second.
        memory_bytes: Largest resident memory of the server's processes; 0 if it was not measured.
        ratio: How many times better the tuned config is than this one, in the same round: its throughput divided by
            this one's, or this one's p50 divided by its p50. None for the tuned config.
        violations: The constraints that the medians violate.
    """

    name: Baseline
    p50: Estimate
    p95: Estimate
    p99: Estimate
    throughput: Estimate
    memory_bytes: int = 0
    ratio: Estimate | None = None
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class TuneReport:
    """The result of tuning one model.

    Attributes:
        model: Model name.
        version: The published version that was measured.
        repository: Its repository.
        server: The server and its runtime.
        machine: The machine.
        objective: What was optimized.
        constraints: The constraints, as the user wrote them.
        batch: Rows of each request; 0 for a model that does not batch.
        concurrency: Number of requests at a time.
        space: The values of each parameter that were searched.
        passes: The optimization passes that were considered, those of the spec first; empty if they were not searched.
        trials: The trials, in order; those of an earlier, interrupted run included.
        resumed: Number of trials that an earlier run made.
        pareto: Numbers of the feasible trials that no other one beats in throughput, p99 and memory at once.
        chosen: Number of the chosen trial; None if there is none.
        comparison: The chosen config next to the baselines; empty if they were not compared.
        improved: Whether the chosen config is better than the spec's, by more than the noise.
        diff: Changes to the spec as a unified diff; empty if there are none.
        written: Whether they were written to the spec.
        interrupted: Whether the search was interrupted; the same command continues it.
        notes: What the user should know.
        files: The files that were written, such as tune.json.
        error: Why there is no config, if so.
    """

    model: str
    version: int
    repository: Path
    server: str
    machine: Machine
    objective: Objective
    constraints: tuple[str, ...]
    batch: int
    concurrency: int
    space: dict[str, tuple[Choice, ...]]
    passes: tuple[PassCandidate, ...] = ()
    trials: tuple[Trial, ...] = ()
    resumed: int = 0
    pareto: tuple[int, ...] = ()
    chosen: int | None = None
    comparison: tuple[ComparisonRow, ...] = ()
    improved: bool = False
    diff: str = ""
    written: bool = False
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=())
    error: ErrorRecord | None = None

    @property
    def exit_code(self) -> int:
        """130 after an interruption, otherwise 0 or that of the error."""
        if self.interrupted:
            return int(ExitCode.INTERRUPTED)
        return int(ExitCode.OK) if self.error is None else self.error.exit_code


class TuneTracker(Protocol):
    """Tracks the trials of one model. Every call may raise ``TrackingError``."""

    def start(self, model: str, params: dict[str, str]) -> None:
        """Create the run of the search."""

    def log_trial(self, trial: Trial) -> None:
        """Create a nested run for a trial."""

    def finish(self, report: TuneReport | None) -> None:
        """Log the result and its files, and end the run.

        Args:
            report: The result; None after an error.
        """
