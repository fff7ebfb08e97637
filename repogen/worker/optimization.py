"""The passes whose results are measured: each is verified by itself, and its result is used only if it passes.

A lossless result must have parity. A lossy one must have parity as well, or, if the spec has ``quality:``, a figure
within its budget. A gated one must also be faster. Otherwise the graph before the pass stays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Lossy, Quality
from repogen.errors import ParityError, RepogenError, SourceError
from repogen.optimize.gain import measure_gain
from repogen.optimize.passes import PassRejectedError, discard, run_pass, unapplied
from repogen.repository.golden import golden_inputs
from repogen.validate.quality import QualityJudge
from repogen.validate.runtime import OnnxModel
from repogen.validate.tolerance import coarsest
from repogen.worker.timeout import time_limit
from repogen.worker.verification import VerifiedGraph, verify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.artifacts.built_model import OnnxArtifact, PassOutcome
    from repogen.artifacts.source import SourceModel
    from repogen.optimize.gain import Timer
    from repogen.optimize.passes import SelectedPass, Workspace
    from repogen.worker.job import Job

_MIN_SECONDS = 1.0


@dataclass(frozen=True)
class Subject:
    """The model whose graph is optimized, and how results are measured.

    Attributes:
        source: The original.
        job: The model that is built.
        workspace: Where passes work.
        guard_violations: Sizes at which parity is measured in addition to the sweep.
        base: The verified graph before the first of the passes.
        deadline: End of the worker's time, by ``time.monotonic``.
        timer: Measures the gain.
    """

    source: SourceModel
    job: Job
    workspace: Workspace
    guard_violations: list[dict[str, int]]
    base: VerifiedGraph
    deadline: float
    timer: Timer = measure_gain

    @cached_property
    def quality(self) -> QualityJudge | None:
        """The judge of lossy graphs; None if the spec has no ``quality:``."""
        spec = self.job.model.quality
        if spec is None:
            return None
        return QualityJudge(spec, self.job.root, self.source, self.base.validation.batch.max_batch_size)


def apply_measured(passes: Iterable[SelectedPass], subject: Subject) -> tuple[VerifiedGraph, tuple[PassOutcome, ...]]:
    """Run passes one after another, each on the last result that was kept.

    Returns:
        The last result that was kept (``subject.base`` if none was), and the outcome of every pass.

    Raises:
        SourceError: Data or code that the spec names for quality or calibration cannot be used.
    """
    graph = subject.base
    outcomes = []
    for selected in passes:
        graph, outcome = _apply(graph, selected, subject)
        outcomes.append(outcome)
    return graph, tuple(outcomes)


def _apply(graph: VerifiedGraph, selected: SelectedPass, subject: Subject) -> tuple[VerifiedGraph, PassOutcome]:
    """Run one pass; return its verified result, or the graph before it."""
    if subject.quality is not None and selected.lossy:
        _ = subject.quality.reference  # an error in the user's code ends the build, whatever becomes of the pass
    # Half of the remaining time, so that a slow pass does not use up the time of the build.
    seconds = max((subject.deadline - time.monotonic()) / 2, _MIN_SECONDS)
    trial = _Trial(graph, selected, subject)
    try:
        with time_limit(seconds, f"it took more than {seconds:.0f} s, half of the remaining limits.timeout_seconds"):
            return trial.run()
    except (PassRejectedError, RepogenError) as error:
        if isinstance(error, SourceError):
            raise
        reason = error.record.summary if isinstance(error, RepogenError) else str(error)
    trial.discard()
    return graph, trial.outcome.dropped(reason)


class _Trial:
    """One pass on one graph.

    Attributes:
        outcome: The outcome so far.
    """

    def __init__(self, graph: VerifiedGraph, selected: SelectedPass, subject: Subject) -> None:
        self._graph = graph
        self._selected = selected
        self._subject = subject
        self._result: OnnxArtifact | None = None
        self.outcome = unapplied(selected.spec.name, graph.artifact)

    def run(self) -> tuple[VerifiedGraph, PassOutcome]:
        """Run the pass, verify its result, and measure its gain.

        Raises:
            PassRejectedError: The result is not used.
            RepogenError: It is wrong.
        """
        artifact, self.outcome = run_pass(self._graph.artifact, self._selected, self._subject.workspace)
        if not self.outcome.applied:
            return self._graph, self.outcome
        self._result = artifact
        verified = self._verified(artifact)
        if self._selected.gated:
            self._require_gain(verified.artifact)
        return verified, self.outcome

    def discard(self) -> None:
        """Remove the files of a result that is not used."""
        if self._result is not None:
            discard(self._result.path.parent)

    def _verified(self, artifact: OnnxArtifact) -> VerifiedGraph:
        subject, golden, lossy = self._subject, artifact.path.parent / "golden", self._lossy()
        judge = subject.quality if lossy is not None else None
        if judge is None or lossy is None:
            verified = self._with_parity(artifact)
        else:
            quality = self._require_quality(judge, OnnxModel(artifact))
            lossy = replace(lossy, quality=quality)
            verified = verify(artifact, subject.source, subject.job, golden, lossy_precision=lossy.precision)
        batch, base = verified.validation.batch, subject.base.validation.batch
        if batch.max_batch_size < base.max_batch_size:
            raise PassRejectedError(f"its result cannot be batched: {batch.reason}")
        return replace(verified, lossy=lossy)

    def _with_parity(self, artifact: OnnxArtifact) -> VerifiedGraph:
        subject, golden = self._subject, artifact.path.parent / "golden"
        try:
            return verify(artifact, subject.source, subject.job, golden, extra_sizes=subject.guard_violations)
        except ParityError as error:
            if not self._selected.lossy or error.code != "parity.drift":
                raise
            raise PassRejectedError(
                f"{error.record.summary}; a lossy pass without quality: must be within the tolerances of parity"
            ) from error

    def _lossy(self) -> Lossy | None:
        """Return what the result is, without its quality; None if no pass so far is lossy."""
        before, precision = self._graph.lossy, self._selected.implementation.precision
        if precision is None:
            return before
        name = self._selected.spec.name
        if before is None:
            return Lossy((name,), precision)
        return Lossy((*before.passes, name), coarsest(precision, before.precision))

    def _require_quality(self, judge: QualityJudge, model: OnnxModel) -> Quality:
        try:
            quality = judge.judge(model)
        except SourceError as error:  # the code works on the original
            raise PassRejectedError(error.message) from error
        self.outcome = replace(self.outcome, quality=quality)
        if not quality.passed:
            raise PassRejectedError(f"it exceeds its budget: {quality}")
        return quality

    def _require_gain(self, artifact: OnnxArtifact) -> None:
        cases = golden_inputs(self._subject.base.golden_dir)
        gain = self._subject.timer(self._graph.artifact.path, artifact.path, cases, self._subject.job.threads)
        self.outcome = replace(self.outcome, gain=gain)
        if not gain.pays:
            raise PassRejectedError(gain.obstacle)
