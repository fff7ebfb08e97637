"""Downloads a registered version, and the steps of an ensemble, as a repository that can be published from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.registry import EntryState
from repogen.errors import PublishError, SourceError
from repogen.registry.mlflow.access import pin_model
from repogen.registry.mlflow.uri import MODEL_VERSION
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.repository.own_config import UnservableError, config_serving
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.tracking import Tracking

_STEP = "step:"
_MAX_VERSIONS = 256


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
        TrackingError: Files were deleted or changed, or the server does not respond.
        SourceError: The registry does not have a step, or there are very many.
        PublishError: A name leads out of the directory, or a version has a config that Triton would not serve.
    """
    queue, count = [entry], 0
    while queue:
        current = queue.pop()
        version_dir = model_dir(repository, current.name) / str(current.version)
        if version_dir.exists():
            continue
        count += 1
        if count > _MAX_VERSIONS:
            raise SourceError(
                f"the steps of {entry.name} version {entry.version} lead to more than {_MAX_VERSIONS} versions",
                "deploy ensembles of fewer models",
                code="deployments.step",
            )
        version_dir.mkdir(parents=True)
        registry.fetch(current, version_dir)
        manifest = read_manifest(version_dir)
        try:
            text = config_serving(version_dir, manifest, serving_only)
        except UnservableError as error:
            raise PublishError(
                f"{current.name} version {current.version} has a config.pbtxt that Triton would not serve: {error}",
                "build the model again with this repogen",
                code="publish.unservable",
            ) from error
        (version_dir.parent / CONFIG_FILE).write_text(text, encoding="utf-8")
        for key, content in manifest.provenance.fingerprint.items():
            if key.startswith(_STEP):
                queue.append(_step(registry, current, key.removeprefix(_STEP), content))


def _step(registry: ModelRegistry, ensemble: RegistryEntry, name: str, content: str) -> RegistryEntry:
    same = (entry for entry in registry.entries(name) if entry.content == content)
    entry = next(same, None)
    if entry is None:
        raise SourceError(
            f"MLflow does not have the version of {name} that {ensemble.name} version {ensemble.version} uses",
            f"build {name} and {ensemble.name} together, with tracking",
            code="deployments.step",
        )
    return entry
