"""``repogen versions``: what a repository contains and serves, with the numbers and aliases of a model registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.inventory import ModelRecord, VersionRecord, VersionsReport
from repogen.artifacts.registry import EntryState
from repogen.errors import RepogenError
from repogen.repository.inventory import read_models
from repogen.repository.ownership import RepositoryKind, read_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry

    OpenRegistry = Callable[[], ModelRegistry | None]


def list_versions(repository: Path, names: Iterable[str], open_registry: OpenRegistry) -> VersionsReport:
    """Return the versions of a repository.

    Args:
        repository: Any model repository.
        names: The models; all when empty.
        open_registry: Connects to the model registry, None if none is configured. It is called only if a version was
            registered.

    Returns:
        The versions; a note if the registry did not respond.

    Raises:
        SpecError: The repository, or a model, does not exist.
        PublishError: A directory can't be read.
    """
    models, notes = read_models(repository, names), []
    owner = ""
    try:
        record = read_owner(repository)
        owner = "" if record is None else record.kind.value
    except RepogenError as error:
        notes.append(error.message)
    if any(was_registered(version, owner) for model in models for version in model.versions):
        try:
            registry = open_registry()
            if registry is not None:
                models = tuple(with_entries(model, owner, registry.entries(model.name)) for model in models)
        except RepogenError as error:
            notes.append(f"the model registry was not read: {error.message}")
    return VersionsReport(repository, owner, models, tuple(notes))


def was_registered(version: VersionRecord, owner: str) -> bool:
    """Return whether a version went into a model registry, or came from one."""
    synced = owner == RepositoryKind.SYNCED.value
    return version.manifest is not None and (synced or version.manifest.provenance.registered)


def with_entries(model: ModelRecord, owner: str, entries: Sequence[RegistryEntry]) -> ModelRecord:
    """Return a model with the registry's numbers and aliases, which are found by the content of a version.

    Several versions and entries have the same files after a build with ``--force``. An entry then belongs to the
    version with its number; if the repository does not have these files under it, to every version with these files.
    """
    numbers: dict[str, set[int]] = {}
    for version in model.versions:
        if version.manifest is not None:
            numbers.setdefault(version.manifest.content_sha256, set()).add(version.version)
    return replace(model, versions=tuple(_with_entry(version, owner, entries, numbers) for version in model.versions))


def _with_entry(
    version: VersionRecord, owner: str, entries: Sequence[RegistryEntry], numbers: Mapping[str, set[int]]
) -> VersionRecord:
    """Return a version with its entries; ``numbers`` are those of the versions with the same files, by digest."""
    if version.manifest is None:
        return version
    content, synced = version.manifest.content_sha256, owner == RepositoryKind.SYNCED.value
    same = [
        (entry, entry.version if synced else entry.triton_version)
        for entry in entries
        if entry.state is not EntryState.FOREIGN and entry.content == content
    ]
    exact = [entry for entry, number in same if number == version.version]
    others = [entry for entry, number in same if number not in numbers[content]]
    return replace(
        version,
        registry_version=next((entry.version for entry in (*exact, *others)), None),
        aliases=tuple(sorted({alias for entry in (*exact, *others) for alias in entry.aliases})),
    )
