"""The evaluation gate: a metric that the user's code computes from a served version."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import GateResult, Verdict
from repogen.errors import RepogenError, SpecError
from repogen.files.paths import require_no_foreign_link
from repogen.files.replacement import trust_of
from repogen.registry.gates.interface import (
    Champion,
    Gate,
    NotMeasuredError,
    Requires,
    Versions,
    failed_limits,
    judge_figure,
)
from repogen.spec.gates import EvaluationGate
from repogen.spec.paths import check_evaluation
from repogen.validate.figures import select_figure
from repogen.worker.evaluation import EvaluationJob, run_evaluation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.smoke.served import ServedVersion

_MIN, _MAX_DROP, _METRIC = "evaluation.min", "evaluation.max_drop", "evaluation.metric"
_MAX_OTHER_FIGURES = 20


@dataclass(frozen=True)
class Evaluations:
    """The figures of both versions by name; one number has the name "".

    Attributes:
        candidate: The candidate's figures.
        champion: The champion's; None if they were not measured.
        compared: The champion.
    """

    candidate: dict[str, float]
    champion: dict[str, float] | None
    compared: Champion


class Evaluation(Gate[EvaluationGate, Evaluations]):
    """A metric that the user's code computes from Triton's responses; higher is better."""

    options = EvaluationGate
    requires = Requires.SERVED

    def check(self, options: EvaluationGate, root: Path) -> None:
        """Check that the files of the callable and of the data exist."""
        finding = next(check_evaluation(options.callable, root, ()), None)
        if finding is not None:
            raise SpecError(f"evaluation gate: {finding.what}", finding.hint, code="promotion.evaluation-callable")
        if options.data is None:
            return
        require_no_foreign_link(root / options.data)
        if not (root / options.data).is_file():
            raise SpecError(
                f"evaluation gate: data file not found: {options.data}",
                "its path is relative to the spec, or to the working directory if there is no spec",
                code="promotion.evaluation-data",
            )

    def compares(self, options: EvaluationGate) -> bool:
        """Return whether the drop is limited."""
        return options.max_drop is not None

    def measure(self, options: EvaluationGate, versions: Versions) -> Evaluations:
        """Run the user's code on the candidate and, if the drop is limited, on the champion."""
        served, champion = versions.candidate.require_served(), versions.champion
        try:
            figures = _figures(options, versions.root, served)
        except RepogenError as error:
            raise NotMeasuredError(_message_with_position(error)) from error
        champion_figures = None
        if champion.served is not None and options.max_drop is not None:
            try:
                champion_figures = _figures(options, versions.root, champion.served)
            except RepogenError as error:
                champion = replace(champion, obstacle=_message_with_position(error))
        return Evaluations(figures, champion_figures, champion)

    def judge(self, options: EvaluationGate, measurement: Evaluations) -> Iterator[GateResult]:
        """Yield the figure, its drop if that is limited, and the other figures."""
        figures = measurement.candidate
        value, reason = select_figure(figures, options.metric, _METRIC)
        if value is None:
            yield from failed_limits("evaluation", options, reason)
            return
        yield judge_figure(_MIN, value, f"{value:.6g}", at_least=options.min)
        if options.max_drop is not None:
            yield _judge_drop(options.max_drop, options.metric, value, measurement)
        others = [] if options.metric is None else [name for name in figures if name != options.metric]
        for name in others[:_MAX_OTHER_FIGURES]:
            yield judge_figure(f"evaluation[{name}]", figures[name], f"{figures[name]:.6g}")


def _judge_drop(max_drop: float, metric: str | None, value: float, measurement: Evaluations) -> GateResult:
    limit, version = f"<= {max_drop:g}", measurement.compared.version
    if measurement.champion is None:
        return measurement.compared.judge_missing(_MAX_DROP, limit)
    champion_value, reason = select_figure(measurement.champion, metric, _METRIC)
    if champion_value is None:
        return GateResult(_MAX_DROP, "-", limit, Verdict.FAILED, f"version {version}: {reason}")
    drop = round(champion_value - value, 12)  # 0.95 - 0.945 must not exceed 0.005
    side = "below" if drop >= 0 else "above"
    text = f"{abs(drop):.6g} {side} version {version}'s {champion_value:.6g}"
    return judge_figure(_MAX_DROP, drop, text, at_most=max_drop)


def _figures(options: EvaluationGate, root: Path, served: ServedVersion) -> dict[str, float]:
    root = root.absolute()
    data = None if options.data is None else root / options.data
    with _unreplaced(data, root):
        return run_evaluation(EvaluationJob(options.callable, root, data, served.address, options.timeout_seconds))


@contextmanager
def _unreplaced(data: Path | None, root: Path) -> Iterator[None]:
    """Require that no other user replaces the data while the block reads them, for example by a link to a private file.

    Raises:
        SpecError: A link of another user leads to them; or they were replaced, whether the block succeeded or not: its
            error could quote the private file.
    """
    if data is None:
        yield
        return
    trust = trust_of(root)
    before = trust.identities([data])
    require_no_foreign_link(data)
    try:
        yield
    finally:
        if trust.identities([data]) != before:
            raise SpecError(
                f"{data} changed while it was read, and another user can replace it",
                "promote again; if other users change files there often, copy the file to a directory of yours",
                code="source.replaced",
            ) from None


def _message_with_position(error: RepogenError) -> str:
    return f"{error.where}: {error.message}" if error.where else error.message
