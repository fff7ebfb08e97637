"""The registered versions that an ensemble needs: those of its steps that it was verified with.

An ensemble's manifest has the content of every model that it uses, directly or through another ensemble. Its version in
the registry therefore stands for a set of versions, and an alias that points to it selects the whole set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState
from repogen.artifacts.versions import Manifest, ModelConfig, StagedVersion
from repogen.errors import PublishError, TrackingError
from repogen.repository.ensembles import with_suffix
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.repository.own_config import UnservableError, config_serving, stage_config
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry

_MAX_STEPS = 256


def pinned_steps(registry: ModelRegistry, ensemble: RegistryEntry, manifest: Manifest) -> dict[str, RegistryEntry]:
    """Return the versions that an ensemble was verified with, by the names of their models.

    Args:
        registry: The registry.
        ensemble: The ensemble's version; of another model, nothing is returned.
        manifest: Its manifest.

    Raises:
        TrackingError: The registry does not have one of them, or does not respond.
    """
    steps = manifest.provenance.steps
    if ensemble.name in steps or len(steps) > _MAX_STEPS:
        reason = "itself" if ensemble.name in steps else f"{len(steps)} models (the limit is {_MAX_STEPS})"
        raise TrackingError(
            f"the manifest of {ensemble.name} version {ensemble.version} lists {reason} as its steps",
            "build it again, and promote that version",
            code="tracking.step",
        )
    return {name: _step(registry, ensemble, name, content) for name, content in steps.items()}


def _step(registry: ModelRegistry, ensemble: RegistryEntry, name: str, content: str) -> RegistryEntry:
    same = [entry for entry in registry.entries(name) if entry.content == content]
    if not same:
        raise TrackingError(
            f"MLflow does not have the version of {name} that {ensemble.name} version {ensemble.version} was verified "
            "with",
            f"build {name} and {ensemble.name} together, with tracking",
            code="tracking.step",
        )
    return max(same, key=lambda entry: (bool(entry.aliases), entry.state is EntryState.PUBLISHED, entry.version))


def download(registry: ModelRegistry, entry: RegistryEntry, repository: Path, suffix: str = "") -> Manifest:
    """Download a version into a repository that serves it alone, under its number in the registry.

    Args:
        registry: The registry.
        entry: The version.
        repository: A private repository without the model.
        suffix: Text to add to the name of the model, and to those of the models that it uses.

    Returns:
        Its manifest.

    Raises:
        TrackingError: Files were deleted or changed, or the server does not respond.
        PublishError: The name leads out of the directory, or Triton would not serve the version with its config.
    """
    directory = model_dir(repository, f"{entry.name}{suffix}") / str(entry.version)
    directory.mkdir(parents=True)
    registry.fetch(entry, directory)
    manifest = read_manifest(directory)
    try:
        text = config_serving(directory, manifest, serving_only)
    except UnservableError as error:
        raise PublishError(
            f"{entry.name} version {entry.version} has a config.pbtxt that Triton would not serve: {error}",
            "build the model again with this version of repogen",
            code="publish.unservable",
        ) from error
    if suffix:
        text = with_suffix(text, entry.name, manifest.provenance.steps, suffix)
    config = ModelConfig(directory.parent.name, text, manifest.max_batch_size, manifest.signature)
    stage_config(StagedVersion(directory.parent.name, repository, entry.version, config, manifest), directory)
    return manifest


def download_steps(
    registry: ModelRegistry, ensemble: RegistryEntry, manifest: Manifest, repository: Path, suffix: str = ""
) -> tuple[Manifest, ...]:
    """Download the versions that an ensemble was verified with, as ``download`` does; return their manifests.

    Raises:
        TrackingError: The registry does not have one of them, files were changed, or the server does not respond.
        PublishError: As ``download``.
    """
    steps = pinned_steps(registry, ensemble, manifest)
    return tuple(download(registry, step, repository, suffix) for step in steps.values())
