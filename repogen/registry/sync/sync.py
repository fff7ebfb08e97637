"""Makes a Triton repository match a registry's alias.

Every model is planned before anything is changed. Then each model, or each ensemble with its steps, is downloaded and
verified next to the repository, without the lock; planned again while holding the lock, because the repository and the
alias may have changed since; and moved in or out by renames.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from repogen.artifacts.sync import CHANGES, SyncAction, SyncedVersion, SyncOptions, SyncReport
from repogen.attestation.signature import require_signature, require_signed_directory
from repogen.errors import PublishError, RepogenError
from repogen.files.resolve import resolved
from repogen.registry.sync.plan import Step, desired_version, failed, plan
from repogen.registry.sync.preconditions import (
    chosen_models,
    require_built_by_repogen,
    require_loadable_ensemble,
    require_same_registry,
    require_unmoved_alias,
)
from repogen.registry.sync.selection import Selection, select
from repogen.repository.download import stage_download
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.mirror import archive, discard, require_plain_archive, serve, synced_repository
from repogen.repository.ownership import require_synced
from repogen.repository.workspace import prepare_stage_root, private_repository, sweep
from repogen.serving.admission import require_admitted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    selection: Selection

    def planned(self, name: str) -> list[Step]:
        """Return the plan of a model, or one failed or ignored step."""
        selection, entry = self.selection, self.selection.entry(name)
        if name in selection.failures:
            return [Step(failed(name, entry, selection.failures[name]))]
        # every version in the registry is needed only if versions are to be pruned
        entries = self.registry.entries(name) if self.options.prune else ()
        steps = plan(self.repository, self.options, name, entry, entries)
        user = selection.frozen.get(name)
        if user is not None and any(step.result.action in CHANGES for step in steps):
            note = f"not changed: {user}, which uses it, is not changed"
            return [Step(SyncedVersion(name, SyncAction.IGNORED, None, note))]
        return [replace(step, result=self._with_pin_note(step.result)) for step in steps]

    def _with_pin_note(self, result: SyncedVersion) -> SyncedVersion:
        pinned, aliased = self.selection.pinned.get(result.model), self.selection.aliased.get(result.model)
        if pinned is None or aliased is None or result.version != pinned.version or pinned.version == aliased.version:
            return result
        users = ", ".join(sorted(self.selection.users[result.model]))
        note = f"{users} was verified with this version; {self.options.alias} points to version {aliased.version}"
        return replace(result, note="; ".join(filter(None, (result.note, note))))


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
    repository = resolved(repository)
    require_synced(repository, options.alias)
    require_plain_archive(repository)
    progress.step("", f"looking up {options.alias}")
    aliased = {entry.name: entry for entry in registry.with_alias(options.alias)}
    requested_names = chosen_models(repository, options, aliased)
    require_built_by_repogen(options.alias, [aliased[name] for name in requested_names if name in aliased])
    require_same_registry(registry, repository, aliased)
    selection = select(registry, repository, aliased)
    run = _Run(registry, repository, options, progress, filesystem or Disk(), selection)
    if not options.models:
        requested_names += selection.pinned
    groups = list(dict.fromkeys(selection.group(name) for name in requested_names))
    names = sorted(name for group in groups for name in group)
    if not options.dry_run:
        sweep(repository, None)
    plans = {name: _plan_or_failure(run, name) for name in names}
    results = {name: tuple(step.result for step in steps) for name, steps in plans.items()}
    changed_groups = [
        group for group in groups if any(row.action in CHANGES for name in group for row in results[name])
    ]
    if changed_groups and not options.dry_run:
        with _staging(repository) as root:
            for group in changed_groups:
                results |= _sync_group(run, root, {name: plans[name] for name in group})
    progress.step("", "failed" if any(step.error for step in chain.from_iterable(results.values())) else "done")
    return SyncReport(repository, options.alias, options.dry_run, tuple(chain.from_iterable(results.values())))


def _plan_or_failure(run: _Run, name: str) -> list[Step]:
    try:
        return run.planned(name)
    except (RepogenError, OSError) as error:
        return [Step(failed(name, run.selection.entry(name), error))]


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


def _sync_group(run: _Run, root: Path, plans: dict[str, list[Step]]) -> dict[str, tuple[SyncedVersion, ...]]:
    """Sync an ensemble and its steps, or one model; everything that can fail is tried before the first change.

    Args:
        run: The sync.
        root: Where to stage.
        plans: The plan of each model, steps before the ensembles that use them.

    Returns:
        For each model the completed changes, and the error if there is one.
    """
    staged: dict[str, StagedVersion | None] = {}
    completed: list[Step] = []
    current = ""
    try:
        for name, steps in plans.items():
            current = name
            staged[name] = _stage(run, root, steps[0], run.selection.entry(name)) if steps else None
            run.progress.step(name, "publish")
        new_versions = [version for version in staged.values() if version is not None]
        with synced_repository(run.repository, run.options.alias, run.filesystem):
            for name in plans:
                current = name
                _require_unmoved(run, name)
                plans[name] = run.planned(name)
            for version in new_versions:
                current = version.name
                require_loadable_ensemble(version, run.repository, new_versions)
            for step in _in_order(plans):
                current = step.result.model
                _execute(run, root, step, staged[current])
                completed.append(step)
    except (RepogenError, OSError) as error:
        failures = {
            name: tuple(_rows_after(run, name, steps, completed, current, error)) for name, steps in plans.items()
        }
        for name, rows in failures.items():
            run.progress.step(name, "failed" if any(row.error for row in rows) else "done")
        return failures
    for name in plans:
        run.progress.step(name, "done")
    return {name: tuple(step.result for step in steps) for name, steps in plans.items()}


def _in_order(plans: dict[str, list[Step]]) -> list[Step]:
    """Return the steps of a group: what is served from now on first, what is removed last and in the reverse order."""
    is_removal = {SyncAction.UNSERVED, SyncAction.PRUNED}.__contains__
    added = [step for steps in plans.values() for step in steps if not is_removal(step.result.action)]
    removed = [step for steps in reversed(plans.values()) for step in steps if is_removal(step.result.action)]
    return added + removed


def _rows_after(
    run: _Run, name: str, steps: list[Step], completed: list[Step], current: str, error: RepogenError | OSError
) -> Iterator[SyncedVersion]:
    """Yield the rows of a model after its group failed because of the model ``current``."""
    for step in steps:
        if step in completed or (step.result.action not in CHANGES and name != current):
            yield step.result
        elif name != current:
            note = f"not changed: {current} failed, and both are changed together"
            yield SyncedVersion(name, SyncAction.IGNORED, step.result.version, note)
    if name == current:
        yield failed(name, run.selection.entry(name), error)


def _require_unmoved(run: _Run, name: str) -> None:
    """Require that the alias of a model was not moved, if it selects the version."""
    if name not in run.selection.pinned:
        require_unmoved_alias(run.registry, run.options.alias, name, run.selection.aliased.get(name))


def _stage(run: _Run, root: Path, step: Step, entry: RegistryEntry | None) -> StagedVersion | None:
    """Download and check a missing version, without the lock: a download may take long."""
    if entry is None or step.local is None or step.local.up_to_date:
        return None
    require_signed_directory(step.local.directory, run.options.signer)
    desired, scratch = desired_version(entry), private_repository(root)
    if step.local.intact and step.local.directory is not None:
        version_dir = step.local.directory / str(desired.version)
        require_signature(version_dir, entry.name, run.options.signer)
        staged = stage_download(scratch, desired, version_dir)
        require_admitted(step.local.directory, staged.config.text)
        return staged
    run.progress.step(entry.name, "fetch")
    directory = scratch / entry.name / str(entry.version)
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
        serve(staged, run.repository, step.local, run.filesystem)
    elif action is SyncAction.UNSERVED:
        archive(run.repository, name, run.filesystem)
    elif action is SyncAction.PRUNED and step.path is not None:
        discard(step.path, root, run.filesystem)
