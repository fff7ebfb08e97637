"""One model of a build: runs and times its steps, and assembles its report from their results."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from repogen.artifacts.built_model import (
    BatchReport,
    BuildDiagnostics,
    BuiltModel,
    ImportedCode,
    OnnxArtifact,
    ParityReport,
)
from repogen.artifacts.report import ModelReport, Status
from repogen.artifacts.serving import SmokeReport
from repogen.artifacts.steps import EnsembleArtifact
from repogen.artifacts.tensors import Signature
from repogen.artifacts.tracking import Tracked
from repogen.artifacts.versions import PublishedVersion, StagedVersion
from repogen.worker.job import Outcome

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from repogen.artifacts.progress import Progress
    from repogen.errors import ErrorRecord

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_WORKER = "worker"
_NOT_BUILT = BuiltModel(
    artifact=EnsembleArtifact((), Signature((), ()), exporter=""),
    golden_dir=Path(),
    nodes_exported=0,
    parity=ParityReport(()),
    batch=BatchReport(batchable=False, max_batch_size=0),
    imported=ImportedCode({}, {}),
)


@dataclass(frozen=True)
class Notes:
    """Notes of a step, for the report."""

    texts: tuple[str, ...]


class ModelRun:
    """The steps of one model: each result is recorded once, so that the report of a failed model contains it.

    Args:
        name: The model.
        progress: Receives the name of each step.
        cancelled: Set when no further step may begin.
    """

    def __init__(self, name: str, progress: Progress, cancelled: threading.Event) -> None:
        """Begin without results."""
        self.name = name
        self._progress = progress
        self._cancelled = cancelled
        self._results: list[object] = []
        self._seconds: dict[str, float] = {}

    def step(
        self, step: str, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Announce a step, then call its function and record the result and the time that it took.

        Raises:
            KeyboardInterrupt: The build was cancelled.
        """
        if self._cancelled.is_set():
            raise KeyboardInterrupt
        self._progress.step(self.name, step)
        return self._run_timed(step, function, *args, **kwargs)

    def work(
        self, function: Callable[Parameters, Outcome], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> BuiltModel:
        """Run the worker, which times its own steps, and record its outcome.

        Raises:
            RepogenError: The worker built no model; its diagnostics are recorded.
        """
        self._progress.step(self.name, "import")
        return self._run_timed(_WORKER, function, *args, **kwargs).model()

    @property
    def diagnostics(self) -> BuildDiagnostics:
        """The worker's diagnostics; empty if it did not run."""
        outcome = self.result(Outcome)
        return BuildDiagnostics() if outcome is None else outcome.diagnostics

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each step so far; those of the worker are one."""
        return dict(self._seconds)

    def restart(self, note: str) -> None:
        """Forget all results, because the steps run again; the note says why."""
        self._results = [Notes((note,))]
        self._seconds = {}

    def forget(self) -> None:
        """Forget all results, because they may contain the content of files that the model must not read."""
        self._results = []

    def record(self, result: object) -> None:
        """Record a result of something that is not a step."""
        self._results.append(result)

    def report(self, status: Status, error: ErrorRecord | None = None) -> ModelReport:
        """Return the report, with everything that was recorded so far."""
        outcome, staged = self.result(Outcome), self.result(StagedVersion)
        publication, tracked = self.result(PublishedVersion), self.result(Tracked)
        diagnostics = self.diagnostics
        built = outcome.result if outcome is not None and isinstance(outcome.result, BuiltModel) else _NOT_BUILT
        notes = [text for result in self._results if isinstance(result, Notes) for text in result.texts]
        return ModelReport(
            self.name,
            status,
            version=None if publication is None else publication.version,
            sha256="" if staged is None else staged.manifest.sha256,
            exporter=built.artifact.exporter,
            opset=built.artifact.opset,
            ir_version=built.artifact.ir_version,
            max_batch_size=None if staged is None else staged.config.max_batch_size,
            parity_cases=len(built.parity.cases),
            parity_skipped=built.parity.skipped,
            max_abs_diff=built.parity.max_abs_diff,
            max_rel_diff=built.parity.max_rel_diff,
            nodes_exported=built.nodes_exported,
            nodes_optimized=built.artifact.nodes,
            size=0 if staged is None else staged.manifest.model_size,
            attempts=diagnostics.attempts,
            passes=diagnostics.passes,
            lossy=built.lossy,
            batch_reason=built.batch.reason,
            notes=(*diagnostics.notes, *notes),
            smoke=self.result(SmokeReport),
            registry_version=None if tracked is None else tracked.registry_version,
            seconds=self._all_seconds(diagnostics),
            peak_rss_bytes=diagnostics.peak_rss_bytes,
            error=error,
            parity=built.parity if built.parity.cases else diagnostics.parity,
            operators=built.artifact.operators if isinstance(built.artifact, OnnxArtifact) else {},
            config="" if staged is None else staged.config.text,
            manifest=None if staged is None else staged.manifest,
            from_cache=outcome is not None and _WORKER not in self._seconds,
        )

    def _run_timed(
        self, step: str, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        start = time.monotonic()
        try:
            result = function(*args, **kwargs)
        finally:
            self._seconds[step] = time.monotonic() - start
        self.record(result)
        return result

    def result(self, kind: type[Result]) -> Result | None:
        """Return the first result of a type; None without one."""
        return next((result for result in self._results if isinstance(result, kind)), None)

    def _all_seconds(self, diagnostics: BuildDiagnostics) -> dict[str, float]:
        """Return the time of each step, with the steps of the worker taken out of the time of its process."""
        seconds: dict[str, float] = {}
        for step, duration in self._seconds.items():
            if step == _WORKER:
                seconds |= {step: duration - sum(diagnostics.seconds.values()), **diagnostics.seconds}
            else:
                seconds[step] = duration
        return seconds
