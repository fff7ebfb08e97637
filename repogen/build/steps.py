"""The steps of one model, from the worker that exports it to its published version."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from repogen.artifacts.report import Status
from repogen.artifacts.steps import EnsembleArtifact, PythonArtifact
from repogen.attestation.attest import attest
from repogen.build.dependencies import ensemble_dependencies
from repogen.build.elsewhere import build_elsewhere
from repogen.build.ensemble_steps import built_steps
from repogen.build.fingerprint import build_inputs, registered, step_inputs
from repogen.build.input_identity import observe
from repogen.build.model_run import Notes
from repogen.build.packages import pack, pythons_to_pack
from repogen.build.provenance import provenance
from repogen.build.verified import load_verified, store_verified, worker_model
from repogen.errors import PublishError, RepogenError, SourceError
from repogen.registry.mlflow.access import fetch_model
from repogen.registry.mlflow.uri import tracking_of
from repogen.repository.ensembles import neighbor_at, unfit_users
from repogen.repository.golden import first_golden_inputs
from repogen.repository.hold import hold_note, hold_of
from repogen.repository.publish import publish
from repogen.repository.stage import stage_dependencies, stage_version
from repogen.serving.admission import require_admitted
from repogen.smoke.run_checks import raise_for_failures
from repogen.smoke.staged import smoke_staged
from repogen.spec.sources import MlflowSource, PythonSource
from repogen.targets import target_of
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.worker.job import Job
from repogen.worker.process import run_worker
from repogen.worker.template import render_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.versions import ModelConfig, StagedVersion
    from repogen.build.input_identity import ObservedInputs
    from repogen.build.model_run import ModelRun
    from repogen.build.packages import PackedPackages
    from repogen.build.session import BuildSession


def verify_model(session: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
    """Run every step of one model that changes nothing outside the staging directory.

    Args:
        session: The build session.
        run: Records the results.
        threads: Compute threads that the worker may use.

    Returns:
        What publishes the model; in a dry run, what returns the report of the verified model.

    Raises:
        RepogenError: A step failed.
    """
    name = run.name
    dependencies = ensemble_dependencies(session.spec.models, name)
    with session.linking:
        stage_dependencies(session.private_repository, session.repository, dependencies)
    observed = observe(session.spec, (*dependencies, name), session.repository)
    # Before the worker reads any of them: an input that is edited during the build counts as changed afterward.
    inputs = build_inputs(session.spec, name) | step_inputs(dependencies, session.private_repository)
    built, tested = _verified_before(session, run, inputs), ""
    if built is None:
        built, tested = _export(session, run, threads, inputs, observed)
    if session.tracking is not None and session.tracking.registers:
        inputs = registered(inputs)
    config = run.step("configure", _configure, session, name, built)
    run.record(Notes(config.notes))
    staged = run.step("stage", _stage, session, config, built, inputs, _pack(session, run))
    with _forgotten(run):
        observed.require_unreplaced(_used(session, built), name)
    if session.triton is not None and staged.manifest.content_sha256 != tested:
        triton = run.step("server", session.triton.wait)
        smoke = run.step("smoke", smoke_staged, triton, staged)
        raise_for_failures(smoke)
    if session.options.dry_run:
        return partial(run.report, Status.VERIFIED)
    return partial(publish_model, session, run, staged, built)


def publish_model(session: BuildSession, run: ModelRun, staged: StagedVersion, built: BuiltModel) -> ModelReport:
    """Publish a verified version; a tracked one is logged in MLflow before, and confirmed after.

    Raises:
        RepogenError: Tracking or publishing failed.
    """
    run.record(Notes(tuple(_notes(session, staged))))
    tracking, registry_version = session.tracking, None
    if tracking is not None:
        tracked = run.step("track", tracking.log, staged, built, run.report(Status.VERIFIED))
        registry_version = tracked.registry_version
    options = session.options
    publication = run.step(
        "publish",
        publish if options.store is None else options.store.publish,
        staged,
        session.repository,
        breaking=options.allow_breaking,
        adopt=staged.name in options.adopt,
    )
    if tracking is not None and tracking.registers:
        content = staged.manifest.content_sha256
        run.step("confirm", tracking.confirm, staged.name, publication.version, content, registry_version)
    report = run.report(Status.PUBLISHED)
    return report if tracking is None else tracking.log_published(report)


def _verified_before(session: BuildSession, run: ModelRun, inputs: Mapping[str, str]) -> BuiltModel | None:
    """Return the model as an earlier build with the same inputs verified it; None if it must be exported."""
    if session.cache is None or session.options.force:
        return None
    directory = session.private_directory / "verified" / run.name
    threads = session.plan.threads
    outcome = run.step("cache", load_verified, session.cache, session.spec, run.name, inputs, directory, threads)
    return None if outcome is None else outcome.model()


def _used(session: BuildSession, built: BuiltModel) -> list[Path]:
    """Return the files that a worker read or imported."""
    return [session.spec.root / file for file in built.imported.files]


@contextmanager
def _forgotten(run: ModelRun) -> Iterator[None]:
    """Forget what was measured and reported if an input was replaced: it may be derived from a private file."""
    try:
        yield
    except SourceError:
        run.forget()
        raise


def _export(
    session: BuildSession, run: ModelRun, threads: int, inputs: Mapping[str, str], observed: ObservedInputs
) -> tuple[BuiltModel, str]:
    """Export, optimize and validate a model, and keep the result in the cache.

    Returns:
        The model, and ``Manifest.content_sha256`` of what an executor has also tested; empty if it did not.
    """
    name, model = run.name, session.spec.models[run.name]
    fetched = session.fetched
    if fetched is None and isinstance(model.source, MlflowSource):
        fetched = run.step("fetch", _fetch, session, name, model.source)
    try:
        if session.executor is None:
            built, tested = _work(session, run, threads, fetched), ""
        else:
            built, tested = build_elsewhere(session, session.executor, run, fetched)
    except RepogenError:  # its message may quote a private file that another user put in the place of an input
        with _forgotten(run):
            observed.require_all_unreplaced(name)
        raise
    with _forgotten(run):
        observed.require_unreplaced(_used(session, built), name)
    if session.cache is not None:
        run.step("keep", store_verified, session.cache, session.spec, name, inputs, built, run.diagnostics)
    return built, tested


def _work(session: BuildSession, run: ModelRun, threads: int, fetched: Path | None) -> BuiltModel:
    """Build a model in a worker process of this machine."""
    name, model = run.name, session.spec.models[run.name]
    work_dir = session.private_directory / "work" / name
    shutil.rmtree(work_dir, ignore_errors=True)  # of a worker that was killed
    work_dir.mkdir(parents=True)
    job = Job(
        name,
        worker_model(model),
        session.spec.root,
        session.spec.release,
        work_dir,
        threads,
        fetched,
        session.options.try_all_exporters,
        built_steps(session.spec, name, session.private_repository),
    )
    return run.work(run_worker, job, session.progress, session.cancelled, session.fork_server)


def _fetch(session: BuildSession, name: str, source: MlflowSource) -> Path:
    """Download the files of a model in MLflow to the staging directory.

    Raises:
        SourceError: MLflow has no such model.
        TrackingError: MLflow cannot be reached.
    """
    directory = session.private_directory / "fetched" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    root = session.spec.root
    tracking = tracking_of(session.spec, session.options.tracking_uri, root)
    return fetch_model(tracking, source.uri, directory, root if source.trust_pickle else None)


def _configure(session: BuildSession, name: str, built: BuiltModel) -> ModelConfig:
    """Return the model's config.pbtxt."""
    spec, artifact = session.spec, built.artifact
    steps = artifact.steps if isinstance(artifact, EnsembleArtifact) else ()
    verified = VerifiedModel(
        artifact,
        built.batch,
        built.labels,
        partial(first_golden_inputs, built.golden_dir),
        {step.model: neighbor_at(session.private_repository / step.model) for step in steps},
    )
    options = RenderOptions(target_of(spec.release), spec.templates, spec.root, spec.gpu, spec.ignored_rules)
    if spec.templates is None:
        return configure(name, spec.models[name], verified, options)
    renderer = partial(render_template, session.private_directory / "work" / name, session.cancelled)
    return configure(name, spec.models[name], verified, options, renderer)


