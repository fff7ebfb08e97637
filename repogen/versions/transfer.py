"""``repogen publish``: the same verified bytes from one repository to another, an ensemble with its steps.

The source is not trusted: every byte is compared with the manifest while it is copied into the target's staging
directory. From there it is published as by a build: under the next version number, by renames, after the same checks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.transfer import TransferredVersion, TransferReport
from repogen.attestation.signature import (
    SIGNATURE_CODE,
    require_signature,
    require_signed_directory,
    require_signed_model,
)
from repogen.deploy.plan import no_fetch
from repogen.errors import PublishError, SpecError
from repogen.files import is_directory, reason
from repogen.files.resolve import resolved
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.ensembles import unfit, unfit_users
from repogen.repository.hold import hold_of
from repogen.repository.inventory import read_model, require_models
from repogen.repository.layout import model_dir, models_of, require_own_directories
from repogen.repository.manifest import damaged_files
from repogen.repository.ownership import require_built
from repogen.repository.publish import publish, require_publishable
from repogen.repository.transfer import stage_copy
from repogen.repository.workspace import prepare_stage_root, private_repository, sweep
from repogen.serving.admission import foreign_backend, read_refusals, refusals
from repogen.triton_config.text.parse import parse, parse_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.attestation import TrustedSigner
    from repogen.artifacts.inventory import VersionRecord
    from repogen.artifacts.transfer import TransferOptions
    from repogen.artifacts.versions import Manifest, StagedVersion
    from repogen.deploy.plan import Fetch
    from repogen.repository.publish import Publish


@dataclass(frozen=True)
class _Selected:
    """A version to publish, and the version of the target that has the same files."""

    record: VersionRecord
    manifest: Manifest
    existing: int | None


def transfer(
    source: Path,
    target: Path,
    name: str | None,
    options: TransferOptions,
    publish: Publish = publish,
    fetch: Fetch = no_fetch,
) -> TransferReport:
    """Publish a version of one repository into another, or the newest served version of each model.

    Args:
        source: The repository that has the version.
        target: The repository to publish to; created if it does not exist.
        name: The model; None for all.
        options: Which version, and how.
        publish: Publishes each version; replaced for a target in a store, and in crash tests.
        fetch: Downloads versions of a target in a store.

    Returns:
        The published versions; those that the target has are not published again.

    Raises:
        SpecError: The source, the model or the version does not exist, or source and target are the same.
        PublishError: A version was rejected or cannot be written. Steps of an ensemble that were published before stay.
    """
    source, target = resolved(source), resolved(target)
    if source == target:
        raise same_repository(source)
    try:
        return _transfer(source, target, name, options, publish, fetch)
    except OSError as error:
        raise PublishError(
            f"{name or 'the repository'} cannot be copied from {source} to {target}: {reason(error)}",
            "free disk space or fix the permissions, and run the command again",
            code="publish.copy",
        ) from error


def same_repository(repository: Path) -> SpecError:
    """Return the error that source and target are the same repository."""
    return SpecError(
        f"{repository} is both the source and the target",
        "to serve an older version of a repository again, use `repogen rollback`",
        code="publish.same-repository",
    )


def to_publish(source: Path, name: str | None, version: int | None) -> list[Path]:
    """Return the directories of the versions that ``transfer`` would copy, if the target had none of them."""
    nothing = source / "none" / "none"  # below a directory that can't be a model with files
    with work_limit(str(source), COMMAND_SECONDS):
        return [selected.record.path for selected in _selection(source, nothing, name, version)]


def _transfer(
    source: Path, target: Path, name: str | None, options: TransferOptions, publish: Publish, fetch: Fetch
) -> TransferReport:
    with work_limit(str(source), COMMAND_SECONDS):
        selection = _selection(source, target, name, options.version)
    selection = [_confirmed(selected, target, options.signer, fetch) for selected in selection]
    require_built(target)
    if not options.dry_run:
        sweep(target, options.stage_dir)
    pending = [selected for selected in selection if selected.existing is None]
    with work_limit(str(target), COMMAND_SECONDS):
        for selected in pending:
            require_publishable(model_dir(target, selected.record.model))
    published = _publish_pending(pending, target, options, publish) if pending else {}
    rows = (_row(selected, target, published.get(selected.record.model)) for selected in selection)
    return TransferReport(source, target, options.dry_run, tuple(rows))


def _publish_pending(
    pending: Sequence[_Selected], target: Path, options: TransferOptions, publish: Publish
) -> dict[str, int]:
    """Copy versions, check them together, and publish them in order; return the number of each model's version."""
    numbers = {}
    with prepare_stage_root(target, options.stage_dir) as root:
        scratch = private_repository(root)
        with work_limit("the versions", COMMAND_SECONDS):
            staged = [stage_copy(scratch, target, each.record.model, each.record.path) for each in pending]
            for version, selected in zip(staged, pending, strict=True):
                require_signature(version.version_dir, version.name, options.signer, selected.record.version)
                require_signed_directory(model_dir(target, version.name), options.signer)
            _require_loadable(staged, target, allow_breaking=options.allow_breaking)
        for version in staged:
            number = version.version
            if not options.dry_run:
                number = publish(version, target, breaking=options.allow_breaking).version
            numbers[version.name] = number
    return numbers


def _row(selected: _Selected, target: Path, published: int | None) -> TransferredVersion:
    record = selected.record
    return TransferredVersion(
        record.model,
        record.version,
        (selected.existing or 0) if published is None else published,
        published is not None,
        record.size,
        hold_of(target / record.model),
    )


