"""Downloads a registered version, and the steps of an ensemble, as a repository that can be published from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState
from repogen.errors import SourceError
from repogen.registry import ensembles
from repogen.registry.mlflow.access import pin_model
from repogen.registry.mlflow.uri import MODEL_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.tracking import Tracking


def find_entry(tracking: Tracking, registry: ModelRegistry, uri: str) -> RegistryEntry:
    """Return the registered version that a URI refers to now.

    Args:
        tracking: Where the registry is.
        registry: The registry.
        uri: ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.

    Raises:
        SourceError: There is no such version, or repogen did not build it.
    """
    pinned = pin_model(tracking, uri)
    match = MODEL_VERSION.fullmatch(pinned)
    if match is None:
        raise SourceError(
            f"{uri} is not a registered version",
            "use models:/NAME/VERSION or models:/NAME@ALIAS: `repogen build` registers the models that it verifies",
            code="deployments.model",
        )
    entries = registry.entries(match["name"])
    entry = next((entry for entry in entries if entry.version == int(match["version"])), None)
    if entry is None:
        raise SourceError(f"MLflow has no {pinned}", "`repogen history NAME` lists versions", code="source.mlflow")
    if entry.state is EntryState.FOREIGN:
        raise SourceError(
            f"repogen did not build {pinned}, so it has no config.pbtxt and no golden tensors",
            "build it with a spec: source: {kind: mlflow, uri: …}",
            code="deployments.not-built",
        )
    return entry


def download(registry: ModelRegistry, entry: RegistryEntry, repository: Path) -> None:
    """Download a version and, for an ensemble, the versions of its steps that it was verified with.

    Args:
        registry: The registry.
        entry: The version.
        repository: An empty directory; it becomes a repository that serves exactly these versions.

    Raises:
        TrackingError: Files were deleted or changed, the registry does not have a step, or it does not respond.
        PublishError: A name leads out of the directory, or a version has a config that Triton would not serve.
    """
    manifest = ensembles.download(registry, entry, repository)
    ensembles.download_steps(registry, entry, manifest, repository)
