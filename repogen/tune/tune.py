"""Tunes one model: baselines, search, selection of the best, and a comparison side by side."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable  # noqa: TC003 - a dataclass's field
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import optuna
from filelock import Timeout

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.progress import Silent
from repogen.artifacts.tune import Settings, TuneReport
from repogen.bench.machine import describe_machine
from repogen.bench.server import ServerChoice
from repogen.errors import BenchError, ErrorRecord, ExitCode, RepogenError, SpecError, TrackingError
from repogen.files import foreign_reason
from repogen.files.temporary import temporary_directory
from repogen.repository.filesystem import make_directory
from repogen.repository.inventory import require_models
from repogen.repository.layout import triton_versions
from repogen.repository.lock import file_lock
from repogen.repository.version_policy import served_versions
from repogen.serving.install import cache_root, locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.spec.problems import suggestion
from repogen.targets import DEFAULT_RELEASE, target_of, targets
from repogen.triton_config.text.parse import parse_file
from repogen.tune.comparison import Comparison, compare, comparison_rows
from repogen.tune.passes import PassBuilds, obstacle, pass_lists
from repogen.tune.record import write_record
from repogen.tune.search import Origin, Search, SearchPlan, middle, open_study, pareto_front
from repogen.tune.space import (
    PASSES,
    SPEC,
    automatic_settings,
    common_settings,
    current_settings,
    space_of,
    with_settings,
)
from repogen.tune.spec_edit import edit_spec
from repogen.tune.triton import LoadShape, TritonTestBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from repogen.artifacts.bench import Machine
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.tune import (
        ComparisonRow,
        Constraint,
        Figures,
        Objective,
        PassCandidate,
        Trial,
        TuneTracker,
    )
    from repogen.spec.models import PassSpec, Spec
    from repogen.tune.interface import Candidate, PassBuilder

_FINALISTS = 3
_SELECTION_ROUNDS = 3
_SHORT, _LONG = 0.3, 0.6
"""Duration of the first and of the other measurements of a trial, as parts of ``TuneRequest.seconds``."""
_MINUTE = 60.0


@dataclass(frozen=True)
class TuneRequest:
    """What to tune, and how.

    Attributes:
        spec: The spec.
        content: Bytes of the spec's file.
        model: The model.
        repository: The directory with its published version.
        place: The repository as the report names it: the directory, or a URL.
        objective: What is optimized.
        constraints: Limits that a config must keep.
        budget: Seconds for the builds with other passes and for the trials; the comparison comes after them.
        trials: Number of trials, those of an earlier run included.
        shape: The requests.
        rounds: Rounds of the comparison.
        seconds: Duration of each measurement of the comparison; those of a trial are shorter.
        server: Value of ``--server``.
        write: Whether to write the chosen settings into the spec.
        restart: Whether to discard the trials of an earlier run.
        tracker: Tracks the trials; None if they are not tracked.
        exclude: Parameters that stay as they are in the spec.
        builder: Builds the model with other passes; None if passes are not searched.
    """

    spec: Spec
    content: bytes
    model: str
    repository: Path
    place: Path
    objective: Objective
    constraints: tuple[Constraint, ...]
    budget: float
    trials: int
    shape: LoadShape
    rounds: int
    seconds: float
    server: str
    write: bool = False
    restart: bool = False
    tracker: Callable[[], TuneTracker] | None = None
    exclude: tuple[str, ...] = ()
    builder: PassBuilder | None = None


def tune(request: TuneRequest, progress: Progress) -> TuneReport:
    """Tune one model.

    Returns:
        The result. After Ctrl-C it has the trials until then, and the next call with the same request continues.

    Raises:
        SpecError: The model cannot be tuned as requested, the server or its options are wrong, or the spec cannot be
            written.
        BenchError: The published model cannot be measured.
        ServerError: The server or perf_analyzer cannot be installed or started.
        TrackingError: The tracking server cannot be reached.
    """
    _check_model(request)
    with temporary_directory() as work_dir:
        return _Tuning(request, progress, work_dir).run()


class _Tuning:
    """The work on one model."""

    def __init__(self, request: TuneRequest, progress: Progress, work_dir: Path) -> None:
        """Prepare the test bed; no server is started."""
        self.request = request
        self.progress = progress
        self.machine: Machine = describe_machine()
        directory = request.repository / request.model
        choice = ServerChoice(request.server, target_of(request.spec.release), progress)
        version = _served_version(directory)
        program = install_perf_analyzer(locate(targets()[DEFAULT_RELEASE].onnxruntime), progress)
        self.bed = TritonTestBed(
            *(request.spec, request.model, directory, version, choice, program, request.shape, work_dir)
        )
        self.notes: list[str] = []
        self.work_dir = work_dir
        self.seconds = request.budget
        self.candidates: list[PassCandidate] = []
        self.passes: dict[str, tuple[PassSpec, ...]] = {}

    def run(self) -> TuneReport:
        """Return the result."""
        request = self.request
        self.bed.check()
        opened = None if request.tracker is None else request.tracker()
        self.progress.step(request.model, "serve the published version, and check its outputs")
        self._require_figures(self.bed.probe())
        self.bed.choice = replace(self.bed.choice, progress=Silent())  # a server starts for each trial
        self.notes += [f"measured with a changed config: {line}" for line in self.bed.overrides]
        self._build_passes()
        plan = self._plan()
        if not plan.space.choices:
            reasons = (*self.notes, *(f"passes {each.name}: {each}" for each in self.candidates if each.reason))
            raise SpecError(f"{request.model} has no settings to tune", "; ".join(reasons), code="tune.nothing")
        path = self._storage(plan)
        if _is_unexpected(path, request.model, restart=request.restart):
            self.notes.append(_NEW_SEARCH)
        with _locked(path), _study(path, restart=request.restart) as study, self._tracked(opened) as tracker:
            search = Search(study, plan, self.bed)
            search.on_begin = partial(self._begin, search)
            search.on_end = partial(self._log, tracker)
            report = self._searched(search)
            if report.error is None and not report.interrupted:
                report = self._compared(search, report)
            report = self._recorded(report)
            if tracker is not None:
                tracker.report = report
        return report

    def _recorded(self, report: TuneReport) -> TuneReport:
        """Write the report next to the spec, and return it with the names of the files."""
        try:
            return write_record(report, self.request.spec.root)
        except OSError as error:
            return replace(report, notes=(*report.notes, f"the report can't be written to a file: {error}"))

    def _build_passes(self) -> None:
        """Build the graphs for the parameter ``passes``, in at most half of the time, or note why there are none."""
        request = self.request
        if request.builder is None or PASSES in request.exclude:
            return
        began = time.monotonic()
        self.progress.step(request.model, "compare the published version with the spec")
        directory = self.work_dir / "passes"
        directory.mkdir()
        builds = PassBuilds(self.bed, request.builder, directory, self.progress)
        try:
            reason = obstacle(self.bed, request.builder)
            if not reason:
                spec = request.spec.models[request.model]
                lists = pass_lists(spec, has_gpu=self.bed.model.has_gpu)
                builds.run(lists, (each.name for each in spec.passes), self.seconds / 2)
        except RepogenError as error:
            reason = "; ".join(filter(None, (error.message, error.hint)))
        if reason:
            which = "some optimization passes" if builds.passes else "optimization passes"
            self.notes.append(f"{which} were not searched: {reason}")
        self.candidates, self.passes = builds.candidates, builds.passes
        self.seconds = max(self.seconds - (time.monotonic() - began), 0.0)

    def _plan(self) -> SearchPlan:
        request, model = self.request, self.bed.model
        space = space_of(model, request.exclude)
        spec, auto = (space.effective(each(model)) for each in (current_settings, automatic_settings))
        common = (space.effective(settings) for settings in common_settings(model))
        candidates: list[tuple[Origin, Settings]] = [("spec", spec), ("auto", auto)]
        candidates += [("search", settings) for settings in common]
        candidates += [("search", {**spec, PASSES: name}) for name in self.passes]
        baselines = tuple((origin, settings) for origin, settings in candidates if settings in space)
        return SearchPlan(
            *(space, request.objective, request.constraints, baselines, request.trials, self.seconds),
            short=_SHORT * request.seconds,
            long=_LONG * request.seconds,
        )

    def _storage(self, plan: SearchPlan) -> Path:
        """Return the file of the trials: each model, machine, server and request has its own."""
        endpoint = self.bed.endpoint
        server = () if endpoint is None else (endpoint.kind, endpoint.server_version, endpoint.runtime)
        machine = (self.machine.cpu, self.machine.cores, self.machine.memory_bytes)
        triton = self.bed.model.triton.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        question = (plan.objective, [each.text for each in plan.constraints], plan.short, plan.long, plan.rounds)
        shape = (self.request.shape.batch, self.request.shape.concurrency)
        parts = (self.bed.manifest.content_sha256, server, machine, triton, question, shape, optuna.__version__)
        graphs = {each.name: each.sha256 for each in self.candidates if each.name in self.passes}
        choices = {name: list(values) for name, values in plan.space.choices.items()}
        content = json.dumps([*parts, choices, *([graphs] if graphs else [])])
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        return _directory() / f"{self.request.model}-{digest}.db"

    def _require_figures(self, figures: Figures) -> None:
        if not figures.memory_bytes and any(each.metric == "memory" for each in self.request.constraints):
            raise SpecError(
                f"the memory of --server {self.request.server} can't be measured",
                "remove the constraint, or use --server embedded",
                code="tune.memory",
            )

    def _searched(self, search: Search) -> TuneReport:
        """Run the trials, and return the report without a comparison."""
        interrupted = False
        try:
            search.run()
        except KeyboardInterrupt:
            interrupted = True
        if search.exhausted:
            self.notes.append("every combination of the settings was measured")
        elif search.resumed:
            self.notes.append(f"{search.resumed} trials are from an earlier run; --restart discards them")
        best = search.best
        report = self._report(search, interrupted=interrupted)
        if best is None and not interrupted:
            return replace(report, error=_infeasible(search))
        return report

    def _report(self, search: Search, *, interrupted: bool) -> TuneReport:
        request, endpoint = self.request, self.bed.endpoint
        best = search.best
        server = "" if endpoint is None else endpoint.description
        batch = request.shape.batch if self.bed.manifest.max_batch_size else 0
        return TuneReport(
            *(request.model, self.bed.version, request.place, server, self.machine, request.objective),
            constraints=tuple(each.text for each in request.constraints),
            batch=batch,
            concurrency=request.shape.concurrency,
            space=dict(search.plan.space.choices),
            passes=tuple(self.candidates),
            trials=tuple(search.trials),
            resumed=search.resumed,
            pareto=pareto_front(search.trials),
            chosen=None if best is None else best.number,
            interrupted=interrupted,
            notes=tuple(self.notes),
        )

    def _compared(self, search: Search, report: TuneReport) -> TuneReport:
        """Return the report with the comparison, and with the change to the spec if there is one."""
        try:
            chosen = self._selected(search)
            spec = search.plan.space.effective(current_settings(self.bed.model))
            configs: dict[str, Callable[[], AbstractContextManager[Candidate]]]
            configs = {"tuned": partial(self.bed.open, chosen.settings), "auto": self.bed.open_automatic}
            if chosen.settings != spec:
                configs |= {"spec": partial(self.bed.open, spec)}
            comparison = compare(configs, self.request.rounds, self.request.seconds, self._round("comparison"))
        except KeyboardInterrupt:
            return replace(report, interrupted=True)
        except BenchError as error:
            return replace(report, error=error.record)
        rows = comparison_rows(comparison, search.plan)
        self.notes += [f"{_NAMES[name]} was not compared: {text}" for name, text in comparison.errors.items()]
        improved = chosen.settings != spec and _is_better(rows, comparison)
        if chosen.settings.get(PASSES, SPEC) != SPEC:
            graph = next(each for each in self.candidates if each.name == chosen.settings[PASSES])
            self.notes.append(f"the graph of the chosen config is not the published one: passes {graph.name}, {graph}")
        report = replace(report, chosen=chosen.number, comparison=rows, improved=improved)
        if improved:
            report = self._changed(report, chosen.settings)
        else:
            self.notes.append(_why_not(chosen.settings == spec, rows))
        return replace(report, notes=tuple(self.notes))

    def _selected(self, search: Search) -> Trial:
        """Measure the best trials again side by side, because the best of many may be the best by chance."""
        finalists = {str(trial.number): trial for trial in search.ranked[:_FINALISTS]}
        if len(finalists) == 1:
            return next(iter(finalists.values()))
        configs = {name: partial(self.bed.open, trial.settings) for name, trial in finalists.items()}
        result = compare(configs, _SELECTION_ROUNDS, self.request.seconds, self._round("selection"))
        figures = {name: middle(rounds) for name, rounds in result.rounds.items() if rounds}
        if not figures:
            raise BenchError("none of the best configs could be served again", code="bench.not-served")
        return finalists[min(figures, key=lambda name: search.plan.score(figures[name]))]

    def _changed(self, report: TuneReport, settings: Settings) -> TuneReport:
        """Return the report with the change to the spec, which is written if the request says so."""
        request, model = self.request, self.bed.model
        size = int(settings.get("max_batch_size", model.max_batch_size))
        if size < model.max_batch_size:
            self.notes.append(
                f"max_batch_size is {size} instead of {model.max_batch_size}: Triton rejects requests with more rows"
            )
        update: dict[str, object] = {"triton": with_settings(model, settings)}
        if (passes := self.passes.get(str(settings.get(PASSES)))) is not None:
            update["optimize"] = passes
        changed = request.spec.models[request.model].model_copy(update=update)
        try:
            edit = edit_spec(request.spec, request.content, request.model, changed)
            report = replace(report, diff=edit.diff)
            if request.write:
                edit.write()
        except SpecError as error:  # the figures are worth minutes of work, so they are reported as well
            if request.write:
                return replace(report, error=error.record)
            self.notes.append(f"{error.message}; {error.hint}")
        return replace(report, written=request.write)

    def _begin(self, search: Search, settings: Settings, seconds: float) -> None:
        best, plan = search.best, search.plan
        spec = plan.space.effective(current_settings(self.bed.model))
        changes = ", ".join(f"{name} {value}" for name, value in settings.items() if spec.get(name) != value)
        figures = best.figures if best is not None else None
        so_far = "none yet" if figures is None else objective_text(figures, plan.objective)
        left = f"{seconds:.0f} s" if seconds < _MINUTE else f"{seconds / _MINUTE:.0f} min"
        count = f"trial {len(search.trials) + 1} of {plan.trials}"
        self.progress.step(
            self.request.model, f"{count}, best {so_far}, {left} left: {changes or 'the settings of the spec'}"
        )

    def _round(self, name: str) -> Callable[[int], None]:
        return lambda number: self.progress.step(self.request.model, f"{name}, round {number}")

    def _log(self, tracker: _Tracked | None, trial: Trial) -> None:
        if tracker is None or tracker.failed:
            return
        try:
            tracker.tracker.log_trial(trial)
        except TrackingError as error:
            tracker.failed = True
            self.notes.append(f"trial {trial.number} and later ones could not be logged to MLflow: {error.message}")

    @contextmanager
    def _tracked(self, tracker: TuneTracker | None) -> Iterator[_Tracked | None]:
        """Track the trials while the block runs.

        Raises:
            TrackingError: The tracking server cannot be reached.
        """
        request = self.request
        if tracker is None:
            yield None
            return
        tracked = _Tracked(tracker)
        params = {
            "objective": request.objective,
            "constraints": ", ".join(each.text for each in request.constraints) or "none",
            "batch": str(request.shape.batch),
            "concurrency": str(request.shape.concurrency),
            "server": request.server,
            "version": str(self.bed.version),
        }
        tracked.tracker.start(request.model, params)
        try:
            yield tracked
        finally:
            try:
                tracked.tracker.finish(tracked.report)
            except TrackingError as error:
                self.progress.note(request.model, f"the result could not be logged to MLflow: {error.message}")


@dataclass
class _Tracked:
    """A tracker, the report to log at the end, and whether logging failed."""

    tracker: TuneTracker
    report: TuneReport | None = None
    failed: bool = False


_NAMES = {
    "tuned": "the tuned config",
    "spec": "the config of the spec",
    "auto": "Triton's auto-completed config",
}


def objective_text(figures: Figures, objective: Objective) -> str:
    """Return the figure that an objective compares, with its unit."""
    value = figures.objective(objective)
    return f"{value:,.0f} rows/s" if objective == "throughput" else f"p50 {value:.3g} ms"


def _is_better(rows: tuple[ComparisonRow, ...], comparison: Comparison) -> bool:
    """Return whether the tuned config meets the constraints, and the spec's does not, or is slower beyond the noise."""
    by_name = {row.name: row for row in rows}
    tuned, spec = by_name.get("tuned"), by_name.get("spec")
    if tuned is None or tuned.violations:
        return False
    if spec is None:
        return "spec" in comparison.errors
    return bool(spec.violations) or (spec.ratio is not None and spec.ratio.low > 1)