def _selection(source: Path, target: Path, name: str | None, version: int | None) -> list[_Selected]:
    """Return the version, or those of all models, after the versions of the models that its steps name.

    Raises:
        SpecError: A model or version does not exist in the source.
        PublishError: repogen did not build a version.
        ConfigError: The config of a version can't be parsed.
    """
    selection: dict[str, _Selected] = {}
    queue: list[tuple[str, int | None]] = [(name, version)] if name is not None else _served_models(source)
    while queue:
        model, number = queue.pop()
        selected = _select(source, target, model, number)
        if model in selection and selection[model].record != selected.record:
            raise PublishError(
                f"versions {selection[model].record.version} and {selected.record.version} of {model} are needed"
                f"{'' if name is None else f' by steps of {name}'}, and only one of them can be published at a time",
                "publish the versions one after another, in the order of their numbers",
                code="publish.step-versions",
            )
        is_new = model not in selection
        selection[model] = selected
        if is_new:
            queue += _steps(selected.record)
    return _steps_first(selection)


def _served_models(source: Path) -> list[tuple[str, int | None]]:
    require_models(source, ())
    return [(name, None) for name in models_of(source)]


def _steps_first(selection: dict[str, _Selected]) -> list[_Selected]:
    """Return the versions in an order in which every ensemble comes after its steps.

    Raises:
        PublishError: An ensemble is a step of itself.
    """
    steps = {model: {step for step, _ in _steps(selected.record)} for model, selected in selection.items()}
    order: list[_Selected] = []
    while steps:
        ready = sorted(model for model, needed in steps.items() if not needed & steps.keys())
        if not ready:
            raise PublishError(f"the steps of {', '.join(sorted(steps))} form a cycle", code="publish.step-cycle")
        order += [selection[model] for model in ready]
        for model in ready:
            del steps[model]
    return order


def _steps(record: VersionRecord) -> list[tuple[str, int | None]]:
    """Return model and version of the steps of an ensemble; the version is None for the one that is served."""
    config = parse_file(record.path / CONFIG_FILE, f"{record.model}/{record.version}/{CONFIG_FILE}")
    steps = config.ensemble_scheduling.step
    return [(step.model_name, step.model_version if step.model_version >= 0 else None) for step in steps]


def _select(source: Path, target: Path, name: str, version: int | None) -> _Selected:
    require_models(source, (name,))
    model = read_model(source, name)
    number = model.newest_served if version is None else version
    record = None if number is None else model.find(number)
    if record is None:
        existing = ", ".join(str(each.version) for each in model.versions) or "none"
        problem = f"no version {version}" if version is not None else f"no version that is served: {model.problem}"
        raise SpecError(
            f"{name} in {source} has {problem}", f"its versions are {existing}", code="repository.no-such-version"
        )
    record = replace(record, path=resolved(record.path))
    if record.manifest is None:
        raise PublishError(
            f"{name} version {record.version} cannot be published: {record.problem}",
            "build the model with repogen: only verified versions are published",
            code="publish.unverified",
        )
    return _Selected(record, record.manifest, _existing(target, name, record.manifest))


def _existing(target: Path, name: str, manifest: Manifest) -> int | None:
    """Return the version of the target with the same files that is served, or is the newest under a hold."""
    model = read_model(target, name)
    newest = model.versions[:1] if model.held is not None else ()
    same = [
        version.version
        for version in (*newest, *(version for version in model.versions if version.served))
        if version.manifest is not None and version.manifest.content_sha256 == manifest.content_sha256
    ]
    return next(iter(same), None)


def _confirmed(selected: _Selected, target: Path, signer: TrustedSigner | None, fetch: Fetch) -> _Selected:
    """Return the selection without the target's version if that one is damaged, or not signed as required.

    Raises:
        PublishError: Another user could replace the target's version.
    """
    name, number = selected.record.model, selected.existing
    if number is None:
        return selected
    model = model_dir(target, name)
    require_own_directories(model)
    if damaged_files(model / str(number), selected.manifest):
        return replace(selected, existing=None)
    if signer is not None:
        fetch(name, (number,), whole=True)
        try:
            require_signed_model(model, (number,), signer)
        except PublishError as error:
            if error.code != SIGNATURE_CODE:
                raise
            return replace(selected, existing=None)
    return selected


def _require_loadable(staged: Sequence[StagedVersion], target: Path, *, allow_breaking: bool) -> None:
    """Require that Triton may load the versions, and can load the ensembles that use them.

    Raises:
        PublishError: It may or could not.
    """
    served = [version for version in staged if hold_of(target / version.name) is None]
    names = [version.name for version in staged]
    for version in staged:
        published = model_dir(target, version.name)
        config = parse(version.config.text, f"config.pbtxt of {version.name}")
        existing = refusals(published, config) if is_directory(published) else ()
        if reasons := (*read_refusals(version.model_dir), *foreign_backend(version.model_dir, config), *existing):
            raise PublishError(
                f"{version.name} would run code, or read files outside of its directory: {'; '.join(reasons)}",
                "if you trust the version, copy it by hand",
                code="publish.refused",
            )
        problems = {version.name: unfit(version.config.text, version.name, target, served)}
        problems |= unfit_users(target, version, names)
        for ensemble, problem in problems.items():
            if problem and not allow_breaking:
                raise PublishError(
                    f"{ensemble} would not load in {target}: {problem}",
                    f"publish {ensemble} with its steps as well, or use --allow-breaking",
                    code="publish.ensemble",
                )
