"""The results of ``repogen bench``; ``repogen.reporting`` renders them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from repogen.errors import ErrorRecord, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

Variant: TypeAlias = Literal["eager", "compile", "onnxruntime", "grpc", "http", "shm"]
"""What is measured: PyTorch eager, torch.compile, ONNX Runtime in process, and Triton by protocol."""
VARIANTS: tuple[Variant, ...] = ("eager", "compile", "onnxruntime", "grpc", "http", "shm")
_BUSY = 0.3
"""Share of the cores that other programs may use before a measurement is unreliable."""
TRITON_VARIANTS: tuple[Variant, ...] = ("grpc", "http", "shm")


@dataclass(frozen=True)
class Sample:
    """One round of one variant: the latency of requests in milliseconds, and rows per second.

    Attributes:
        p50: Median latency of a request.
        p95: 95th percentile.
        p99: 99th percentile.
        throughput: Rows per second; requests per second for a model that does not batch.
        requests: Number of requests.
    """

    p50: float
    p95: float
    p99: float
    throughput: float
    requests: int


@dataclass(frozen=True)
class Estimate:
    """The median over the rounds, and its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class BenchRow:
    """One variant at one batch size and one number of concurrent requests.

    Attributes:
        variant: What was measured.
        batch: Rows of each request.
        concurrency: Number of requests at a time; always 1 in process.
        p50: Median latency in milliseconds.
        p95: 95th percentile.
        p99: 99th percentile.
        throughput: Rows per second.
        ratio: How many times faster than the baseline at the same batch size, in the same round: for one request at a
            time, the baseline's p50 divided by this p50; for more, the throughput divided by the rows per second of the
            baseline at its p50. None for the baseline.
        requests: Number of requests in all rounds.
    """

    variant: Variant
    batch: int
    concurrency: int
    p50: Estimate
    p95: Estimate
    p99: Estimate
    throughput: Estimate
    ratio: Estimate | None
    requests: int


@dataclass(frozen=True)
class Unmeasured:
    """A variant that was not measured.

    Attributes:
        variant: The variant.
        reason: Why not.
    """

    variant: Variant
    reason: str


@dataclass(frozen=True)
class ModelBench:
    """The measurements of one model.

    Attributes:
        name: Model name.
        version: Published version.
        rows: The measurements, ordered by batch size, concurrency and variant.
        unmeasured: Variants without measurements, and why.
        baseline: The variant that ratios refer to: eager, or the first one that was measured.
        memory_bytes: Largest resident memory of each variant's processes; one entry, ``triton``, for the server.
        server: The server and its runtime; empty if none was started.
        notes: What the user should know.
        error: Why measurements are missing; None if none are.
    """

    name: str
    version: int
    rows: tuple[BenchRow, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    baseline: Variant | None = None
    memory_bytes: dict[str, int] = field(default_factory=dict)
    server: str = ""
    notes: tuple[str, ...] = ()
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class Machine:
    """The machine that was measured.

    Attributes:
        cpu: Name of the processor.
        cores: CPU cores that this process may use, which is also the number of threads of every variant.
        memory_bytes: Memory of the machine.
        load: Cores that programs used just before the start; a busy machine gives wrong figures.
        system: Operating system.
        versions: Tool -> version.
    """

    cpu: str
    cores: int
    memory_bytes: int
    load: float
    system: str
    versions: dict[str, str]

    @property
    def busy(self) -> bool:
        """Whether other programs used a part of the cores at the start."""
        return self.load > self.cores * _BUSY


@dataclass(frozen=True)
class BenchReport:
    """The measurements of all models.

    Attributes:
        repository: The model repository.
        machine: The machine.
        rounds: Number of measured rounds.
        seconds: Duration of one measurement.
        models: One entry per model, in the order of the command.
    """

    repository: Path
    machine: Machine
    rounds: int
    seconds: float
    models: tuple[ModelBench, ...]

    @property
    def exit_code(self) -> int:
        """0, or the smallest exit code of the models' errors."""
        return min((m.error.exit_code for m in self.models if m.error is not None), default=int(ExitCode.OK))
