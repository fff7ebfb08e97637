"""Opens MLflow for a command, after a preflight. Importing this module does not import mlflow; calling it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.registry.mlflow.preflight import preflight
from repogen.registry.mlflow.uri import is_pinned

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry
    from repogen.artifacts.tracking import BuildTracker, Tracking
    from repogen.artifacts.tune import TuneTracker


def open_registry(tracking: Tracking) -> ModelRegistry:
    """Connect to the model registry.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not respond, or is not an MLflow server.
    """
    preflight(tracking)
    from repogen.registry.mlflow.registry import MlflowRegistry  # noqa: PLC0415 - imports mlflow

    return MlflowRegistry.open(tracking)


def open_tracker(tracking: Tracking) -> BuildTracker:
    """Connect to the tracking server for one build; the caller has run the preflight.

    Raises:
        TrackingError: The server does not respond, or is not an MLflow server.
    """
    from repogen.registry.mlflow.runs import MlflowTracker  # noqa: PLC0415 - imports mlflow

    return MlflowTracker.open(tracking)


def open_tune_tracker(tracking: Tracking) -> TuneTracker:
    """Connect to the tracking server for the trials of one model.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not respond, or is not an MLflow server.
    """
    preflight(tracking)
    from repogen.registry.mlflow.tuning import MlflowTuneTracker  # noqa: PLC0415 - imports mlflow

    return MlflowTuneTracker.open(tracking)


def pin_model(tracking: Tracking, uri: str) -> str:
    """Return the URI of the version that ``uri`` refers to now; see ``download.pinned_uri``."""
    if is_pinned(uri):
        return uri
    preflight(tracking)
    from repogen.registry.mlflow.download import connect, pinned_uri  # noqa: PLC0415 - imports mlflow

    return pinned_uri(connect(tracking), uri)


def fetch_model(tracking: Tracking, uri: str, directory: Path, code_base: Path | None = None) -> Path:
    """Download the files of the model that ``uri`` refers to now; see ``download.download_model``."""
    preflight(tracking)
    from repogen.registry.mlflow.download import connect, download_model, pinned_uri  # noqa: PLC0415 - imports mlflow

    connection = connect(tracking)
    return download_model(connection, pinned_uri(connection, uri), directory, code_base)
