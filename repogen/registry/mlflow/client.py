"""A connection to MLflow; failures are reported in bounded time as one ``TrackingError``."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from repogen.errors import RepogenError, TrackingError, scrubbed
from repogen.registry.mlflow.artifact_servers import ForeignServerError, own_servers_only
from repogen.registry.mlflow.library import (
    MlflowClient,
    MlflowException,
    RequestException,
    UnsupportedURIError,
    mlflow,
    registry_servers,
    tracking_servers,
)
from repogen.registry.mlflow.uri import ARTIFACTS_DIRECTORY, REGISTRY_URI, TRACKING_URI, redact_uri, sqlite_file
from repogen.responses import ResponseError
from repogen.spec.tracking import URI_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.tracking import Tracking

_MAX_MESSAGE = 300


@dataclass(frozen=True)
class Connection:
    """MLflow's client and the experiment.

    Attributes:
        client: MLflow's client; safe to use from several threads.
        tracking: The tracking server.
        create_lock: Held while something is created that may already exist.
    """

    client: MlflowClient
    tracking: Tracking
    create_lock: threading.Lock

    @contextmanager
    def doing(self, what: str, hint: str = "") -> Iterator[None]:
        """Turn an exception of MLflow or the network into a ``TrackingError`` that says that ``what`` failed.

        Also any exception of MLflow after a malformed response, and those of the libraries of artifact stores: any user
        of a registry can register a version whose files are anywhere, and it must not end the sync of the others.

        In the block, MLflow does not send credentials to other servers.
        """
        try:
            with own_servers_only(self.tracking.uri):
                yield
        except ForeignServerError as error:
            raise TrackingError(
                f"{what} failed: {error.message}", error.hint, code="tracking.artifact-server"
            ) from error
        except (MlflowException, RequestException, ResponseError, OSError) as error:
            raise TrackingError(
                f"{what} failed: {_one_line(error, self.tracking)} (MLflow at {redact_uri(self.tracking.uri)})",
                hint or "run the same command again when the server is available",
                code=_code(error),
                details=_without_user(str(error), self.tracking),
            ) from error
        except (RepogenError, MemoryError):
            raise
        except Exception as error:
            if type(error) is RuntimeError:  # Python's, if no thread is left
                raise
            raise TrackingError(
                f"{what} failed: {type(error).__name__}: {_one_line(error, self.tracking)} (MLflow at "
                f"{redact_uri(self.tracking.uri)})",
                hint
                or "the server, or the store of the artifacts, does not respond as MLflow expects, or a package for "
                "the store is not installed",
                code="tracking.server",
                details=_without_user(traceback.format_exc(), self.tracking),
            ) from error

    def experiment(self) -> str:
        """Return the ID of the experiment; it is created if it does not exist."""
        name = self.tracking.experiment
        with self.create_lock, self.doing(f"finding experiment {name!r}"):
            experiment = self.client.get_experiment_by_name(name)
            if experiment is None:
                return self._create_experiment(name)
        if experiment.lifecycle_stage != "active":
            raise TrackingError(
                f"the experiment {name!r} was deleted in MLflow",
                "restore it, or set another one in mlflow.experiment",
                code="tracking.experiment",
            )
        return str(experiment.experiment_id)

    def _create_experiment(self, name: str) -> str:
        database = sqlite_file(self.tracking.uri)
        location = str(Path(database).parent / ARTIFACTS_DIRECTORY) if database is not None else None
        try:
            return str(self.client.create_experiment(name, artifact_location=location))
        except MlflowException:  # a concurrent build created it
            experiment = self.client.get_experiment_by_name(name)
            if experiment is None:
                raise
            return str(experiment.experiment_id)


def connect(tracking: Tracking) -> Connection:
    """Open MLflow's client; a sqlite database is created, but never migrated.

    Raises:
        TrackingError: The database cannot be opened, or belongs to another version of MLflow.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations between mlflow and its own requirements
        client = _client(tracking)
    return Connection(client, tracking, threading.Lock())


def _client(tracking: Tracking) -> MlflowClient:
    database = sqlite_file(tracking.uri)
    if database is not None:
        from repogen.registry.mlflow.database import pin  # noqa: PLC0415 - imports SQLAlchemy

        pin(database)
    try:
        set_servers(tracking.uri, tracking.uri)
        client = MlflowClient(tracking.uri, tracking.uri)
        if not tracking.uri.startswith(("http://", "https://")):  # the preflight has sent an HTTP server a request
            client.search_experiments(max_results=1)
            client.search_registered_models(max_results=1)
    except Exception as error:
        if not isinstance(error, (MlflowException, OSError, ImportError)) and not _is_database_error(error):
            raise
        is_unsupported = isinstance(error, UnsupportedURIError) or urlsplit(tracking.uri).scheme in {"", "file"}
        raise TrackingError(
            f"the tracking store {redact_uri(tracking.uri)} can't be opened: {_one_line(error, tracking)}",
            f"use the URI of a server or of a database, {URI_EXAMPLES}"
            if is_unsupported
            else "check that it is a database of this version of MLflow; `mlflow db upgrade URI` migrates an older one",
            code="tracking.uri" if is_unsupported else "tracking.database",
            details=_without_user(str(error), tracking),
        ) from error
    return client


def set_servers(tracking_uri: str | None, registry_uri: str | None = None) -> None:
    """Set mlflow's own servers, which it uses when it registers a logged model in a database.

    mlflow also sets environment variables, which other processes would inherit and later builds would use: they are
    left unchanged.

    Args:
        tracking_uri: The tracking server; None for the one that the environment sets.
        registry_uri: The registry; None for the tracking server.
    """
    before = {name: os.environ.get(name) for name in (TRACKING_URI, REGISTRY_URI)}
    try:
        mlflow.set_tracking_uri(tracking_uri)  # type: ignore[arg-type]  # None resets it
        mlflow.set_registry_uri(registry_uri)  # type: ignore[arg-type]  # the same
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def servers_restored() -> Iterator[None]:
    """Restore mlflow's own servers at the end of the block: those of the program that called repogen."""
    tracking, registry = tracking_servers._tracking_uri, registry_servers._registry_uri  # noqa: SLF001 - no public names
    try:
        yield
    finally:
        set_servers(tracking, registry)


def _is_database_error(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in {"sqlalchemy", "alembic", "psycopg", "psycopg2"}


def _code(error: Any) -> str:  # noqa: ANN401 - only MlflowException has the method, and without types
    status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 0
    return {401: "tracking.credentials", 403: "tracking.credentials", 404: "tracking.gone"}.get(status, "tracking")


def _one_line(error: BaseException, tracking: Tracking) -> str:
    text = " ".join(scrubbed(_without_user(str(error), tracking)).split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def _without_user(text: str, tracking: Tracking) -> str:
    """Return the text of an error without user and password in the tracking URI, which an option may have set."""
    return text.replace(tracking.uri, redact_uri(tracking.uri))
