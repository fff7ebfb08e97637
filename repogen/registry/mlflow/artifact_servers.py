"""The servers to which MLflow may send credentials when it reads or writes artifacts.

Any user of a registry can register a version whose files are at any URI, or create an experiment whose artifacts are.
MLflow sends the credentials of the tracking server to every HTTP server that such a URI names, and those of Azure to
every domain. While repogen calls MLflow, they are sent to the tracking server, to Azure, and to servers that the user
names in REPOGEN_ARTIFACT_SERVERS. Sources: mlflow.store.artifact.http_artifact_repo, mlflow_artifacts_repo,
azure_data_lake_artifact_repo and azure_blob_artifact_repo of MLflow 3.17.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from repogen.registry.mlflow.library import MlflowException, artifact_stores, get_default_host_creds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VARIABLE = "REPOGEN_ARTIFACT_SERVERS"
_PROXIED = "mlflow-artifacts"
_AZURE = {
    "abfss": (
        ".dfs.core.windows.net",
        ".dfs.core.chinacloudapi.cn",
        ".dfs.core.usgovcloudapi.net",
        ".dfs.fabric.microsoft.com",
    ),
    "wasbs": (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net"),
}
"""Schemes and domains of Azure."""
_PORTS = {"http": 80, "https": 443}

_lock = threading.Lock()
_tracking_uris: Counter[str] = Counter()
"""The tracking servers of the calls in progress; without a call, MLflow is not restricted."""
_unrestricted = artifact_stores.get_artifact_repository


class ForeignServerError(MlflowException):
    """Artifacts are on a server that is not the user's."""


@contextmanager
def own_servers_only(tracking_uri: str) -> Iterator[None]:
    """Reject artifacts on a foreign server while the block runs, in every thread.

    Raises:
        ForeignServerError: MLflow would send credentials to it.
    """
    with _lock:
        _tracking_uris[tracking_uri] += 1
    try:
        yield
    finally:
        with _lock:
            _tracking_uris[tracking_uri] -= 1
            if not _tracking_uris[tracking_uri]:
                del _tracking_uris[tracking_uri]


def foreign_server(uri: str, tracking_uris: Iterable[str], allowed: str = "") -> str:
    """Return the server of an artifact URI if it is neither a tracking server nor allowed, else an empty text.

    A URI that cannot be parsed is returned as it is.

    >>> foreign_server("https://other.example/api/2.0/mlflow-artifacts/artifacts/1", ["https://mlflow.example"])
    'other.example'
    >>> foreign_server("mlflow-artifacts:/1/artifacts", ["https://mlflow.example"])
    ''

    Args:
        uri: URI of artifacts, as a server names it.
        tracking_uris: The tracking servers.
        allowed: Other servers, ``HOST`` or ``HOST:PORT``, separated by commas.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
        own = [urlsplit(each) for each in tracking_uris]
    except ValueError:
        return uri
    if parts.scheme not in {*_PORTS, _PROXIED, *_AZURE} or (parts.scheme == _PROXIED and not parts.netloc):
        return ""
    # libraries differ in which part of other URIs they take for the host
    is_plain = bool(host) and "\\" not in uri and parts.netloc.count("@") == (parts.scheme in _AZURE)
    names = {host, parts.netloc.rpartition("@")[2].lower()}
    if is_plain and names & {name.strip().lower() for name in allowed.split(",")}:
        return ""
    if parts.scheme in _AZURE:
        return "" if is_plain and host.endswith(_AZURE[parts.scheme]) else parts.netloc
    schemes = {each.scheme for each in own} if parts.scheme == _PROXIED else {parts.scheme}
    servers = {(each.scheme, each.hostname, each.port or _PORTS.get(each.scheme)) for each in own}
    is_own = any((scheme, host, port or _PORTS.get(scheme)) in servers for scheme in schemes)
    return "" if is_plain and is_own else parts.netloc


def _checked(artifact_uri: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - of MLflow
    """Return the store of artifacts at a URI, as MLflow does.

    Raises:
        ForeignServerError: MLflow would send credentials to a foreign server.
    """
    with _lock:
        tracking_uris = tuple(_tracking_uris)
    server = foreign_server(artifact_uri, tracking_uris, os.environ.get(VARIABLE, "")) if tracking_uris else ""
    if server and (_scheme(artifact_uri) not in {*_PORTS, _PROXIED} or _has_credentials(artifact_uri)):
        raise ForeignServerError(
            f"the artifacts are on the server {server!r:.100}, to which MLflow would send your credentials"
        )
    return _unrestricted(artifact_uri, *args, **options)


def _scheme(uri: str) -> str:
    try:
        return urlsplit(uri).scheme
    except ValueError:
        return ""


def _has_credentials(uri: str) -> bool:
    credentials = get_default_host_creds(uri)  # type: ignore[no-untyped-call]  # mlflow is not typed
    names = ("password", "token", "auth", "aws_sigv4", "client_cert_path")
    return any(getattr(credentials, name) for name in names)


# also the stores of `runs:/` and `models:/` URIs create theirs through this object
artifact_stores.get_artifact_repository = _checked  # type: ignore[method-assign]  # there is no other place for it
