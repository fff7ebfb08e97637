"""``repogen prune``: deletes old versions that are no longer needed.

Each version is renamed out of the repository, and then deleted there, so Triton never sees a part of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.prune import PrunedVersion, PruneReport
from repogen.errors import PublishError, TrackingError
from repogen.files import exists, reason
from repogen.files.resolve import resolved
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.filesystem import Disk
from repogen.repository.inventory import read_models
from repogen.repository.layout import journal_path
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files
from repogen.repository.mirror import discard
from repogen.repository.ownership import read_owner
from repogen.repository.publish import require_plain_directory
from repogen.repository.recovery import finish_interrupted_publish, recover
from repogen.repository.retention import pinned_versions, reasons_to_keep
from repogen.repository.workspace import prepare_stage_root, sweep
from repogen.versions.listing import was_registered, with_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from repogen.artifacts.inventory import ModelRecord, VersionRecord
    from repogen.artifacts.prune import PruneOptions
    from repogen.artifacts.registry import RegistryEntry
    from repogen.repository.filesystem import Filesystem
    from repogen.versions.listing import OpenRegistry

_LAST_INTACT = "no other version that is kept is intact"
_MAX_LINKS = 40
"""Links that Linux follows in a path."""
_LINKED = "a version that is kept has a link to it"


def prune(
    repository: Path,
    names: Iterable[str],
    options: PruneOptions,
    open_registry: OpenRegistry,
    filesystem: Filesystem | None = None,
) -> PruneReport:
    """Delete versions that are not needed.

    Args:
        repository: A repository.
        names: The models; all when empty.
        options: Which versions to keep.
        open_registry: Connects to the model registry, None if none is configured. It is called only if a version that
            could be deleted was registered.
        filesystem: Replaces the disk in crash tests.

    Returns:
        Every version, with the reason why it was kept.

    Raises:
        SpecError: The repository, or a model, does not exist.
        TrackingError: The model registry did not respond; nothing was deleted.
        PublishError: A directory can't be read or written.
    """
    repository = resolved(repository)
    selection = tuple(names)
    models = _recovered_models(repository, selection, options)
    owner = read_owner(repository)
    kind = "" if owner is None else owner.kind.value
    try:
        with work_limit(str(repository), COMMAND_SECONDS):
            first = [] if options.ignore_registry else _plan(repository, models, options)
        entries = _entries(_registered(first, models, kind), open_registry)
        with work_limit(str(repository), COMMAND_SECONDS):
            planned = _with_last_intact(_plan(repository, _with_entries(models, kind, entries), options), models)
        if options.dry_run or all(version.keep_reason for version in planned):
            return PruneReport(repository, options.dry_run, planned)
        with prepare_stage_root(repository, options.stage_dir) as root, locked(repository, 60.0):
            for model in models:
                finish_interrupted_publish(model.path, Disk())
            with work_limit(str(repository), COMMAND_SECONDS):
                current = _with_entries(read_models(repository, selection), kind, entries)
                planned = _with_last_intact(_plan(repository, current, options), current)
            for version in reversed(planned):  # the oldest first
                if not version.keep_reason:
                    discard(repository / version.model / str(version.version), root, filesystem or Disk())
    except OSError as error:
        raise PublishError(
            f"versions cannot be deleted from {repository}: {reason(error)}",
            "versions that were already deleted stay deleted; fix the permissions, and run the command again",
            code="prune.write",
        ) from error
    return PruneReport(repository, options.dry_run, planned)


def _recovered_models(repository: Path, names: Collection[str], options: PruneOptions) -> tuple[ModelRecord, ...]:
    """Return the models, after interrupted builds and publishes are cleaned up, except in a dry run."""
    models = read_models(repository, names)
    for model in models:
        require_plain_directory(model.path)
    if options.dry_run:
        return models
    sweep(repository, options.stage_dir)
    interrupted = [model.name for model in models if exists(journal_path(model.path))]
    for name in interrupted:
        recover(repository, name)
    return read_models(repository, names) if interrupted else models


def _plan(repository: Path, models: Iterable[ModelRecord], options: PruneOptions) -> tuple[PrunedVersion, ...]:
    pins = pinned_versions(repository)
    return tuple(
        PrunedVersion(model.name, version.version, version.size, why)
        for model in models
        for version, why in _with_reasons(model, reasons_to_keep(model, pins), options)
    )


def _with_last_intact(planned: Sequence[PrunedVersion], models: Iterable[ModelRecord]) -> tuple[PrunedVersion, ...]:
    """Return a plan that keeps an intact version of every model that has one: the versions to keep may be damaged.

    Every file of a version is read, of one version per model in most cases.
    """
    return tuple(
        version
        for model in models
        for version in _keep_intact(model, [version for version in planned if version.model == model.name])
    )


def _keep_intact(model: ModelRecord, planned: list[PrunedVersion]) -> list[PrunedVersion]:
    """Return the plan of a model; the newest intact version is kept if it has no other one."""
    to_delete = [version for version in planned if not version.keep_reason]
    others = (version for version in planned if version.keep_reason)
    if not to_delete or any(_is_intact(model, version) for version in others):
        return planned
    last = next((version for version in to_delete if _is_intact(model, version)), None)
    return [replace(version, keep_reason=_LAST_INTACT) if version is last else version for version in planned]


def _is_intact(model: ModelRecord, planned: PrunedVersion) -> bool:
    """Return whether the files of a version match its manifest."""
    version = model.find(planned.version)
    return version is not None and version.manifest is not None and not damaged_files(version.path, version.manifest)


def _with_reasons(
    model: ModelRecord, reasons: Mapping[int, str], options: PruneOptions
) -> Iterable[tuple[VersionRecord, str]]:
    """Yield every version with the reason why it is kept; empty for one that is deleted."""
    kept_before = [version for version in model.versions if version.version <= (model.newest_served or 0)]
    newest = {version.version for version in kept_before[: options.keep]}
    results: dict[int, str] = {}
    for version in model.versions:
        why = reasons.get(version.version, "")
        if not why and version.version in newest:
            why = f"one of the {options.keep} newest"
        results[version.version] = why or _too_new(version, options)
    targets = {target for version in model.versions if results[version.version] for target in _targets(version.path)}
    linked = {path for target in targets for path in (target, *target.parents)}
    for version in model.versions:
        yield version, results[version.version] or (_LINKED if version.path in linked else "")


def _targets(version_dir: Path) -> Iterator[Path]:
    """Yield where the links of a version lead to: its directory, and what is in it, may be links to another version."""
    for link in (version_dir, *version_dir.iterdir()):
        path = link
        for _ in range(_MAX_LINKS):  # a link to a link needs both
            if not path.is_symlink():
                break
            path = Path(os.path.normpath(path.parent / path.readlink()))
            yield path


def _too_new(version: VersionRecord, options: PruneOptions) -> str:
    if options.older_than is None:
        return ""
    if not version.created:
        return "its age is not known"
    age = datetime.now(UTC) - datetime.fromisoformat(version.created)
    return f"created {version.created}" if age < options.older_than else ""


def _registered(planned: Sequence[PrunedVersion], models: Iterable[ModelRecord], kind: str) -> list[str]:
    """Return the models with a version that was registered and could be deleted."""
    candidates = {(version.model, version.version) for version in planned if not version.keep_reason}
    versions = (version for model in models for version in model.versions)
    return sorted({v.model for v in versions if (v.model, v.version) in candidates and was_registered(v, kind)})


def _entries(names: Sequence[str], open_registry: OpenRegistry) -> dict[str, tuple[RegistryEntry, ...]]:
    """Return the registry's entries of models.

    Raises:
        TrackingError: The registry is not configured, or did not respond.
    """
    if not names:
        return {}
    remedy = "use --ignore-registry to delete them without querying the registry"
    try:
        registry = open_registry()
        entries = None if registry is None else {name: registry.entries(name) for name in names}
    except TrackingError as error:
        raise TrackingError(
            f"{error.message}; an alias may point to the versions, so nothing was deleted",
            f"{error.hint}; or {remedy}" if error.hint else remedy,
            code="prune.registry",
        ) from error
    if entries is None:
        raise TrackingError(
            f"versions of {', '.join(names)} were registered, and no MLflow server is configured: an alias may point "
            "to them; nothing was deleted",
            f"set --tracking-uri, or {remedy}",
            code="prune.no-registry",
        )
    return entries


def _with_entries(
    models: Iterable[ModelRecord], kind: str, entries: Mapping[str, Sequence[RegistryEntry]]
) -> tuple[ModelRecord, ...]:
    return tuple(with_entries(model, kind, entries.get(model.name, ())) for model in models)
