"""The mlflow library, imported with bounded HTTP requests and without its warnings and logs.

The other modules of this package import mlflow's names from here, so that these settings apply to its import.
"""

from __future__ import annotations

import logging
import os
import warnings
from functools import wraps
from pathlib import Path
from typing import Any

from repogen.files import open_regular
from repogen.responses import limited_adapter, require_size

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
    """Let mlflow and alembic log errors only."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


for _key, _value in _DEFAULTS.items():
    os.environ.setdefault(_key, _value)
silence_logs()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations between mlflow and its own requirements
    import mlflow
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
    from mlflow.store.artifact.artifact_repository_registry import (
        _artifact_repository_registry as artifact_stores,
    )
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.tracking import MlflowClient
    from mlflow.tracking._model_registry import utils as registry_servers
    from mlflow.tracking._tracking_service import utils as tracking_servers
    from mlflow.types import Schema, TensorSpec
    from mlflow.utils import request_utils
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.file_utils import local_file_uri_to_path
    from requests import RequestException  # installed with mlflow
silence_logs()  # importing mlflow sets levels of its own


def _limit_responses() -> None:
    """Limit the responses to all requests that MLflow sends; older versions use the adapter of requests."""
    name = next(name for name in ("TCPKeepAliveHTTPAdapter", "HTTPAdapter") if hasattr(request_utils, name))
    setattr(request_utils, name, limited_adapter(getattr(request_utils, name)))
    request_utils._cached_get_request_session.cache_clear()  # noqa: SLF001 - sessions with the other adapter


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
            left = os.fstat(source.fileno()).st_size
            require_size(left)
            while left and (block := source.read(min(left, _BLOCK))):
                left -= len(block)
                target.write(block)

    setattr(LocalArtifactRepository, LocalArtifactRepository._download_file.__name__, download)  # noqa: SLF001 - there is no other place for it


_limit_responses()
_limit_parts()
_limit_local_files()

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
    "artifact_stores",
    "get_artifact_repository",
    "get_default_host_creds",
    "local_file_uri_to_path",
    "mlflow",
    "registry_servers",
    "tracking_servers",
]