def _pack(session: BuildSession, run: ModelRun) -> PackedPackages | None:
    """Return the packages to publish with Python code; None if the spec does not request it."""
    source = session.spec.models[run.name].source
    if not isinstance(source, PythonSource) or not source.pack:
        return None
    pythons = pythons_to_pack(source.pack_for, target_of(session.spec.release))
    packages = run.step("pack", pack, source.requirements, pythons, session.private_directory / "packed" / run.name)
    run.record(Notes((packages.note,)))
    return packages


def _stage(
    session: BuildSession,
    config: ModelConfig,
    built: BuiltModel,
    inputs: Mapping[str, str],
    packages: PackedPackages | None,
) -> StagedVersion:
    """Write the version to the private repository."""
    origin = provenance(session.spec, inputs, built)
    artifact = built.artifact
    if isinstance(artifact, PythonArtifact) and packages is not None:
        artifact = replace(artifact, packed=packages.directory)
    staged = stage_version(
        *(session.staging, session.repository, config, artifact, built.golden_dir, origin),
        companions=built.companions,
    )
    attest(staged, session.spec.root, session.started, session.options.signing_key)
    # also without a smoke test
    require_admitted(staged.model_dir, config.text, session.repository / staged.name)
    return staged


def _notes(session: BuildSession, staged: StagedVersion) -> Iterator[str]:
    """Yield a note for each ensemble in the repository that uses the model and is not built again by this build.

    While `repogen rollback` holds a version, the new one is not served: that is the only note.

    Raises:
        PublishError: An ensemble would no longer load.
    """
    held = hold_of(session.repository / staged.name)
    if held is not None:  # the end of the hold tests the ensembles
        yield f"the new version is not served: {hold_note(held)}"
        return
    for ensemble, reason in unfit_users(session.repository, staged, session.plan.pending).items():
        if reason and not session.options.allow_breaking:
            raise PublishError(
                f"{ensemble}, an ensemble in the repository, would no longer load: {reason}",
                f"build {ensemble} together with it, or use --allow-breaking: {ensemble} then fails to load until it "
                "is built again",
                code="publish.ensemble",
            )
        yield f"{ensemble} uses it and was not built again" + (f": it no longer loads ({reason})" if reason else "")
