"""The order of the steps.

Each model goes through ``build_model``, which reads like the design's table:

    preflight -> [worker: source -> export -> optimize -> validate] -> configure -> stage -> smoke -> publish

Tracking in MLflow has its place between smoke and publish (log, register as pending) and after publish (confirm).
"""

from __future__ import annotations

import os
import re
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, RepogenError, SpecError
from repogen.fingerprint import known_inputs
from repogen.spec.paths import check_repository
from repogen.unchanged import settle_publishes, unchanged_models
from repogen.values.report import BuildReport, ModelReport, Status
from repogen.values.target import targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.background import BackgroundTriton
    from repogen.spec.models import Spec
    from repogen.values.artifacts import BuiltModel
    from repogen.values.progress import Progress
    from repogen.values.serving import TritonServer

_PLACED = re.compile(r":\d+$")
"""A place in a file, ``models.py:5``; a key path (``models.digits.triton``) ends in no line."""


@dataclass(frozen=True)
class BuildOptions:
    """Flags of ``repogen build``.

    Attributes:
        models: Names to build; all when empty.
        repository: Overrides the spec's.
        server: ``embedded``, ``docker`` or ``HOST:PORT``; None for no smoke test.
        force: Build what is unchanged, too.
        dry_run: Everything but publish.
        breaking: Allow a signature that differs from the published one.
        jobs: Models built at a time.
        stage_dir: Where to stage; beside the repository when None.
    """

    models: tuple[str, ...] = ()
    repository: Path | None = None
    server: str | None = "embedded"
    force: bool = False
    dry_run: bool = False
    breaking: bool = False
    jobs: int = 1
    stage_dir: Path | None = None


@dataclass
class _Build:
    """What the models of one build share."""

    spec: Spec
    options: BuildOptions
    progress: Progress
    root: Path
    triton: BackgroundTriton | None
    cancelled: threading.Event = field(default_factory=threading.Event)


