"""Builds the models of a spec: decides what to build, and imports the code that builds only if something must be built.

The steps of one model are in ``repogen.build.steps``:

    preflight -> [worker: source -> export -> optimize -> validate] -> configure -> stage -> smoke
        -> track: logged and registered as pending -> publish -> track: confirmed
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import SIGNATURE_FILE
from repogen.artifacts.report import BuildReport, ModelReport
from repogen.build.dependencies import ensemble_dependencies, with_ensembles
from repogen.build.incremental import (
    compare_models,
    recover_interrupted_publishes,
    remove_leftovers,
    unconfirmed_versions,
)
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.build.shards import select_shard
from repogen.errors import RepogenError, SpecError
from repogen.files import is_directory
from repogen.registry.mlflow.uri import REGISTRY_URI, TRACKING_URI, redact_uri, sqlite_file, tracking_of
from repogen.repository.layout import model_dir
from repogen.repository.ownership import require_built
from repogen.spec.paths import check_repository
from repogen.spec.problems import suggestion
from repogen.spec.sources import MlflowSource
from repogen.stores.selection import served
from repogen.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.tracking import Tracking
    from repogen.spec.models import Spec

__all__ = ["BuildOptions", "build"]

_FORCED = ("--force was given",)


def build(spec: Spec, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build the selected models of a spec; a model that fails does not stop the others.

    Args:
        spec: The spec.
        options: What to build, and how.
        progress: Receives the steps of each model.

    Returns:
        One report per selected model, in the spec's order. Failures of single models are in their reports.

    Raises:
        RepogenError: No model can be built: a model name is unknown, the signing key cannot be read, the repository
            cannot be written, or a server is not available.
        KeyboardInterrupt: The build was interrupted; nothing is half-written.
    """
    if options.signing_key is not None:
        from repogen.attestation.signature import require_key  # noqa: PLC0415 - few builds sign

        require_key(options.signing_key)
    plan = plan_build(spec, options)
    if not plan.pending:
        _require_known(spec, options, progress)
    else:
        from repogen.build.preconditions import check_preconditions  # noqa: PLC0415 - parses configs

        plan = check_preconditions(plan)
        if options.store is not None:
            options.store.fetch(_steps_in_store(plan))
    if not plan.has_work:
        return BuildReport(plan.repository, tuple(plan.reports[name] for name in plan.names), notes=plan.notes)
    # Imports the code that runs workers, Triton and MLflow; an unchanged build does not need it.
    from repogen.build.run import run_plan  # noqa: PLC0415

    return run_plan(plan, progress)


def _require_known(spec: Spec, options: BuildOptions, progress: Progress) -> None:
    """Require the executor and the server of a build that needs neither: an unknown name is a mistake in any case.

    Raises:
        SpecError: The executor or the server is unknown, or the server's options are wrong.
    """
    if options.executor != BuildOptions.executor:
        from repogen.executors.select import find_executor  # noqa: PLC0415 - as for the server

        find_executor(options.executor)
    if options.server not in {None, BuildOptions.server}:
        from repogen.serving.servers import find_server  # noqa: PLC0415 - imports what runs Triton

        find_server(options.server, target_of(spec.release), progress)


def plan_build(spec: Spec, options: BuildOptions, *, writes: bool = True) -> BuildPlan:
    """Return which of the selected models must be built, after publishes that were interrupted are recovered.

    Args:
        spec: The spec.
        options: What to build, and how.
        writes: Whether interrupted publishes are recovered, except in a dry run.

    Raises:
        RepogenError: A model name is unknown, the repository cannot be used, or MLflow is not configured.
    """
    names = _select_names(spec, options.models)
    _select_names(spec, options.adopt)
    if options.shard is not None:
        names = select_shard(spec.models, names, options.shard, options.costs)
    repository = _repository(spec, options)
    require_built(repository)
    if writes and not options.dry_run:
        recover_interrupted_publishes(names, repository)
        remove_leftovers(repository, options.stage_dir)
    spec = _with_pinned_sources(spec, options, names)
    tracking = _tracking(spec, options)
    compared: Mapping[str, ModelReport | tuple[str, ...]] = dict.fromkeys(names, _FORCED)
    if not options.force:
        registered = tracking is not None and tracking.register
        compared = compare_models(spec, names, repository, registered=registered)
    current = {
        name: _with_signing_note(report, repository, options)
        for name, report in compared.items()
        if isinstance(report, ModelReport)
    }
    reasons = {name: reason for name, reason in compared.items() if not isinstance(reason, ModelReport)}
    pending_names = with_ensembles(spec, names, reasons)
    return BuildPlan(
        spec,
        options,
        repository,
        names=tuple(names),
        pending=tuple(pending_names),
        up_to_date={name: report for name, report in current.items() if name not in pending_names},
        tracking=tracking,
        unconfirmed=() if tracking is None else unconfirmed_versions(names, repository),
        reasons={name: reasons.get(name) or _steps_are_built(spec, name, reasons) for name in pending_names},
    )


