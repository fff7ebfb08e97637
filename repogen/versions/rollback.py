"""``repogen rollback``: a repository serves an older version again, with its own config.pbtxt, until that is released.

The change is one rename of config.pbtxt, see ``repogen.repository.hold``. Files that it names are moved in before; they
are named by their content, and have no effect until a config names them. Nothing is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.rollback import RollbackOutcome, RollbackReport
from repogen.artifacts.versions import ModelConfig, StagedVersion
from repogen.errors import PublishError, SpecError
from repogen.files import reason
from repogen.files.resolve import resolved
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.compatibility import differences, require_servable
from repogen.repository.ensembles import steps_of, unfit, unfit_users
from repogen.repository.filesystem import Disk
from repogen.repository.hold import hold_text
from repogen.repository.inventory import read_model, require_models
from repogen.repository.layout import config_bytes, model_dir
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files, damaged_named_files, read_manifest
from repogen.repository.own_config import UnservableError, config_serving, stage_config
from repogen.repository.ownership import RepositoryKind, read_owner
from repogen.repository.publish import require_plain_directory
from repogen.repository.recovery import finish_interrupted_publish, recover
from repogen.repository.transaction import Transaction
from repogen.repository.version_policy import served_versions, serving_only
from repogen.repository.workspace import prepare_stage_root, private_repository, sweep
from repogen.repository.written_config import origin_of_config
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.inventory import ModelRecord
    from repogen.artifacts.rollback import RollbackOptions
    from repogen.artifacts.versions import Manifest
    from repogen.repository.filesystem import Filesystem


def roll_back(
    repository: Path, name: str, options: RollbackOptions, filesystem: Filesystem | None = None
) -> RollbackReport:
    """Hold a version of a model, or end the hold.

    Args:
        repository: A repository that repogen built or synced.
        name: The model.
        options: Which version, and how.
        filesystem: Replaces the disk in crash tests.

    Returns:
        What was served before and is served now.

    Raises:
        SpecError: The repository, the model or the version does not exist.
        PublishError: The change was rejected or failed, and the repository is unchanged.
    """
    repository = resolved(repository)
    require_models(repository, (name,))
    try:
        return _roll_back(repository, name, options, filesystem or Disk())
    except OSError as error:
        raise PublishError(
            f"{name}: the change cannot be written: {reason(error)}",
            "the repository is unchanged; free disk space or fix the permissions there, and run the command again",
            code="rollback.write",
        ) from error


def _roll_back(repository: Path, name: str, options: RollbackOptions, filesystem: Filesystem) -> RollbackReport:
    model = model_dir(repository, name)
    require_plain_directory(model)
    if not options.dry_run:
        sweep(repository, options.stage_dir)
        recover(repository, name)
    with work_limit(str(repository), COMMAND_SECONDS):
        record = read_model(repository, name)
        if any(version.manifest is not None for version in record.versions):  # otherwise there is nothing to go back to
            _require_unedited(model)
        target = _released(repository, record) if options.release else _target(record, options.to)
        if target is None:  # nothing is held
            return RollbackReport(
                repository, name, RollbackOutcome.UNCHANGED, record.served, record.served, None, options.dry_run
            )
        staged = _staged(repository, record, target, release=options.release)
        report = _report(repository, record, staged, options)
    if report.outcome is RollbackOutcome.UNCHANGED or options.dry_run:
        return report
    with prepare_stage_root(repository, options.stage_dir) as root:
        staged = replace(staged, repository=private_repository(root))
        try:
            stage_config(staged, model / str(target))
        except FileNotFoundError as error:  # a prune deleted the version
            raise _changed_meanwhile(name) from error
        with locked(repository, 60.0):
            _require_unchanged(record, staged)
            _apply(staged, model, filesystem)
    return report


def _apply(staged: StagedVersion, model: Path, filesystem: Filesystem) -> None:
    with Transaction(staged, model, staged.version, filesystem) as transaction:
        transaction.move_named_files()
        transaction.move_config()


def _target(record: ModelRecord, to: int | None) -> int:
    """Return the version to hold.

    Raises:
        SpecError: The version does not exist.
        PublishError: There is no earlier version that repogen built.
    """
    current = record.newest_served
    built = [version.version for version in record.versions if version.manifest is not None]
    if to is None:
        number = next((version for version in built if version < (current or 0)), None)
        if number is None:
            others = ", ".join(str(version) for version in built if version != current)
            raise PublishError(
                f"{record.name} has no version below {current or 'the one that is served'} that repogen built",
                f"choose one with --to: {others}" if others else "repogen built no other version of it",
                code="rollback.no-earlier",
            )
        return number
    version = record.find(to)
    if version is None:
        raise SpecError(
            f"{record.name} has no version {to}",
            f"choose one that repogen built: {', '.join(map(str, built)) or 'it has none'}",
            code="repository.no-such-version",
        )
    return to


def _released(repository: Path, record: ModelRecord) -> int | None:
    """Return the version whose config.pbtxt ends the hold; None without a hold.

    A synced repository serves the held version until the next sync; a built one serves what the newest version's own
    policy names.
    """
    if record.held is None:
        return None
    owner = read_owner(repository)
    synced = owner is not None and owner.kind is RepositoryKind.SYNCED
    return record.held if synced else max((version.version for version in record.versions), default=record.held)


def _staged(repository: Path, record: ModelRecord, target: int, *, release: bool) -> StagedVersion:
    """Return the change, after the version's files were verified; nothing is written.

    Raises:
        PublishError: The version is damaged, or Triton would not serve it.
    """
    version = record.find(target)
    if version is None or version.manifest is None or version.manifest.model != record.name:
        problem = "it does not exist" if version is None else version.problem or "its manifest is of another model"
        raise PublishError(
            f"{record.name}: version {target} cannot be served: {problem}",
            "choose another version with --to; `repogen versions` lists them",
            code="rollback.unusable-version",
        )
    manifest = version.manifest
    if damaged := damaged_files(version.path, manifest):
        raise PublishError(
            f"{record.name}: version {target} is damaged: {'; '.join(damaged)}",
            f"restore {version.path}, or choose another version with --to",
            code="rollback.damaged-version",
        )
    owner = read_owner(repository)
    synced = owner is not None and owner.kind is RepositoryKind.SYNCED
    try:
        if release and not synced:
            text = (config_bytes(version.path) or b"").decode()
            parse(text, f"config.pbtxt of {record.name} version {target}")
        else:
            text = config_serving(version.path, manifest, serving_only if release else hold_text)
    except (UnservableError, UnicodeDecodeError, OSError) as error:
        raise PublishError(
            f"{record.name}: version {target} has a config.pbtxt that Triton would not serve: {error}",
            "choose another version with --to",
            code="rollback.config",
        ) from error
    config = ModelConfig(record.name, text, manifest.max_batch_size, manifest.signature)
    staged = StagedVersion(record.name, repository, target, config, manifest)
    require_servable(record.path, target, staged)
    return staged


def _report(repository: Path, record: ModelRecord, staged: StagedVersion, options: RollbackOptions) -> RollbackReport:
    """Return what the change does.

    Raises:
        PublishError: An ensemble would no longer load.
    """
    config = parse(staged.config.text, f"config.pbtxt of {record.name}")
    after = served_versions(config, [version.version for version in record.versions])
    done = staged.config.text.encode() == config_bytes(record.path) and not damaged_named_files(
        record.path, staged.manifest.files
    )
    outcome = RollbackOutcome.RELEASED if options.release else RollbackOutcome.HELD
    notes = [] if done else list(_notes(repository, record, staged, allow_breaking=options.allow_breaking))
    return RollbackReport(
        repository,
        record.name,
        RollbackOutcome.UNCHANGED if done else outcome,
        record.served,
        after,
        None if options.release else staged.version,
        options.dry_run,
        tuple(notes),
    )


def _notes(repository: Path, record: ModelRecord, staged: StagedVersion, *, allow_breaking: bool) -> Iterator[str]:
    """Yield what changes for clients and ensembles.

    Raises:
        PublishError: An ensemble would no longer load.
    """
    current = _served_manifest(repository, record.name)
    if current is not None:
        yield from (
            f"changed for clients: {line}" for line in differences(current.signature, staged.manifest.signature)
        )
    problems = {record.name: unfit(staged.config.text, record.name, repository)}
    users = unfit_users(repository, staged, ())
    for ensemble, problem in ((name, text) for name, text in {**problems, **users}.items() if text):
        if not allow_breaking:
            raise PublishError(
                f"{ensemble} would not load with version {staged.version} of {record.name}: {problem}",
                "also roll back the other models of the ensemble, or use --allow-breaking: it then fails to load until "
                "they match",
                code="rollback.ensemble",
            )
        yield f"{ensemble} no longer loads: {problem}"
    steps = steps_of(staged.config.text, record.name)
    pairs: list[tuple[str, Manifest | None, str, Manifest | None]]
    pairs = [(ensemble, _served_manifest(repository, ensemble), record.name, staged.manifest) for ensemble in users]
    pairs += [(record.name, staged.manifest, step, _served_manifest(repository, step)) for step in steps]
    for ensemble, built, step, served in pairs:
        if built is not None and served is not None and not _was_verified_with(built, step, served):
            yield (
                f"ensemble {ensemble} was verified with another version of {step}; to test it with the version that is "
                f"served, run `repogen smoke REPOSITORY --model {ensemble}`"
            )


def _was_verified_with(ensemble: Manifest, step: str, served: Manifest) -> bool:
    """Return whether an ensemble was built with a version of a step, as its fingerprint states."""
    return ensemble.provenance.steps.get(step) in {None, served.content_sha256}


def _served_manifest(repository: Path, name: str) -> Manifest | None:
    record = read_model(repository, name)
    version = record.find(record.newest_served or 0)
    return None if version is None else version.manifest


def _require_unedited(model: Path) -> None:
    """Require a config.pbtxt that repogen wrote: the change replaces it.

    Raises:
        PublishError: A user edited it.
    """
    if config_bytes(model) is not None and origin_of_config(model) is None:
        raise PublishError(
            f"{model / CONFIG_FILE} was edited after repogen wrote it, and the change would undo the edit",
            f"keep a copy, and restore the file of a version: cp {model}/N/{CONFIG_FILE} {model}/{CONFIG_FILE}",
            code="rollback.edited-config",
        )


def _require_unchanged(record: ModelRecord, staged: StagedVersion) -> None:
    """Require the model as it was when the change was prepared; the caller holds the lock.

    Raises:
        PublishError: Another command changed it in the meantime.
    """
    finish_interrupted_publish(record.path, Disk())
    now = read_model(record.path.parent, record.name)
    if now != record or read_manifest(record.path / str(staged.version)) != staged.manifest:
        raise _changed_meanwhile(record.name)


def _changed_meanwhile(name: str) -> PublishError:
    return PublishError(
        f"{name}: another command changed the model in the meantime",
        "run the command again",
        code="rollback.changed-meanwhile",
    )
