"""Make a Triton repository match a registry's alias.

Everything is looked at before anything is changed. Then each model goes its way: fetched and verified beside the
repository, without the lock; looked at again under the lock, together with the alias, since either may have changed
meanwhile; moved in or out by renames.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from repogen.artifacts.sync import CHANGES, SyncAction, SyncedVersion, SyncOptions, SyncReport
from repogen.errors import PublishError, RepogenError
from repogen.registry.sync.plan import Step, failed, plan, planned, wanted_of
from repogen.registry.sync.preconditions import (
    NO_STEP,
    chosen_models,
    refuse_foreign,
    refuse_linked_shelf,
    refuse_moved_alias,
    refuse_other_registry,
    refuse_unfit_ensemble,
)
from repogen.repository.download import stage_wanted
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.mirror import discard, serve, synced_repository, unserve
from repogen.repository.ownership import require_synced
from repogen.repository.workspace import prepare_stage_root, private_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.versions import StagedVersion

_ABOUT_THE_PLACE = frozenset({"stage.other-filesystem", "stage.not-writable", "stage.no-directory"})


@dataclass(frozen=True)
class _Run:
    """What the models of one sync share."""

    registry: ModelRegistry
    repository: Path
    options: SyncOptions
    progress: Progress
    filesystem: Filesystem


def sync(
    registry: ModelRegistry,
    repository: Path,
    options: SyncOptions,
    progress: Progress,
    filesystem: Filesystem | None = None,
) -> SyncReport:
    """Make a repository serve exactly the versions that an alias points to; a model that fails stops no other.

    Args:
        registry: Where the alias is looked up, and the versions are downloaded from.
        repository: A repository of `repogen sync`'s own; made when there is none.
        options: Which alias, and how.
        progress: Hears of the steps.
        filesystem: Stands in for the disk in crash tests.

    Returns:
        What was done, by model.

    Raises:
        RepogenError: What stops them all, before anything is changed: the registry does not answer, a version was not
            built by repogen, the repository is not for syncing, a model is unknown.
    """
    repository = repository.resolve()
    require_synced(repository, options.alias)
    refuse_linked_shelf(repository)
    run = _Run(registry, repository, options, progress, filesystem or Disk())
    progress.step("", f"looking up {options.alias}")
    aliased = {entry.name: entry for entry in registry.with_alias(options.alias)}
    names = chosen_models(repository, options, aliased)
    refuse_foreign(options.alias, [aliased[name] for name in names if name in aliased])
    refuse_other_registry(registry, repository, aliased)
    plans = {name: planned(repository, options, name, aliased.get(name)) for name in names}
    done = {name: tuple(step.done for step in steps) for name, steps in plans.items()}
    changed = [name for name, versions in done.items() if any(version.action in CHANGES for version in versions)]
    if changed and not options.dry_run:
        with _staging(repository) as root:
            waiting = changed
            while waiting:
                for name in waiting:
                    done[name] = _synced(run, root, plans[name], aliased.get(name))
                before, waiting = waiting, [name for name in waiting if _waits(done[name])]
                if waiting == before:  # an ensemble is looked at again after its steps have come
                    break
    progress.step("", "done")
    return SyncReport(repository, options.alias, options.dry_run, tuple(chain.from_iterable(done.values())))


@contextmanager
def _staging(repository: Path) -> Iterator[Path]:
    """Stage beside the repository; `repogen sync` has no flag for another place, so no hint should name one."""
    try:
        with prepare_stage_root(repository, None) as root:
            yield root
    except PublishError as error:
        if error.code not in _ABOUT_THE_PLACE:
            raise
        hint = (
            f"Versions are downloaded to {repository.parent}, which must be writable and on the repository's "
            "filesystem; where the repository is a mount point, sync into a directory below it."
        )
        raise PublishError(error.message, hint, code=error.code) from error


def _waits(versions: tuple[SyncedVersion, ...]) -> bool:
    return any(version.error is not None and version.error.code == NO_STEP for version in versions)


def _synced(run: _Run, root: Path, steps: list[Step], entry: RegistryEntry | None) -> tuple[SyncedVersion, ...]:
    """Sync one model; what was done before an error is told beside the error."""
    name, done = steps[0].done.model, list[SyncedVersion]()
    try:
        staged = None if entry is None else _staged(run, root, steps[0], entry)
        run.progress.step(name, "publish")
        with synced_repository(run.repository, run.options.alias, run.filesystem):
            refuse_moved_alias(run.registry, run.options.alias, name, entry)
            for step in plan(run.repository, run.options, name, entry):
                _do(run, root, step, staged)
                done.append(step.done)
    except (RepogenError, OSError) as error:
        done.append(failed(name, entry, error))
    run.progress.step(name, "done")
    return tuple(done)


def _staged(run: _Run, root: Path, step: Step, entry: RegistryEntry) -> StagedVersion | None:
    """Fetch and check what is missing, without the lock: a download may take long."""
    if step.local is None or step.local.in_order:
        return None
    wanted, private = wanted_of(entry), private_repository(root)
    if step.local.whole and step.local.home is not None:
        return stage_wanted(private, wanted, step.local.home / str(wanted.version))
    run.progress.step(entry.name, "fetch")
    directory = private / entry.name / str(entry.version)
    shutil.rmtree(directory.parent, ignore_errors=True)  # of an ensemble that waited for its steps
    directory.mkdir(parents=True)
    run.registry.fetch(entry, directory)
    return stage_wanted(private, wanted, directory)


def _do(run: _Run, root: Path, step: Step, staged: StagedVersion | None) -> None:
    name, action = step.done.model, step.done.action
    if action is SyncAction.PUBLISHED and step.local is not None:
        if staged is None:
            raise PublishError(
                f"{name}: the repository was changed while it was looked at",
                "Sync again.",
                code="sync.changed-meanwhile",
            )
        refuse_unfit_ensemble(staged, run.repository)
        serve(staged, run.repository, step.local, run.filesystem)
    elif action is SyncAction.UNSERVED:
        unserve(run.repository, name, run.filesystem)
    elif action is SyncAction.PRUNED and step.path is not None:
        discard(step.path, root, run.filesystem)
