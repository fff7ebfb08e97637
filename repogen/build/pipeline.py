"""The order of the steps.

Each model goes through ``verify_model``, which reads like the design's table:

    preflight -> [worker: source -> export -> optimize -> validate] -> configure -> stage -> smoke
        -> track: logged, registered as pending -> publish -> track: confirmed
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, PublishError, RepogenError, SpecError
from repogen.build.fingerprint import known_inputs, registered, step_inputs
from repogen.build.dependencies import built_steps, members, with_ensembles
from repogen.repository.ensembles import unfit_users
from repogen.build.schedule import build_all
from repogen.build.session import BuildOptions, Shared, fetched_files, open_desk, open_workshop, pinned, tracking_asked_for
from repogen.spec.paths import check_repository
from repogen.spec.sources import MlflowSource
from repogen.build.incremental import settle_publishes, unchanged_models, unconfirmed_versions
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.repository.ownership import require_built
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.steps import EnsembleArtifact
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.build.tracking import ReleaseDesk
    from repogen.build.schedule import Steps
    from repogen.spec.models import Spec
    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.versions import ModelConfig, StagedVersion

__all__ = ["BuildOptions", "build"]


def build(spec: Spec, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build every chosen model; one that fails does not stop the others.

    Raises:
        RepogenError: What would stop them all: an unknown model name, an unwritable repository, no server, no MLflow.
        KeyboardInterrupt: Interrupted; nothing half-done is left.
    """
    names = _chosen(spec, options.models)
    repository = _repository(spec, options)
    require_built(repository)
    if not options.dry_run:
        settle_publishes(names, repository)
    spec = pinned(spec, options, names)
    tracking = tracking_asked_for(spec, options)
    found: dict[str, ModelReport | None] = {}
    if not options.force:
        found = unchanged_models(spec, names, repository, registered=tracking is not None and tracking.register)
    pending = with_ensembles(spec, names, [name for name in names if found.get(name) is None])
    reports = {name: report for name, report in found.items() if report is not None and name not in pending}
    unconfirmed = unconfirmed_versions(names, repository) if tracking is not None else []
    shared = Shared(spec, options, repository, progress)
    with open_desk(shared, tracking if pending or unconfirmed else None, pending):
        if pending:
            with open_workshop(shared, pending):
                shared.building = frozenset(pending)
                reports.update(build_all(shared, pending, verify_model))
        if shared.desk is not None:
            for name, version in unconfirmed:
                reports[name] = _confirmed(shared.desk, repository, reports[name], version)
        report = BuildReport(repository, tuple(reports[name] for name in names))
        return report if shared.desk is None else shared.desk.finish(report)


def _confirmed(desk: ReleaseDesk, repository: Path, report: ModelReport, version: int) -> ModelReport:
    """Confirm a version that an earlier build published, and could not confirm."""
    try:
        content = read_manifest(model_dir(repository, report.name) / str(version)).content_sha256
        desk.confirm(report.name, version, content)
    except (RepogenError, OSError) as error:
        record = error.record if isinstance(error, RepogenError) else ErrorRecord("tracking.unconfirmed", str(error))
        return replace(report, error=report.error or record)
    return replace(report, notes=(*report.notes, f"version {version} is now confirmed in MLflow's registry"))


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


def verify_model(shared: Shared, threads: int, steps: Steps) -> Callable[[], ModelReport]:
    """Run all steps for one model but those that others see, and return what does these.

    Raises:
        RepogenError: The first step that failed; ``steps.report`` holds what was learned until then.
    """
    from repogen.build.provenance import provenance  # noqa: PLC0415 - an unchanged build needs no protobuf
    from repogen.repository.stage import stage_dependencies  # noqa: PLC0415 - the same
    from repogen.repository.stage import stage_version  # noqa: PLC0415 - the same

    spec, options, repository, name = shared.spec, shared.options, shared.repository, steps.report.name
    within = members(spec.models, name)
    with shared.linking:
        stage_dependencies(shared.private, repository, within)
    before = known_inputs(spec, name) | step_inputs(within, shared.private)  # edited later: a change to the next build
    if shared.desk is not None and shared.desk.registers:
        before = registered(before)
    built = _run_worker(shared, name, threads, steps)
    steps.report = _with_built(steps.report, built)
    with steps.step("configure"):
        config = _configured(shared, name, built)
    with steps.step("stage"):
        origin = provenance(spec, before, built)
        staged = stage_version(
            shared.root, repository, config, built.artifact, built.golden_dir, origin, companions=built.companions
        )
    steps.report = replace(
        steps.report,
        sha256=staged.manifest.sha256,
        size=staged.manifest.size,
        max_batch_size=config.max_batch_size,
        status=Status.FAILED,
    )
    if shared.triton is not None:
        from repogen.smoke.report import raise_for_failures  # noqa: PLC0415 - imports gRPC
        from repogen.smoke.staged import smoke_staged  # noqa: PLC0415 - imports gRPC

        with steps.step("server"):  # what is left of its start, which overlaps with export
            triton = shared.triton.wait()
        with steps.step("smoke"):
            smoked = smoke_staged(triton, staged)
        steps.report = replace(steps.report, smoke=smoked)
        raise_for_failures(smoked)
    if options.dry_run:
        return lambda: replace(steps.report, status=Status.VERIFIED, seconds=steps.seconds)
    return partial(_released, shared, staged, built, steps)


