"""Plans the changes of one model, read-only: for a dry run, and again while holding the lock."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState, RegistryEntry
from repogen.artifacts.sync import DesiredVersion, SyncAction, SyncedVersion, SyncOptions
from repogen.errors import PublishError, RepogenError
from repogen.repository.hold import hold_note, hold_of
from repogen.repository.inventory import read_model
from repogen.repository.layout import archive_dir, model_dir
from repogen.repository.mirror import LocalModel, inspect_model, is_from_registry, served_from
from repogen.repository.retention import pinned_versions, reasons_to_keep

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Step:
    """One change of a model.

    Attributes:
        result: The row of the report.
        local: State of the model, for the version to serve.
        path: The directory to archive or delete.
    """

    result: SyncedVersion
    local: LocalModel | None = None
    path: Path | None = None


def plan(
    repository: Path,
    options: SyncOptions,
    name: str,
    entry: RegistryEntry | None,
    entries: Sequence[RegistryEntry] = (),
) -> list[Step]:
    """Return the plan of a model, the version that the alias points to first.

    Args:
        repository: The synced repository, which need not exist.
        options: Flags.
        name: The model.
        entry: The version that the alias points to; None if the model does not have the alias.
        entries: Every version in the registry, to prune; those with another alias are kept.

    Raises:
        PublishError: The repository contains files that repogen does not manage.
        OSError: It can't be read.
    """
    held = hold_of(model_dir(repository, name))
    if held is not None:
        return [Step(SyncedVersion(name, SyncAction.IGNORED, None, f"not changed: {hold_note(held)}", held=True))]
    if entry is None:
        return _plan_without_alias(repository, options, name)
    if entry.state is EntryState.PENDING:
        note = "not changed: this version is pending; run `repogen build` again to publish it"
        return [Step(SyncedVersion(name, SyncAction.IGNORED, entry.version, note))]
    desired = desired_version(entry)
    local = inspect_model(repository, desired)
    action = SyncAction.KEPT if local.up_to_date else SyncAction.PUBLISHED
    steps = [Step(SyncedVersion(name, action, entry.version, _reason(repository, desired, local)), local)]
    return steps + (_plan_prune(repository, options, desired, local, entries) if options.prune else [])


def desired_version(entry: RegistryEntry) -> DesiredVersion:
    """Return the version that a repository should serve for an entry."""
    return DesiredVersion(entry.name, entry.version, entry.content)


def failed(name: str, entry: RegistryEntry | None, error: RepogenError | OSError) -> SyncedVersion:
    """Return the report's row of a model that could not be synced."""
    if isinstance(error, OSError):
        error = PublishError(
            f"{name}: {error.strerror or error} ({error.filename})",
            "the model is unchanged; free disk space or fix the permissions there, and sync again",
            code="sync.write",
        )
    return SyncedVersion(name, SyncAction.FAILED, None if entry is None else entry.version, error=error.record)


def _plan_without_alias(repository: Path, options: SyncOptions, name: str) -> list[Step]:
    model, archived = model_dir(repository, name), archive_dir(repository) / name
    steps = []
    if model.is_dir():
        if not is_from_registry(model):
            note = "not changed: it did not come from the registry"
            return [Step(SyncedVersion(name, SyncAction.IGNORED, None, note))]
        action = SyncAction.PRUNED if options.prune else SyncAction.UNSERVED
        note = f"lost {options.alias}" + ("" if options.prune else f"; kept in {archived.parent.name}")
        version = max(served_from(model), default=None)
        steps = [Step(SyncedVersion(name, action, version, note), path=model)]
    if options.prune and archived.is_dir():
        steps.append(_prune_archived(name, archived, options))
    return steps


def _prune_archived(name: str, path: Path, options: SyncOptions) -> Step:
    note = f"was not served; {'would be deleted' if options.dry_run else 'deleted'} from {path.parent.name}"
    result = SyncedVersion(name, SyncAction.PRUNED, max(served_from(path), default=None), note)
    return Step(result, path=Path(os.path.realpath(path.parent), path.name))  # the archive may be a link


def _plan_prune(
    repository: Path,
    options: SyncOptions,
    desired: DesiredVersion,
    local: LocalModel,
    entries: Sequence[RegistryEntry],
) -> list[Step]:
    """Plan the deletions that follow once the desired version is served, by the paths that are valid then."""
    model, archived = repository / desired.name, archive_dir(repository) / desired.name
    steps = []
    if local.directory is not None:
        aliases = {entry.version: entry.aliases for entry in entries}
        record = read_model(local.directory.parent, desired.name)
        record = replace(
            record,
            versions=tuple(replace(version, aliases=aliases.get(version.version, ())) for version in record.versions),
        )
        required_versions = {desired.version, *reasons_to_keep(record, pinned_versions(repository), desired.version)}
        numbers = sorted(version.version for version in record.versions if version.version not in required_versions)
        results = (SyncedVersion(desired.name, SyncAction.PRUNED, number) for number in numbers)
        steps = [Step(result, path=model / str(result.version)) for result in results]
    if archived.is_dir() and local.directory != archived:
        steps.append(_prune_archived(desired.name, archived, options))
    return steps


def _reason(repository: Path, desired: DesiredVersion, local: LocalModel) -> str:
    """Return why a version is published; empty if it is up to date."""
    others = sorted(local.served - {desired.version})
    if local.up_to_date:
        return ""
    if local.directory is None:
        return "new"
    if not local.visible:
        return f"restored from {archive_dir(repository).name}"
    if others:
        return f"replaces version {', '.join(map(str, others))}"
    return "config.pbtxt differed" if local.intact else "its files differed"
