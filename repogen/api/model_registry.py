"""The model registry of a function of the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.spec import optional_spec
from repogen.registry.mlflow.uri import tracking_of

if TYPE_CHECKING:
    from repogen.artifacts.registry import ModelRegistry
    from repogen.spec.models import Spec


def open_registry(spec: Spec | Path | str | None, tracking_uri: str | None) -> ModelRegistry:
    """Connect to the MLflow server that a spec, a URI or the environment names.

    Raises:
        SpecError: None of them names a server, or the spec is wrong.
        TrackingError: The server cannot be reached.
    """
    from repogen.registry.mlflow import access  # noqa: PLC0415 - imports mlflow

    return access.open_registry(tracking_of(optional_spec(spec), tracking_uri, Path()))
