"""What there is to do with a model: decided by looking only, so it serves a dry run, and again under the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState, RegistryEntry
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncOptions, Wanted
from repogen.errors import PublishError, RepogenError
from repogen.repository.layout import model_dir, unserved_dir
from repogen.repository.mirror import LocalModel, is_from_registry, look, served_versions, stale_versions

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One thing to do with a model: ``local`` is what there is of what to serve, ``path`` what to delete."""

    done: SyncedVersion
    local: LocalModel | None = None
    path: Path | None = None


def planned(repository: Path, options: SyncOptions, name: str, entry: RegistryEntry | None) -> list[Step]:
    """Return what there is to do with a model, or why that can't be said."""
    try:
        return plan(repository, options, name, entry)
    except (RepogenError, OSError) as error:
        return [Step(failed(name, entry, error))]


def plan(repository: Path, options: SyncOptions, name: str, entry: RegistryEntry | None) -> list[Step]:
    """Return what there is to do with a model, the version that the alias points to first.

    Args:
        repository: The synced repository, which need not exist.
        options: Flags.
        name: The model.
        entry: What the alias points to; None when the model does not have it.

    Raises:
        PublishError: Something lies there that is not for repogen to touch.
        OSError: It can't be read.
    """
    if entry is None:
        return _plan_without_alias(repository, options, name)
    if entry.state is EntryState.PENDING:
        note = "left as it is: its build did not publish it; build it again to complete it"
        return [Step(SyncedVersion(name, SyncAction.IGNORED, entry.version, note))]
    wanted = wanted_of(entry)
    local = look(repository, wanted)
    action = SyncAction.KEPT if local.in_order else SyncAction.PUBLISHED
    steps = [Step(SyncedVersion(name, action, entry.version, _reason(repository, wanted, local)), local)]
    return steps + (_plan_prune(repository, wanted, local) if options.prune else [])


def wanted_of(entry: RegistryEntry) -> Wanted:
    """Return what a repository should hold of an entry."""
    return Wanted(entry.name, entry.version, entry.content)


def failed(name: str, entry: RegistryEntry | None, error: RepogenError | OSError) -> SyncedVersion:
    """Return what a report says of a model that could not be synced."""
    if isinstance(error, OSError):
        error = PublishError(
            f"{name}: {error.strerror or error} ({error.filename})",
            "The model is as it was. Free disk space or mend permissions there, and sync again.",
            code="sync.write",
        )
    return SyncedVersion(name, SyncAction.FAILED, None if entry is None else entry.version, error=error.record)


def _plan_without_alias(repository: Path, options: SyncOptions, name: str) -> list[Step]:
    model, shelved = model_dir(repository, name), unserved_dir(repository) / name
    steps = []
    if model.is_dir():
        if not is_from_registry(model):
            note = "left as it is: it did not come from the registry"
            return [Step(SyncedVersion(name, SyncAction.IGNORED, None, note))]
        action = SyncAction.PRUNED if options.prune else SyncAction.UNSERVED
        note = f"lost {options.alias}" + ("" if options.prune else f"; kept in {shelved.parent.name}")
        version = max(served_versions(model), default=None)
        steps = [Step(SyncedVersion(name, action, version, note), path=model)]
    if options.prune and shelved.is_dir():
        steps.append(_shelved(name, shelved))
    return steps


def _shelved(name: str, path: Path) -> Step:
    note = f"was not served, kept in {path.parent.name}"
    return Step(SyncedVersion(name, SyncAction.PRUNED, max(served_versions(path), default=None), note), path=path)


def _plan_prune(repository: Path, wanted: Wanted, local: LocalModel) -> list[Step]:
    """Plan what goes once the wanted version is served, from where it will lie by then."""
    model, shelved = repository / wanted.name, unserved_dir(repository) / wanted.name
    stale = [] if local.home is None else [model / path.name for path in stale_versions(local.home, wanted)]
    steps = [Step(SyncedVersion(wanted.name, SyncAction.PRUNED, int(path.name)), path=path) for path in stale]
    return [*steps, _shelved(wanted.name, shelved)] if shelved.is_dir() and local.home != shelved else steps


def _reason(repository: Path, wanted: Wanted, local: LocalModel) -> str:
    """Return why a version has to be published; nothing when it need not."""
    others = sorted(local.served - {wanted.version})
    if local.in_order:
        return ""
    if local.home is None:
        return "new"
    if not local.visible:
        return f"back from {unserved_dir(repository).name}"
    if others:
        return f"instead of {', '.join(map(str, others))}"
    return "config.pbtxt was not as it should be" if local.whole else "its files were not as they should be"
