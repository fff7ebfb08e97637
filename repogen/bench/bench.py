"""Measures models: every variant in interleaved rounds on one machine, with the same inputs and cores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repogen.artifacts.bench import (
    TRITON_VARIANTS,
    VARIANTS,
    BenchReport,
    BenchRow,
    ModelBench,
    Sample,
    Unmeasured,
    Variant,
)
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.bench.in_process import InProcess, Subject
from repogen.bench.inputs import golden_inputs
from repogen.bench.load import Load, LoadTarget, load_target, measure
from repogen.bench.machine import describe_machine
from repogen.bench.server import ServedModel, ServerChoice, serve_model
from repogen.bench.statistics import estimate
from repogen.errors import BenchError, RepogenError
from repogen.files.temporary import temporary_directory
from repogen.repository.inventory import require_models
from repogen.repository.layout import models_of
from repogen.serving.commands import recorded_target
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.serving.servers import prepare_server
from repogen.targets import DEFAULT_RELEASE, target_of, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials
    from repogen.spec.models import Spec
    from repogen.targets import Target

_WARM_UP_SECONDS = 0.3


@dataclass(frozen=True)
class BenchRequest:
    """What to measure.

    Attributes:
        repository: The model repository.
        models: Names of models; all when empty.
        spec: The spec of the models, for the variants in PyTorch; None without one.
        batches: Batch sizes.
        concurrencies: Numbers of concurrent requests to Triton.
        rounds: Number of rounds, after one that is not counted.
        seconds: Duration of each measurement.
        server: Value of ``--server``.
        credentials: TLS and headers of a server at ``HOST:PORT``.
    """

    repository: Path
    models: tuple[str, ...] = ()
    spec: Spec | None = None
    batches: tuple[int, ...] = (1, 8, 32)
    concurrencies: tuple[int, ...] = (1, 4, 16)
    rounds: int = 5
    seconds: float = 0.5
    server: str = "embedded"
    credentials: Credentials = NO_CREDENTIALS


@dataclass(frozen=True)
class Cell:
    """A variant at one batch size and one number of concurrent requests."""

    variant: Variant
    batch: int
    concurrency: int


def bench(request: BenchRequest, progress: Progress) -> BenchReport:
    """Measure every model, one after another.

    Raises:
        SpecError: The repository or a model does not exist, or the server or its options are wrong.
        ServerError: The server or perf_analyzer cannot be installed, or the server does not respond.
    """
    require_models(request.repository, request.models)
    machine = describe_machine()
    prepare_server(request.server, _target(request), progress, credentials=request.credentials)
    program = install_perf_analyzer(locate(targets()[DEFAULT_RELEASE].onnxruntime), progress)
    benches = []
    for name in request.models or _default_models(request):
        measurement = _Measurement(request, name, program, progress)
        benches.append(measurement.run())
        machine = replace(machine, versions={**machine.versions, **measurement.versions})
    return BenchReport(request.repository, machine, request.rounds, request.seconds, tuple(benches))


def _target(request: BenchRequest) -> Target:
    """Return the release of the spec; without a spec, that of the repository."""
    return recorded_target(request.repository) if request.spec is None else target_of(request.spec.release)


def _default_models(request: BenchRequest) -> tuple[str, ...]:
    """Return the published models of the spec; without a spec, every model of the repository."""
    published = models_of(request.repository)
    return published if request.spec is None else tuple(name for name in request.spec.models if name in published)


@dataclass
class _Measurement:
    """The measurements of one model."""

    request: BenchRequest
    name: str
    program: Path
    progress: Progress
    versions: dict[str, str] = field(default_factory=dict)
    report: ModelBench = field(init=False)
    samples: dict[Cell, dict[int, Sample]] = field(default_factory=dict)

    def run(self) -> ModelBench:
        """Return the measurements; those made before an error are kept."""
        self.report = ModelBench(self.name, 0)
        try:
            with temporary_directory() as work_dir:
                self._serve(work_dir)
        except RepogenError as error:
            self.report = replace(self.report, error=error.record)
        baseline = next((v for v in VARIANTS if any(cell.variant == v for cell in self.samples)), None)
        rows = _rows(self.samples, baseline)
        return replace(self.report, rows=rows, baseline=baseline)

    def _serve(self, work_dir: Path) -> None:
        spec, directory, target = self.request.spec, self.request.repository / self.name, _target(self.request)
        choice = ServerChoice(self.request.server, target, self.progress, self.request.credentials)
        with serve_model(choice, directory) as served, ExitStack() as stack:
            self.report = replace(self.report, version=served.version, server=served.endpoint.description)
            inputs = golden_inputs(served)
            batches = self._batches(served)
            subject = Subject(served, inputs, batches, spec, target, work_dir)
            self.progress.step(self.name, "loading PyTorch and ONNX Runtime")
            in_process = stack.enter_context(InProcess(subject))
            target_of_load = load_target(self.program, served, inputs, work_dir / "inputs.json")
            self._measure(served, in_process, target_of_load, batches)

    def _batches(self, served: ServedModel) -> tuple[int, ...]:
        """Return the batch sizes that the model accepts.

        Raises:
            BenchError: There is none.
        """
        largest = max(int(served.model.config.max_batch_size), 1)
        batches = tuple(batch for batch in self.request.batches if batch <= largest)
        rejected = ", ".join(str(batch) for batch in self.request.batches if batch > largest)
        if not batches:
            raise BenchError(
                f"{self.name}: none of the batch sizes can be measured: the largest batch is {largest}",
                f"use --batch {largest}",
                code="bench.batch",
            )
        if rejected:
            self._note(f"batch {rejected}: not measured, because the largest batch of the model is {largest}")
        return batches

    def _measure(
        self, served: ServedModel, in_process: InProcess, target: LoadTarget, batches: tuple[int, ...]
    ) -> None:
        """Run the rounds; the first one warms up and is not counted.

        Raises:
            BenchError: The server failed.
        """
        absent = [Unmeasured(v, reason) for v in TRITON_VARIANTS if (reason := target.unmeasured(v))]
        triton = [v for v in TRITON_VARIANTS if v not in {each.variant for each in absent}]
        try:
            for number in range(self.request.rounds + 1):
                step = f"round {number} of {self.request.rounds}" if number else "warm-up"
                self.progress.step(self.name, step)
                cells = list(self._cells((*in_process.variants, *triton), batches))
                for cell in reversed(cells) if number % 2 else cells:
                    self._measure_cell(number, cell, served, in_process, target)
        finally:
            self.versions |= in_process.versions
            for note in in_process.notes:
                self._note(note)
            memory = {**in_process.memory_bytes(), "triton": served.memory_bytes}
            unmeasured = (*in_process.unmeasured, *absent)
            sizes = {name: size for name, size in memory.items() if size}
            self.report = replace(self.report, unmeasured=unmeasured, memory_bytes=sizes)

    def _cells(self, variants: tuple[Variant, ...], batches: tuple[int, ...]) -> Iterator[Cell]:
        for batch in batches:
            for variant in variants:
                for concurrency in self.request.concurrencies if variant in TRITON_VARIANTS else (1,):
                    yield Cell(variant, batch, concurrency)

    def _measure_cell(
        self, number: int, cell: Cell, served: ServedModel, in_process: InProcess, target: LoadTarget
    ) -> None:
        seconds = self.request.seconds if number else min(_WARM_UP_SECONDS, self.request.seconds)
        sample: Sample | None = None
        if cell.variant in TRITON_VARIANTS:
            batch = cell.batch if served.model.config.max_batch_size else 0
            try:
                sample = measure(target, Load(cell.variant, batch, cell.concurrency, seconds))
            except BenchError as error:
                raise served.death(error) from error
        elif cell.variant in in_process.variants:
            sample = in_process.measure(cell.variant, cell.batch, seconds)
        if number and sample is not None:
            self.samples.setdefault(cell, {})[number] = sample

    def _note(self, text: str) -> None:
        self.report = replace(self.report, notes=(*self.report.notes, text))


def _rows(samples: dict[Cell, dict[int, Sample]], baseline: Variant | None) -> tuple[BenchRow, ...]:
    """Return one row for each cell, ordered by batch size, concurrency and variant."""
    order = sorted(samples, key=lambda cell: (cell.batch, cell.concurrency, VARIANTS.index(cell.variant)))
    return tuple(_row(cell, samples, baseline) for cell in order)


def _speed(cell: Cell, sample: Sample) -> float:
    """Return rows per millisecond: at the median latency for one request at a time, otherwise the throughput."""
    return cell.batch / sample.p50 if cell.concurrency == 1 else sample.throughput / 1e3


def _row(cell: Cell, samples: dict[Cell, dict[int, Sample]], baseline: Variant | None) -> BenchRow:
    rounds = samples[cell]
    reference = {} if baseline is None else samples.get(Cell(baseline, cell.batch, 1), {})
    ratios = [_speed(cell, rounds[n]) * reference[n].p50 / cell.batch for n in rounds if n in reference]
    is_baseline = (cell.variant, cell.concurrency) == (baseline, 1)
    return BenchRow(
        *(cell.variant, cell.batch, cell.concurrency),
        p50=estimate([sample.p50 for sample in rounds.values()]),
        p95=estimate([sample.p95 for sample in rounds.values()]),
        p99=estimate([sample.p99 for sample in rounds.values()]),
        throughput=estimate([sample.throughput for sample in rounds.values()]),
        ratio=None if is_baseline or not ratios else estimate(ratios),
        requests=sum(sample.requests for sample in rounds.values()),
    )