def _why_not(is_spec: bool, rows: tuple[ComparisonRow, ...]) -> str:  # noqa: FBT001 - private
    tuned = next((row for row in rows if row.name == "tuned"), None)
    if is_spec:
        return "the settings of the spec are the best that were measured"
    if tuned is not None and tuned.violations:
        return f"the best config violates {', '.join(tuned.violations)} in the comparison, so nothing changes"
    return "the best config is not better than the spec's by more than the noise, so nothing changes"


def _infeasible(search: Search) -> ErrorRecord:
    closest = search.closest
    if closest is None or closest.figures is None:
        reasons = "; ".join(dict.fromkeys(trial.reason for trial in search.trials)) or "there was no time for a trial"
        error = BenchError(f"no config could be measured: {reasons}", "increase --budget", code="tune.infeasible")
        return replace(error.record, exit_code=int(ExitCode.GATE))
    figures = closest.figures
    settings = ", ".join(f"{name} {value}" for name, value in closest.settings.items())
    memory = f", {figures.memory_bytes / 1e6:,.0f} MB" if figures.memory_bytes else ""
    error = BenchError(
        f"none of the {len(search.trials)} configs meets {', '.join(each.text for each in search.plan.constraints)}; "
        f"the closest has p50 {figures.p50:.3g} ms, p95 {figures.p95:.3g} ms, p99 {figures.p99:.3g} ms, "
        f"{figures.throughput:,.0f} rows/s{memory}: {settings}",
        "relax a constraint, lower --concurrency (if it is above 1), or increase --budget",
        code="tune.infeasible",
    )
    return replace(error.record, exit_code=int(ExitCode.GATE))


