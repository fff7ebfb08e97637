"""Makes a Triton repository match a registry's alias.

Every model is planned before anything is changed. Then each model is downloaded and verified next to the repository,
without the lock; planned again while holding the lock, because the repository and the alias may have changed since; and
moved in or out by renames.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.sync import CHANGES, SyncAction, SyncedVersion, SyncOptions, SyncReport
from repogen.attestation.signature import require_signature
from repogen.errors import PublishError, RepogenError
from repogen.files.tree import remove_tree
from repogen.registry.sync.plan import Step, desired_version, failed, plan, plan_or_failure
from repogen.registry.sync.preconditions import (
    NO_STEP,
    chosen_models,
    require_built_by_repogen,
    require_loadable_ensemble,
    require_plain_archive,
    require_same_registry,
    require_unmoved_alias,
)
from repogen.repository.download import stage_download
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.mirror import archive, discard, serve, synced_repository
from repogen.repository.ownership import require_synced
from repogen.repository.workspace import prepare_stage_root, private_repository, sweep
from repogen.serving.admission import require_admitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.versions import StagedVersion

_STAGE_ROOT_ERRORS = frozenset({"stage.other-filesystem", "stage.not-writable", "stage.no-directory"})


@dataclass(frozen=True)
class _Run:
    """The arguments of one sync."""

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
    """Make a repository serve exactly the versions that an alias points to; the other models continue if one fails.

    Args:
        registry: The registry that has the alias and the versions.
        repository: A repository that `repogen sync` owns; created if it does not exist.
        options: Flags.
        progress: Receives progress events.
        filesystem: Replaces the disk in crash tests.

    Returns:
        The results, by model.

    Raises:
        RepogenError: An error that concerns all models, before anything is changed: the registry does not respond, a
            version was not built by repogen, the repository has another owner, or a model is unknown.
    """
    repository = Path(os.path.realpath(repository))
    require_synced(repository, options.alias)
    require_plain_archive(repository)
    run = _Run(registry, repository, options, progress, filesystem or Disk())
    progress.step("", f"looking up {options.alias}")
    aliased = {entry.name: entry for entry in registry.with_alias(options.alias)}
    names = chosen_models(repository, options, aliased)
    require_built_by_repogen(options.alias, [aliased[name] for name in names if name in aliased])
    require_same_registry(registry, repository, aliased)
    if not options.dry_run:
        sweep(repository, None)
    plans = {name: plan_or_failure(repository, options, name, aliased.get(name), _entries(run, name)) for name in names}
    results = {name: tuple(step.result for step in steps) for name, steps in plans.items()}
    changed_names = [
        name for name, versions in results.items() if any(version.action in CHANGES for version in versions)
    ]
    if changed_names and not options.dry_run:
        with _staging(repository) as root:
            queue = changed_names
            while queue:
                for name in queue:
                    results[name] = _sync_model(run, root, plans[name], aliased.get(name))
                # an ensemble is tried again after its steps
                before, queue = queue, [name for name in queue if _waits_for_steps(results[name])]
                if queue == before:
                    break
    progress.step("", "failed" if any(step.error for step in chain.from_iterable(results.values())) else "done")
    return SyncReport(repository, options.alias, options.dry_run, tuple(chain.from_iterable(results.values())))


@contextmanager
def _staging(repository: Path) -> Iterator[Path]:
    """Stage next to the repository; `repogen sync` has no flag for another directory, so hints must not mention one."""
    try:
        with prepare_stage_root(repository, None) as root:
            yield root
    except PublishError as error:
        if error.code not in _STAGE_ROOT_ERRORS:
            raise
        hint = (
            f"versions are downloaded to {repository.parent}, which must be writable and on the repository's "
            "filesystem; if the repository is a mount point, sync into a directory below it"
        )
        raise PublishError(error.message, hint, code=error.code) from error


def _waits_for_steps(versions: tuple[SyncedVersion, ...]) -> bool:
    return any(version.error is not None and version.error.code == NO_STEP for version in versions)


def _sync_model(run: _Run, root: Path, steps: list[Step], entry: RegistryEntry | None) -> tuple[SyncedVersion, ...]:
    """Sync one model; return the completed steps, and the error if there is one."""
    name, results = steps[0].result.model, list[SyncedVersion]()
    try:
        staged = None if entry is None else _stage(run, root, steps[0], entry)
        run.progress.step(name, "publish")
        with synced_repository(run.repository, run.options.alias, run.filesystem):
            require_unmoved_alias(run.registry, run.options.alias, name, entry)
            for step in plan(run.repository, run.options, name, entry, _entries(run, name)):
                _execute(run, root, step, staged)
                results.append(step.result)
    except (RepogenError, OSError) as error:
        results.append(failed(name, entry, error))
    run.progress.step(name, "failed" if any(step.error for step in results) else "done")
    return tuple(results)


def _entries(run: _Run, name: str) -> tuple[RegistryEntry, ...]:
    """Return every version in the registry, if versions are to be pruned."""
    return run.registry.entries(name) if run.options.prune else ()


def _stage(run: _Run, root: Path, step: Step, entry: RegistryEntry) -> StagedVersion | None:
    """Download and check a missing version, without the lock: a download may take long."""
    if step.local is None or step.local.up_to_date:
        return None
    desired, scratch = desired_version(entry), private_repository(root)
    if step.local.intact and step.local.directory is not None:
        version_dir = step.local.directory / str(desired.version)
        require_signature(version_dir, entry.name, run.options.signer)
        staged = stage_download(scratch, desired, version_dir)
        require_admitted(step.local.directory, staged.config.text)
        return staged
    run.progress.step(entry.name, "fetch")
    directory = scratch / entry.name / str(entry.version)
    remove_tree(directory.parent)  # an ensemble's first attempt
    directory.mkdir(parents=True)
    run.registry.fetch(entry, directory)
    require_signature(directory, entry.name, run.options.signer)
    staged = stage_download(scratch, desired, directory)
    require_admitted(staged.model_dir, staged.config.text, step.local.directory)
    return staged


def _execute(run: _Run, root: Path, step: Step, staged: StagedVersion | None) -> None:
    name, action = step.result.model, step.result.action
    if action is SyncAction.PUBLISHED and step.local is not None:
        if staged is None:
            raise PublishError(
                f"{name}: the repository changed during the sync",
                "sync again",
                code="sync.changed-meanwhile",
            )
        require_loadable_ensemble(staged, run.repository)
        serve(staged, run.repository, step.local, run.filesystem)
    elif action is SyncAction.UNSERVED:
        archive(run.repository, name, run.filesystem)
    elif action is SyncAction.PRUNED and step.path is not None:
        discard(step.path, root, run.filesystem)