def _with_signing_note(report: ModelReport, repository: Path, options: BuildOptions) -> ModelReport:
    """Return the report of an unchanged version, with a note if it is not signed although there is a key."""
    name, version, key = report.name, report.version, options.signing_key
    if key is None or os.path.lexists(model_dir(repository, name) / str(version) / SIGNATURE_FILE):
        return report
    option = "--sign-keyless" if key.private_key is None else "--sign-key FILE"
    command = f"repogen sign {name}@{version} {option} --repository {options.place(repository)}"
    return replace(report, notes=(*report.notes, f"version {version} is not signed: `{command}` signs it"))


def _steps_are_built(spec: Spec, name: str, changed: Collection[str]) -> tuple[str, ...]:
    """Return why an ensemble is built that is up to date itself."""
    steps = (step for step in ensemble_dependencies(spec.models, name) if step in changed)
    return tuple(f"its step {step} is built" for step in steps)


def _steps_in_store(plan: BuildPlan) -> list[Path]:
    """Return the published steps of ensembles that are built: the smoke test loads them."""
    steps = {step for name in plan.pending for step in ensemble_dependencies(plan.spec.models, name)}
    published = sorted(step for step in steps - {*plan.pending} if is_directory(model_dir(plan.repository, step)))
    return list(served(plan.repository, published)) if published else []


def _select_names(spec: Spec, selection: tuple[str, ...]) -> list[str]:
    unknown = [name for name in selection if name not in spec.models]
    if unknown:
        raise SpecError(
            f"{spec.path.name} has no model {', '.join(map(repr, unknown))}",
            suggestion(unknown, list(spec.models), f"its models are {', '.join(spec.models)}"),
            code="spec.no-such-model",
        )
    return [name for name in spec.models if not selection or name in selection]


def _repository(spec: Spec, options: BuildOptions) -> Path:
    """Return where to publish; ``--repository`` is checked by the rules for the spec's ``repository``."""
    if options.repository is None:
        return spec.repository
    problem = next(check_repository(os.path.realpath(options.repository), None, spec.root), None)
    if problem is not None:
        raise SpecError(f"--repository {options.repository} {problem.what}", problem.hint, code="spec.repository")
    return options.repository


def _tracking(spec: Spec, options: BuildOptions) -> Tracking | None:
    """Return where to track; None if tracking is off or not configured, or if nothing will be published."""
    is_configured = spec.mlflow is not None or options.tracking_uri is not None or os.environ.get(TRACKING_URI)
    if not options.track or options.dry_run or not is_configured:
        return None
    return tracking_of(spec, options.tracking_uri, spec.root)


def _registry_of(tracking: Tracking, root: Path) -> str:
    """Return the URIs of a server and a registry; a database in the spec's directory by its relative path."""
    database = sqlite_file(tracking.uri)
    if database is not None and Path(database).is_relative_to(root):
        server = f"sqlite:///{Path(database).relative_to(root)}"
    else:
        server = redact_uri(tracking.uri)
    return f"{server} {redact_uri(os.environ.get(REGISTRY_URI, ''))}"


def _with_pinned_sources(spec: Spec, options: BuildOptions, names: list[str]) -> Spec:
    """Return the spec with aliases of MLflow models replaced by the versions that they point to, and with their server.

    The build then depends on the version, so an alias that moved counts as a change, and so does another server, which
    may have another model of this name. If MLflow cannot be reached, the alias stays; the model then counts as changed
    and fails with the reason when its files are downloaded.
    """
    models, registry = dict(spec.models), ""
    for name in names:
        source = models[name].source
        if isinstance(source, MlflowSource):
            from repogen.registry.mlflow.access import pin_model  # noqa: PLC0415 - sources of kind mlflow only

            with suppress(RepogenError):
                tracking = tracking_of(spec, options.tracking_uri, spec.root)
                registry = _registry_of(tracking, spec.root)
                uri = pin_model(tracking, source.uri)
                models[name] = models[name].model_copy(update={"source": source.model_copy(update={"uri": uri})})
    return replace(spec, models=models, registry=registry)