def _check_model(request: TuneRequest) -> None:
    if request.model not in request.spec.models:
        names = list(request.spec.models)
        raise SpecError(
            f"{request.spec.path.name} has no model {request.model!r}",
            suggestion([request.model], names, f"its models are {', '.join(names)}"),
            code="spec.no-such-model",
        )
    require_models(request.repository, (request.model,))


def _served_version(directory: Path) -> int:
    config = parse_file(directory / CONFIG_FILE, f"{directory.name}/{CONFIG_FILE}")
    versions = served_versions(config, triton_versions(directory))
    if not versions:
        raise BenchError(f"{directory.name} has no version that Triton serves", code="bench.not-published")
    return versions[0]


_NEW_SEARCH = (
    "this is a new search, because earlier trials of a model with this name used another model file, graph, machine, "
    "server, spec section, load, objective or constraint, or other parameters"
)


def _is_unexpected(path: Path, model: str, *, restart: bool) -> bool:
    """Return whether the user may expect trials of a new search: there are some of other searches of the model.

    Args:
        path: File of the trials of this search.
        model: The model.
        restart: Whether the user requested a new search.
    """
    if restart or path.exists() or not path.parent.is_dir():
        return False
    pattern = re.compile(re.escape(model) + r"-[0-9a-f]{16}\.db")
    return any(pattern.fullmatch(entry.name) for entry in path.parent.iterdir())


def _directory() -> Path:
    """Return the directory of the trials in the user's cache."""
    return cache_root().parent / "tune"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time use the trials in a file.

    Raises:
        BenchError: Another one does, or the directory cannot be written.
    """
    try:
        make_directory(path.parent.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if problem := foreign_reason(path.parent):
            raise BenchError(f"{path.parent} {problem}", "set REPOGEN_CACHE_DIR", code="tune.storage")
        lock = file_lock(path.with_suffix(".lock"))
        lock.acquire(timeout=0)
    except Timeout as error:
        raise BenchError(
            "another `repogen tune` is measuring this model on this machine",
            "wait until it ends: two measurements at the same time would disturb each other",
            code="tune.busy",
        ) from error
    except OSError as error:
        raise BenchError(
            f"{path.parent} can't be written: {error.strerror}", "set REPOGEN_CACHE_DIR", code="tune.storage"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _study(path: Path, *, restart: bool) -> Iterator[optuna.Study]:
    if restart:
        path.unlink(missing_ok=True)
    with open_study(path) as study:
        yield study
