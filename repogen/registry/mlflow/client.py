"""A connection to MLflow whose failures come in bounded time and as one clear error."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repogen.errors import TrackingError
from repogen.registry.mlflow.uri import shown, sqlite_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlflow.tracking import MlflowClient

    from repogen.artifacts.tracking import Tracking

_BOUNDS = {
    # A call that is refused fails after about 3 s, one that hangs after about 2 minutes; MLflow's own bounds are four
    # minutes and twelve. Who needs others sets them.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "40",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # stdout is repogen's, and with --json one document.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
_SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ARTIFACTS = "mlartifacts"


@dataclass(frozen=True)
class Connection:
    """MLflow's client and the experiment.

    Attributes:
        client: Safe to use from several threads.
        tracking: What it is connected to.
        once: Held while something is created that may exist already.
    """

    client: MlflowClient
    tracking: Tracking
    once: threading.Lock

    @contextmanager
    def doing(self, what: str, hint: str = "") -> Iterator[None]:
        """Turn what MLflow or the network raises in the block into a ``TrackingError`` that says ``what`` failed."""
        import requests  # noqa: PLC0415 - comes with mlflow
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - a tracked build's only

        try:
            yield
        except (MlflowException, requests.RequestException, OSError) as error:
            raise TrackingError(
                f"{what} failed: {_one_line(error)} (MLflow at {shown(self.tracking.uri)})",
                hint or "when the server is back, run the same command again",
                code=_code(error),
                details=scrubbed(str(error)),
            ) from error

    def experiment(self) -> str:
        """Return the experiment's id; it is created when there is none."""
        name = self.tracking.experiment
        with self.once, self.doing(f"finding experiment {name!r}"):
            found = self.client.get_experiment_by_name(name)
            if found is None:
                return self._create_experiment(name)
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"the experiment {name!r} was deleted in MLflow",
                "restore it, or name another in mlflow.experiment",
                code="tracking.experiment",
            )
        return str(found.experiment_id)

    def _create_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

        database = sqlite_file(self.tracking.uri)
        location = str(Path(database).parent / _ARTIFACTS) if database is not None else None
        try:
            return str(self.client.create_experiment(name, artifact_location=location))
        except MlflowException:  # another build was faster
            found = self.client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)


def connect(tracking: Tracking) -> Connection:
    """Import mlflow and open its client; a sqlite database is created, and migrated by nobody but MLflow's own tools.

    Raises:
        TrackingError: The database can't be opened, or is of another MLflow.
    """
    for key, value in _BOUNDS.items():
        os.environ.setdefault(key, value)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations between mlflow and its own requirements
        client = _client(tracking)
    return Connection(client, tracking, threading.Lock())


def _client(tracking: Tracking) -> MlflowClient:
    import mlflow  # noqa: PLC0415 - two seconds, for a tracked build only
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - the same
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - the same

    for name in ("mlflow", "alembic"):  # its import set levels of its own
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        mlflow.set_tracking_uri(tracking.uri)
        mlflow.set_registry_uri(tracking.uri)
        client = MlflowClient(tracking.uri, tracking.uri)
        if not tracking.uri.startswith(("http://", "https://")):  # HTTP was asked in the preflight
            client.search_experiments(max_results=1)
            client.search_registered_models(max_results=1)
    except Exception as error:
        if not isinstance(error, (MlflowException, OSError)) and not _of_database(error):
            raise
        raise TrackingError(
            f"the tracking store {shown(tracking.uri)} can't be opened: {_one_line(error)}",
            "is it a database of MLflow, and of this version? `mlflow db upgrade URI` migrates an older one",
            code="tracking.database",
            details=scrubbed(str(error)),
        ) from error
    return client


def scrubbed(text: str) -> str:
    """Return text without the secrets that this process knows."""
    for name in _SECRETS:
        secret = os.environ.get(name)
        if secret:
            text = text.replace(secret, "***")
    return text


def _of_database(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in {"sqlalchemy", "alembic", "psycopg2"} or isinstance(
        error, ImportError
    )


def _one_line(error: BaseException) -> str:
    text = scrubbed(" ".join(str(error).split()))
    return text if len(text) <= 300 else f"{text[:300]}…"  # noqa: PLR2004 - a message, not a page


def _code(error: Any) -> str:  # noqa: ANN401 - only MlflowException has the method
    status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 0
    return {401: "tracking.credentials", 403: "tracking.credentials", 404: "tracking.gone"}.get(status, "tracking")
