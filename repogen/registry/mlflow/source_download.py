"""A model that somebody keeps in MLflow, as the source of a build: which version is meant, and its files."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.registry.mlflow.client import Connection

_ALIAS = re.compile(r"models:/(?P<name>[^@]+)@(?P<alias>[^@/]+)")
_VERSION = re.compile(r"models:/(?P<name>[^@/]+)/(?P<version>[1-9][0-9]*)")
_LOGGED = re.compile(r"models:/m-[0-9a-f]{32}")
_MISSING = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND"}


def is_pinned(uri: str) -> bool:
    """Tell whether a URI will always mean the same model: a version's number, a logged model or a run's artifact."""
    return uri.startswith("runs:/") or bool(_VERSION.fullmatch(uri) or _LOGGED.fullmatch(uri))


def pinned_uri(connection: Connection, uri: str) -> str:
    """Return the URI of the version that an alias points to now; any other URI as it is.

    Raises:
        SourceError: There is no such model or alias, or the URI names a stage.
        TrackingError: The server can't be reached.
    """
    if is_pinned(uri):
        return uri
    named = _ALIAS.fullmatch(uri)
    if named is None:
        raise SourceError(
            f"{uri!r} names no version and no alias; MLflow's stages are gone",
            "write models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN/PATH",
            code="source.mlflow",
            where=uri,
        )
    with connection.doing(f"reading alias {named['alias']} of {named['name']}"), _existing(uri):
        found = connection.client.get_model_version_by_alias(named["name"], named["alias"])
    return f"models:/{named['name']}/{found.version}"


def download_model(connection: Connection, uri: str, directory: Path) -> Path:
    """Download a model's files.

    Args:
        connection: An open connection.
        uri: As ``pinned_uri`` returns it.
        directory: An existing empty directory.

    Returns:
        The directory that holds them, in or below ``directory``.

    Raises:
        SourceError: There is no such version, run or artifact.
        TrackingError: The server can't be reached.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository  # noqa: PLC0415 - heavy

    version = _VERSION.fullmatch(uri)
    with connection.doing(f"downloading {uri}"), _existing(uri):
        place = uri
        if version is not None:
            place = connection.client.get_model_version_download_uri(version["name"], version["version"])
        artifacts: Any = get_artifact_repository(place, tracking_uri=connection.tracking.uri)
        found = Path(artifacts.download_artifacts("", str(directory)))
    if not any(found.iterdir()):
        raise _no_such(uri, "no file is there")
    return found


@contextmanager
def _existing(uri: str) -> Iterator[None]:
    """Tell what is not there from a server that fails."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

    try:
        yield
    except MlflowException as error:
        if error.error_code in _MISSING:
            raise _no_such(uri, " ".join(str(error).split())[:200]) from error
        raise
    except FileNotFoundError as error:
        raise _no_such(uri, "its files are gone") from error


def _no_such(uri: str, why: str) -> SourceError:
    return SourceError(
        f"MLflow has no {uri}: {why}",
        "correct source.uri, or mlflow.tracking_uri",
        code="source.mlflow",
        where=uri,
    )
