"""The mlflow library, imported with bounded HTTP requests and without its warnings and logs.

The other modules of this package import mlflow's names from here, so that these settings apply to its import.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import warnings
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from repogen.files import open_regular
from repogen.files.content import copy_bytes
from repogen.files.paths import cache_directory
from repogen.files.resolve import directory_to_write
from repogen.responses import ResponseError, limited_adapter, require_size, without_netrc

_BLOCK = 2**20

_DEFAULTS = {
    # A rejected call fails after about 3 s, one without a response after about 2 minutes; MLflow's own limits are four
    # and twelve minutes. Values that the user has set are kept.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "40",
    # a server could ask for hours between the attempts
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # stdout is for repogen's output, which is one JSON document with --json.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


def silence_logs() -> None:
    """Let mlflow and the libraries that it uses log errors only: a failed login to Azure logs a page of warnings."""
    for name in ("mlflow", "alembic", "azure"):
        logging.getLogger(name).setLevel(logging.ERROR)


for _key, _value in _DEFAULTS.items():
    os.environ.setdefault(_key, _value)
silence_logs()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations between mlflow and its own requirements
    import mlflow
    from mlflow import environment_variables as variables
    from mlflow.entities import (
        Dataset,
        DatasetInput,
        InputTag,
        LoggedModel,
        LoggedModelOutput,
        Metric,
        Param,
        Run,
        RunTag,
    )
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model, ModelSignature
    from mlflow.store.artifact import http_artifact_repo
    from mlflow.store.artifact.artifact_repository_registry import (
        _artifact_repository_registry as artifact_stores,
    )
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.tracking import MlflowClient
    from mlflow.tracking._model_registry import utils as registry_servers
    from mlflow.tracking._tracking_service import utils as tracking_servers
    from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException as UnsupportedURIError
    from mlflow.types import Schema, TensorSpec
    from mlflow.utils import file_utils, request_utils
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.file_utils import local_file_uri_to_path
    from requests import RequestException  # installed with mlflow
silence_logs()  # importing mlflow sets levels of its own


def _limit_responses() -> None:
    """Limit the responses to all requests that MLflow sends; older versions use the adapter of requests."""
    name = next(name for name in ("TCPKeepAliveHTTPAdapter", "HTTPAdapter") if hasattr(request_utils, name))
    setattr(request_utils, name, limited_adapter(getattr(request_utils, name)))
    request_utils._cached_get_request_session.cache_clear()  # noqa: SLF001 - sessions with the other adapter


def _ignore_netrc() -> None:
    """Send no credentials of ``~/.netrc``: MLflow has its own, which they would replace."""
    get_session: Any = request_utils._get_request_session  # noqa: SLF001 - every request calls it

    @wraps(get_session)
    def session_without_netrc(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - of MLflow
        return without_netrc(get_session(*args, **options))

    setattr(request_utils, get_session.__name__, session_without_netrc)


def _limit_uploaded_parts() -> None:
    """Limit the upload of large files in parts, to URLs that a server names: MLflow sends them without a timeout."""
    create: Any = HttpArtifactRepository.create_multipart_upload
    send: Any = request_utils.cloud_storage_http_request
    settings: Any = variables

    def put(url: str, **options: Any) -> Any:  # noqa: ANN401 - of requests
        return send(
            "put",
            url,
            max_retries=settings.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get(),
            backoff_factor=settings.MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR.get(),
            respect_retry_after_header=False,
            timeout=settings.MLFLOW_HTTP_REQUEST_TIMEOUT.get(),
            **options,
        )

    @wraps(create)
    def create_with_every_part(self: Any, local_file: Any, num_parts: int = 1, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - of MLflow
        upload = create(self, local_file, num_parts, *args, **options)
        if len(upload.credentials) != num_parts:
            raise ResponseError(f"the server expects {len(upload.credentials)} parts of a file that has {num_parts}")
        return upload

    # the module uses only this function of requests
    setattr(http_artifact_repo, "requests", SimpleNamespace(put=put))  # noqa: B010 - not an export for mypy
    setattr(HttpArtifactRepository, create.__name__, create_with_every_part)


def _limit_parts() -> None:
    """Limit files that MLflow 3.11 and later download in parts, from a URL and with a size that a server names."""
    download: Any = getattr(HttpArtifactRepository, "_multipart_download", None)
    if download is None:
        return

    @wraps(download)
    def limited_download(self: Any, *args: Any, file_size: object, **options: Any) -> None:  # noqa: ANN401 - of MLflow
        require_size(file_size)
        download(self, *args, file_size=file_size, **options)

    setattr(HttpArtifactRepository, download.__name__, limited_download)


def _limit_local_files() -> None:
    """Let artifacts in directories be regular files: MLflow would copy a device, which has no end, or wait for one."""

    def download(self: Any, remote_file_path: str, local_path: str) -> None:  # noqa: ANN401 - of MLflow
        with open_regular(Path(self.get_local_path(remote_file_path))) as source, Path(local_path).open("wb") as target:
            size = os.fstat(source.fileno()).st_size
            require_size(size)
            copy_bytes(source, target, size)

    setattr(LocalArtifactRepository, LocalArtifactRepository._download_file.__name__, download)  # noqa: SLF001 - the library has no hook for this


def _keep_local_directories() -> None:
    """Write artifacts in directories without following symlinks that another user puts there during the write."""

    def log_artifact(self: Any, local_file: str, artifact_path: str | None = None) -> None:  # noqa: ANN401 - of MLflow
        file = Path(local_file)
        with directory_to_write(Path(self.artifact_dir, artifact_path or "")) as directory:
            new = directory / f".{secrets.token_hex(8)}"
            try:
                with open_regular(file) as source, new.open("xb") as target:
                    shutil.copyfileobj(source, target, _BLOCK)
                    os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o755)
                new.replace(directory / file.name)
            finally:
                new.unlink(missing_ok=True)

    setattr(LocalArtifactRepository, LocalArtifactRepository.log_artifact.__name__, log_artifact)


def _keep_locks_private() -> None:
    """Lock the creation of tables in the user's cache: in ``/tmp``, MLflow would open a link of another user."""
    lock: Any = file_utils.ExclusiveFileLock

    class PrivateLock(lock):  # type: ignore[misc] # of MLflow
        def __init__(self, path: str) -> None:
            directory = cache_directory(None) / "mlflow"
            directory.mkdir(parents=True, exist_ok=True)
            super().__init__(str(directory / Path(path).name))

    setattr(file_utils, lock.__name__, PrivateLock)


_limit_responses()
_ignore_netrc()
_limit_parts()
_limit_uploaded_parts()
_limit_local_files()
_keep_local_directories()
_keep_locks_private()

__all__ = [
    "Dataset",
    "DatasetInput",
    "InputTag",
    "LoggedModel",
    "LoggedModelOutput",
    "Metric",
    "MlflowClient",
    "MlflowException",
    "Model",
    "ModelSignature",
    "ModelVersion",
    "Param",
    "RegisteredModel",
    "RequestException",
    "Run",
    "RunTag",
    "Schema",
    "TensorSpec",
    "UnsupportedURIError",
    "artifact_stores",
    "get_artifact_repository",
    "get_default_host_creds",
    "local_file_uri_to_path",
    "mlflow",
    "registry_servers",
    "tracking_servers",
]
