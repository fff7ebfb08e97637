"""What stops a sync, or that of one model, whatever lies in the repository."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState, ModelRegistry, RegistryEntry
from repogen.errors import PublishError, SpecError, TrackingError
from repogen.repository.ensembles import unfit
from repogen.repository.layout import models_of, unserved_dir
from repogen.repository.mirror import is_from_registry
from repogen.spec.problems import printable

NO_STEP = "sync.no-step"
"""Code of an ensemble that waits for its steps."""

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.sync import SyncOptions
    from repogen.artifacts.versions import StagedVersion


def chosen_models(repository: Path, options: SyncOptions, aliased: dict[str, RegistryEntry]) -> list[str]:
    """Return the models to look at.

    Raises:
        SpecError: One was asked for that neither the alias nor the repository knows.
    """
    here = {*models_of(repository), *models_of(unserved_dir(repository))}
    known = here | aliased.keys()
    if unknown := [name for name in options.models if name not in known]:
        raise SpecError(
            f"no model {', '.join(map(repr, unknown))} has the alias {options.alias}",
            f"it is on {', '.join(sorted(aliased)) or 'no model'}; set it with `repogen promote NAME --alias "
            f"{options.alias}`",
            code="sync.no-such-model",
        )
    return sorted(set(options.models) or known)


def refuse_linked_shelf(repository: Path) -> None:
    """Refuse to move models through a link, and to delete behind it.

    Raises:
        PublishError: The place of the unserved is a link.
    """
    shelf = unserved_dir(repository)
    if shelf.is_symlink():
        raise PublishError(
            f"{shelf} is a symlink, and repogen does not write through links",
            "Replace it by a directory on the repository's filesystem, or remove it.",
            code="sync.symlink",
        )


def refuse_foreign(alias: str, entries: list[RegistryEntry]) -> None:
    """Refuse versions that repogen did not build.

    Raises:
        TrackingError: There are some; the hint has the commands that would build them.
    """
    foreign = [entry for entry in entries if entry.state is EntryState.FOREIGN]
    if foreign:
        listed = ", ".join(f"{printable(entry.name)} version {entry.version}" for entry in foreign)
        raise TrackingError(
            f"{alias} points to what repogen did not build, and nobody has verified: {listed}; nothing was changed",
            "\n".join(_building(entry.name, alias) for entry in foreign),
            code="sync.foreign-entry",
        )


def refuse_other_registry(registry: ModelRegistry, repository: Path, aliased: dict[str, RegistryEntry]) -> None:
    """Refuse to empty a repository because the registry is empty.

    Raises:
        TrackingError: It knows no model that is served: it is another one, or lost its data.
    """
    served = [name for name in models_of(repository) if is_from_registry(repository / name)]
    if served and not any(name in aliased or registry.entries(name) for name in served):
        raise TrackingError(
            f"the registry knows no model of {repository} ({', '.join(served)}), so it is another one than the "
            "repository was synced from, or it lost its data; nothing was changed",
            "Check --tracking-uri and MLFLOW_TRACKING_URI. If the models are to go, delete their directories.",
            code="sync.other-registry",
        )


def refuse_moved_alias(registry: ModelRegistry, alias: str, name: str, entry: RegistryEntry | None) -> None:
    """Refuse to serve what the alias no longer says: another sync may have followed it already.

    Raises:
        TrackingError: It points elsewhere than when the sync began, or the registry does not answer.
    """
    now = next((found.version for found in registry.entries(name) if alias in found.aliases), None)
    then = None if entry is None else entry.version
    if now != then:
        raise TrackingError(
            f"{name}: {alias} was moved from {then or 'nothing'} to {now or 'nothing'} meanwhile; the "
            "model was left as it is",
            "Sync again.",
            code="sync.alias-moved",
        )


def refuse_unfit_ensemble(staged: StagedVersion, repository: Path) -> None:
    """Refuse an ensemble that Triton would not load beside the models that the repository serves.

    Raises:
        PublishError: A step's model or version is not there, or is another than the ensemble was built of.
    """
    if why := unfit(staged.config.text, staged.name, repository):
        raise PublishError(
            f"{staged.name} was not published: {why}",
            "its steps must have the alias, too, and no pin (version:): the registry numbers versions anew",
            code=NO_STEP,
        )


def _building(name: str, alias: str) -> str:
    model = shlex.quote(name) if name.isprintable() else "NAME"
    return f"repogen build --model {model} && repogen promote {model} --alias {shlex.quote(alias)}"
