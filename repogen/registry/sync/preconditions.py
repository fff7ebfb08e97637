"""Conditions under which a sync, or the sync of one model, is rejected."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState, ModelRegistry, RegistryEntry
from repogen.errors import PublishError, SpecError, TrackingError
from repogen.repository.ensembles import unfit
from repogen.repository.layout import archive_dir, models_of
from repogen.repository.mirror import is_from_registry
from repogen.spec.problems import printable, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.sync import SyncOptions
    from repogen.artifacts.versions import StagedVersion


def chosen_models(repository: Path, options: SyncOptions, aliased: dict[str, RegistryEntry]) -> list[str]:
    """Return the names of the models to sync, sorted.

    Raises:
        SpecError: A requested model neither has the alias nor is in the repository.
    """
    candidates = {*models_of(repository), *models_of(archive_dir(repository)), *aliased}
    if unknown := [name for name in options.models if name not in candidates]:
        raise SpecError(
            f"no model {', '.join(map(repr, unknown))} has the alias {options.alias}",
            suggestion(
                unknown,
                sorted(candidates),
                f"models with the alias: {', '.join(sorted(aliased)) or 'none'}; set it with `repogen promote NAME "
                f"--alias {options.alias}`",
            ),
            code="sync.no-such-model",
        )
    return sorted(set(options.models) or candidates)


def require_built_by_repogen(alias: str, entries: list[RegistryEntry]) -> None:
    """Require that repogen built every version that the alias points to.

    Raises:
        TrackingError: It did not; the hint contains the commands that build the models.
    """
    foreign = [entry for entry in entries if entry.state is EntryState.FOREIGN]
    if foreign:
        versions = ", ".join(f"{printable(entry.name)} version {entry.version}" for entry in foreign)
        raise TrackingError(
            f"{alias} points to unverified versions, which repogen did not build: {versions}; nothing was changed",
            "\n".join(_build_command(entry.name, alias) for entry in foreign),
            code="sync.foreign-entry",
        )


def require_same_registry(registry: ModelRegistry, repository: Path, aliased: dict[str, RegistryEntry]) -> None:
    """Require that the registry has a model of the repository: an empty registry must not empty the repository.

    Raises:
        TrackingError: It has none: it is a different registry, or lost its data.
    """
    model_names = [name for name in models_of(repository) if is_from_registry(repository / name)]
    if model_names and not any(name in aliased or registry.entries(name) for name in model_names):
        raise TrackingError(
            f"the registry has none of the models in {repository} ({', '.join(model_names)}): it is not the registry "
            "that the repository was synced from, or it lost its data; nothing was changed",
            "check --tracking-uri and MLFLOW_TRACKING_URI; to remove the models, delete their directories",
            code="sync.other-registry",
        )


def require_unmoved_alias(registry: ModelRegistry, alias: str, name: str, entry: RegistryEntry | None) -> None:
    """Require that the alias still points to the same version: another sync may have followed it already.

    Raises:
        TrackingError: It was moved since the sync began, or the registry does not respond.
    """
    after = next((current.version for current in registry.entries(name) if alias in current.aliases), None)
    before = None if entry is None else entry.version
    if after != before:
        raise TrackingError(
            f"{name}: {alias} was moved from {before or 'nothing'} to {after or 'nothing'} during the sync; the "
            "model was not changed",
            "sync again",
            code="sync.alias-moved",
        )


def require_loadable_ensemble(staged: StagedVersion, repository: Path, others: Iterable[StagedVersion]) -> None:
    """Require that Triton can load an ensemble with the models that the repository will serve.

    Args:
        staged: A version.
        repository: The repository.
        others: Versions that are published with it; may include itself.

    Raises:
        PublishError: A step's model or version is missing, or differs from the one that the ensemble was built with.
    """
    if reason := unfit(staged.config.text, staged.name, repository, others):
        raise PublishError(
            f"{staged.name} was not published: {reason}",
            "build it together with its steps, without `version:` in them: the registry assigns version numbers",
            code="sync.no-step",
        )


def _build_command(name: str, alias: str) -> str:
    model = shlex.quote(name) if name.isprintable() else "NAME"
    return f"repogen build --model {model} && repogen promote {model} --alias {shlex.quote(alias)}"