def build(spec: Spec, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build every chosen model; one that fails does not stop the others.

    Raises:
        RepogenError: What would stop them all: an unknown model name, an unwritable repository, no server.
        KeyboardInterrupt: Interrupted; nothing half-done is left.
    """
    names = _chosen(spec, options.models)
    repository = _repository(spec, options)
    if not options.dry_run:
        settle_publishes(names, repository)
    reports = {} if options.force else unchanged_models(spec, names, repository)
    pending = [name for name in names if reports.get(name) is None]
    if pending:
        with _shared(spec, pending, repository, options, progress) as shared:
            reports.update(_build_all(shared, repository, pending))
    done = (reports[name] for name in names)
    return BuildReport(repository, tuple(report for report in done if report is not None))


def _repository(spec: Spec, options: BuildOptions) -> Path:
    """Return where to publish; what the command line says is held to the rules that the spec's own is."""
    if options.repository is None:
        return spec.repository
    wrong = next(check_repository(str(options.repository.resolve()), None, spec.root), None)
    if wrong is not None:
        raise SpecError(f"--repository {options.repository} {wrong.what}", wrong.hint, code="spec.repository")
    return options.repository


def _chosen(spec: Spec, wanted: tuple[str, ...]) -> list[str]:
    unknown = [name for name in wanted if name not in spec.models]
    if unknown:
        raise SpecError(
            f"{spec.path.name} has no model {', '.join(map(repr, unknown))}",
            f"it has {', '.join(spec.models)}",
            code="spec.no-such-model",
        )
    return [name for name in spec.models if not wanted or name in wanted]


@contextmanager
def _shared(
    spec: Spec, names: list[str], repository: Path, options: BuildOptions, progress: Progress
) -> Iterator[_Build]:
    """Preflight, then hold the staging directory and the Triton that all models share; it starts while they export."""
    from repogen.background import BackgroundTriton  # noqa: PLC0415 - an unchanged build needs no server
    from repogen.stage import preflight, prepare_stage_root, private_repository  # noqa: PLC0415 - the same
    from repogen.worker import require_extras  # noqa: PLC0415 - the same

    progress.step("", "preflight")
    require_extras(spec.models[name] for name in names)
    preflight(repository, options.stage_dir)
    server = _server(spec, options, progress)
    with ExitStack() as stack:
        root = stack.enter_context(prepare_stage_root(repository, options.stage_dir))
        triton = None
        if server is not None:
            triton = stack.enter_context(BackgroundTriton(server, private_repository(root)))
        progress.step("", "done")
        yield _Build(spec, options, progress, root, triton)


def _server(spec: Spec, options: BuildOptions, progress: Progress) -> TritonServer | None:
    if options.server is None:
        return None
    from repogen.serving import server  # noqa: PLC0415 - an unchanged build needs no server

    found = server(options.server, targets()[spec.release], progress)
    found.preflight()
    found.install()
    return found


def _build_all(shared: _Build, repository: Path, names: list[str]) -> dict[str, ModelReport]:
    jobs = max(1, min(shared.options.jobs, len(names)))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ThreadPoolExecutor(jobs, thread_name_prefix="model") as pool:
        futures = {name: pool.submit(_guarded, shared, repository, name, threads) for name in names}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            shared.cancelled.set()
            if shared.triton is not None:
                shared.triton.stop()  # ends a smoke test that is in the midst of its requests
            pool.shutdown(cancel_futures=True)
            raise


def _guarded(shared: _Build, repository: Path, name: str, threads: int) -> ModelReport:
    """Build one model; whatever goes wrong becomes part of its report."""
    steps = _Steps(shared.progress, shared.cancelled, ModelReport(name, Status.FAILED))
    try:
        return build_model(shared, repository, threads, steps)
    except RepogenError as error:
        record = error.record
        if not _PLACED.search(record.where):  # a key path, or nothing: shown at that key, or at the model's
            record = replace(record, where=shared.spec.where(record.where or f"models.{name}"))
        return replace(steps.report, error=record, seconds=steps.seconds)
    except Exception as error:  # noqa: BLE001 - a bug in one model's build must not stop the others
        record = ErrorRecord("bug", f"unexpected {error!r}", "please report this", details=traceback.format_exc())
        return replace(steps.report, error=record, seconds=steps.seconds)


@dataclass
class _Steps:
    """A model's report as it fills, and the time each step took."""

    progress: Progress
    cancelled: threading.Event
    report: ModelReport
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; none is begun once the build is cancelled, least of all publish."""
        if self.cancelled.is_set():
            raise KeyboardInterrupt
        self.progress.step(self.report.name, name)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - begun


def build_model(shared: _Build, repository: Path, threads: int, steps: _Steps) -> ModelReport:
    """Run all steps for one model.

    Raises:
        RepogenError: The first step that failed; ``steps.report`` holds what was learned until then.
    """
    from repogen.configure import configure  # noqa: PLC0415 - an unchanged build needs no protobuf
    from repogen.provenance import provenance  # noqa: PLC0415 - the same
    from repogen.publish import publish  # noqa: PLC0415 - the same
    from repogen.stage import stage_version  # noqa: PLC0415 - the same

    spec, options, name = shared.spec, shared.options, steps.report.name
    model, target = spec.models[name], targets()[spec.release]

    before = known_inputs(spec, name)  # what is edited from here on is a change to the next build
    built = _run_worker(shared, name, threads, steps)
    steps.report = _with_built(steps.report, built)
    with steps.step("configure"):
        config = configure(name, model, built.artifact, built.batch, target=target, templates=spec.templates)
    with steps.step("stage"):
        origin = provenance(spec, before, built)
        staged = stage_version(shared.root, repository, config, built.artifact, built.golden_dir, origin)
    steps.report = replace(
        steps.report, sha256=staged.manifest.sha256, max_batch_size=config.max_batch_size, status=Status.FAILED
    )
    if shared.triton is not None:
        from repogen.smoke import raise_for_failures, smoke_staged  # noqa: PLC0415 - imports gRPC

        with steps.step("server"):  # what is left of its start, which overlaps with export
            triton = shared.triton.wait()
        with steps.step("smoke"):
            smoked = smoke_staged(triton, staged)
        steps.report = replace(steps.report, smoke=smoked)
        raise_for_failures(smoked)
    if options.dry_run:
        return replace(steps.report, status=Status.VERIFIED, seconds=steps.seconds)
    with steps.step("publish"):
        published = publish(staged, repository, breaking=options.breaking)
    steps.progress.step(name, "done")
    return replace(steps.report, status=Status.PUBLISHED, version=published.version, seconds=steps.seconds)


def _run_worker(shared: _Build, name: str, threads: int, steps: _Steps) -> BuiltModel:
    from repogen.worker import Job, run_worker  # noqa: PLC0415 - pydantic builds its decoders at import

    work_dir = shared.root / "work" / name
    work_dir.mkdir(parents=True)
    job = Job(name, shared.spec.models[name], shared.spec.root, shared.spec.release, work_dir, threads)
    begun = time.monotonic()
    shared.progress.step(name, "import")
    try:
        built = run_worker(job, shared.progress, shared.cancelled)
    finally:
        steps.seconds["worker"] = time.monotonic() - begun
    steps.seconds.update(built.seconds)
    steps.seconds["worker"] -= sum(built.seconds.values())
    return built


def _with_built(report: ModelReport, built: BuiltModel) -> ModelReport:
    return replace(
        report,
        exporter=built.artifact.exporter,
        opset=built.artifact.opset,
        ir_version=built.artifact.ir_version,
        parity_cases=len(built.parity.cases),
        parity_skipped=built.parity.skipped,
        max_abs_diff=built.parity.max_abs_diff,
        max_rel_diff=built.parity.max_rel_diff,
        nodes_exported=built.nodes_exported,
        nodes_optimized=built.artifact.nodes,
        rungs=built.rungs,
        passes=built.passes,
        batch_reason=built.batch.reason,
        notes=built.notes,
        peak_rss_bytes=built.peak_rss_bytes,
    )
