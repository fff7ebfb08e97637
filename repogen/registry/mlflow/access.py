"""Opens MLflow for what a command needs of it, after a preflight that does not import mlflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.registry.mlflow.client import connect
from repogen.registry.mlflow.preflight import preflight
from repogen.registry.mlflow.registry import MlflowRegistry
from repogen.registry.mlflow.runs import MlflowTracker
from repogen.registry.mlflow.source_download import download_model, is_pinned, pinned_uri

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry
    from repogen.artifacts.tracking import BuildTracker, Tracking


def open_registry(tracking: Tracking) -> ModelRegistry:
    """Connect to the model registry.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not answer, or not as MLflow.
    """
    preflight(tracking)
    return MlflowRegistry(connect(tracking))


def open_tracker(tracking: Tracking) -> BuildTracker:
    """Connect to the tracking server for one build.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not answer, or not as MLflow.
    """
    return MlflowTracker(connect(tracking))


def pin_model(tracking: Tracking, uri: str) -> str:
    """Return the URI of the version that ``uri`` means now; see ``repogen.registry.mlflow.source_download``."""
    if is_pinned(uri):
        return uri
    preflight(tracking)
    return pinned_uri(connect(tracking), uri)


def fetch_model(tracking: Tracking, uri: str, directory: Path) -> Path:
    """Download a model's files; see ``repogen.registry.mlflow.source_download.download_model``."""
    preflight(tracking)
    connection = connect(tracking)
    return download_model(connection, pinned_uri(connection, uri), directory)
