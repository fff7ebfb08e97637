"""MLflow as the release desk: runs, registered versions, aliases. Only this room imports mlflow, and only when asked.

A version is registered as pending before it is published, and confirmed afterwards. Runs and registry are joined with
repositories by ``Manifest.content_sha256``; a manifest holds neither run id nor registry number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec
    from repogen.values.registry import ModelRegistry
    from repogen.values.tracking import BuildTracker, Tracking


def tracking_of(spec: Spec | None, flag: str | None, root: Path) -> Tracking:
    """Return where to track; see ``repogen.track.uri.tracking_of``."""
    from repogen.track.uri import tracking_of as found  # noqa: PLC0415 - light, but not for an untracked build

    return found(spec, flag, root)


def preflight(tracking: Tracking) -> None:
    """Ask the server within ten seconds, without importing mlflow; see ``repogen.track.reachable.preflight``."""
    # The module has another name than this function: its import would put itself in the function's place.
    from repogen.track.reachable import preflight as ask  # noqa: PLC0415 - as above

    ask(tracking)


def open_registry(tracking: Tracking) -> ModelRegistry:
    """Connect to the model registry.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not answer, or not as MLflow.
    """
    from repogen.track.client import connect  # noqa: PLC0415 - imports mlflow
    from repogen.track.registry import MlflowRegistry  # noqa: PLC0415 - the same

    preflight(tracking)
    return MlflowRegistry(connect(tracking))


def open_tracker(tracking: Tracking) -> BuildTracker:
    """Connect to the tracking server for one build.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server does not answer, or not as MLflow.
    """
    from repogen.track.client import connect  # noqa: PLC0415 - imports mlflow
    from repogen.track.runs import MlflowTracker  # noqa: PLC0415 - the same

    return MlflowTracker(connect(tracking))


def pin_model(tracking: Tracking, uri: str) -> str:
    """Return the URI of the version that ``uri`` means now; see ``repogen.track.download.pinned_uri``."""
    from repogen.track.client import connect  # noqa: PLC0415 - imports mlflow
    from repogen.track.download import is_pinned, pinned_uri  # noqa: PLC0415 - for such sources alone

    if is_pinned(uri):
        return uri
    preflight(tracking)
    return pinned_uri(connect(tracking), uri)


def fetch_model(tracking: Tracking, uri: str, directory: Path) -> Path:
    """Download a model's files; see ``repogen.track.download.download_model``."""
    from repogen.track.client import connect  # noqa: PLC0415 - imports mlflow
    from repogen.track.download import download_model, pinned_uri  # noqa: PLC0415 - for such sources alone

    preflight(tracking)
    connection = connect(tracking)
    return download_model(connection, pinned_uri(connection, uri), directory)