def _configured(shared: Shared, name: str, built: BuiltModel) -> ModelConfig:
    from repogen.triton_config.render.model import configure  # noqa: PLC0415 - as above
    from repogen.triton_config.render.ensemble import configure_ensemble  # noqa: PLC0415 - as above
    from repogen.repository.ensembles import neighbor_at  # noqa: PLC0415 - as above
    from repogen.repository.golden import first_golden_inputs  # noqa: PLC0415 - as above

    spec, artifact = shared.spec, built.artifact
    model, labels = spec.models[name], built.labels
    if isinstance(artifact, EnsembleArtifact):
        neighbors = {step.model: neighbor_at(shared.private / step.model) for step in artifact.steps}
        return configure_ensemble(
            *(name, model, artifact, built.batch, neighbors),
            templates=spec.templates,
            labels=labels,
            root=spec.root,
        )
    return configure(
        *(name, model, artifact, built.batch),
        target=targets()[spec.release],
        templates=spec.templates,
        labels=labels,
        root=spec.root,
        golden_inputs=partial(first_golden_inputs, built.golden_dir),
        gpu=spec.gpu,
    )


def _released(shared: Shared, staged: StagedVersion, built: BuiltModel, steps: Steps) -> ModelReport:
    """Publish a verified version; where the build is tracked, it is logged before and confirmed after.

    Raises:
        RepogenError: Tracking or publishing failed.
    """
    from repogen.repository.publish import publish  # noqa: PLC0415 - as above

    repository, name = shared.repository, staged.name
    steps.report = replace(steps.report, notes=(*steps.report.notes, *_users_told(shared, staged)))
    if shared.desk is not None:
        with steps.step("track"):
            verified = replace(steps.report, status=Status.VERIFIED, seconds=steps.seconds)
            tracked = shared.desk.log(staged, built, verified)
        steps.report = replace(steps.report, registry_version=tracked.registry_version)
    with steps.step("publish"):
        published = publish(staged, repository, breaking=shared.options.breaking)
    steps.report = replace(steps.report, status=Status.PUBLISHED, version=published.version)
    if shared.desk is not None and shared.desk.registers:
        with steps.step("confirm"):
            content = staged.manifest.content_sha256
            shared.desk.confirm(name, published.version, content, steps.report.registry_version)
    steps.progress.step(name, "done")
    return replace(steps.report, seconds=steps.seconds)


def _users_told(shared: Shared, staged: StagedVersion) -> Iterator[str]:
    """Tell of the repository's ensembles that a model is a step of, and that this build does not build again.

    Raises:
        PublishError: One would no longer load.
    """
    for user, why in unfit_users(shared.repository, staged, shared.building).items():
        if why and not shared.options.breaking:
            raise PublishError(
                f"{user}, an ensemble in the repository, would no longer load: {why}",
                f"build {user} with it; or --breaking, and {user} is down until it is built again",
                code="publish.ensemble",
            )
        yield f"{user} is made of it, and was not built again" + (f": it no longer loads ({why})" if why else "")


def _run_worker(shared: Shared, name: str, threads: int, steps: Steps) -> BuiltModel:
    from repogen.worker.job import Job  # noqa: PLC0415 - pydantic builds its decoders at import
    from repogen.worker.process import run_worker  # noqa: PLC0415 - pydantic builds its decoders at import

    work_dir = shared.root / "work" / name
    work_dir.mkdir(parents=True)
    source, fetched = shared.spec.models[name].source, None
    if isinstance(source, MlflowSource):
        with steps.step("fetch"):
            fetched = fetched_files(shared, name, source)
    spec, every = shared.spec, shared.options.every_rung
    made_of = built_steps(spec, name, shared.private)
    job = Job(name, spec.models[name], spec.root, spec.release, work_dir, threads, fetched, every, made_of)
    begun = time.monotonic()
    shared.progress.step(name, "import")
    outcome = run_worker(job, shared.progress, shared.cancelled)
    learned = outcome.learned
    steps.seconds["worker"] = time.monotonic() - begun - sum(learned.seconds.values())
    steps.seconds.update(learned.seconds)
    steps.report = replace(
        steps.report,
        rungs=learned.rungs,
        passes=learned.passes,
        notes=learned.notes,
        peak_rss_bytes=learned.peak_rss_bytes,
    )
    return outcome.model()


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
        batch_reason=built.batch.reason,
    )
