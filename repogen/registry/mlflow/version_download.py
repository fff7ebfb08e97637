"""Downloads a registered version and holds every byte against its manifest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.errors import TrackingError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.manifest import damaged_files, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import RegistryEntry
    from repogen.registry.mlflow.client import Connection

_AT_ONCE = 8
_GONE = "are its artifacts still there? if not, `repogen build --force` makes and registers a new version"


def fetch_version(connection: Connection, entry: RegistryEntry, directory: Path) -> Path:
    """Download the files that a version's manifest lists.

    Args:
        connection: An open connection.
        entry: Which version.
        directory: Where to; must be empty.

    Returns:
        The directory.

    Raises:
        TrackingError: Artifacts are gone or altered, or the server can't be reached.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository  # noqa: PLC0415 - heavy

    told = f"{entry.name} version {entry.version}"
    with connection.doing(f"downloading {told}", _GONE):
        uri = connection.client.get_model_version_download_uri(entry.name, str(entry.version))
        artifacts: Any = get_artifact_repository(uri, tracking_uri=connection.tracking.uri)
        artifacts.download_artifacts(MANIFEST_FILE, str(directory))
    try:
        manifest = read_manifest(directory)
    except (MalformedRecordError, OSError) as error:
        raise _altered(told, f"its {MANIFEST_FILE} can't be read: {error}") from error
    if manifest.model != entry.name or manifest.content_sha256 != entry.content:
        raise _altered(told, f"its {MANIFEST_FILE} is not the one that was registered")
    with connection.doing(f"downloading {told}", _GONE), ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda record: artifacts.download_artifacts(record.path, str(directory)), manifest.files))
    if wrong := damaged_files(directory, manifest):
        raise _altered(told, "; ".join(wrong))
    return directory


def _altered(told: str, why: str) -> TrackingError:
    return TrackingError(
        f"the artifacts of {told} were altered in MLflow's artifact store: {why}",
        "restore them, or build the model again with `repogen build --force`",
        code="tracking.altered",
    )
