"""The servers and directories in which MLflow may read and write artifacts.

Any user of a registry can register a version whose files are at any URI, or create an experiment whose artifacts are.
MLflow sends the credentials of the tracking server to every HTTP server that such a URI names, and those of Azure and
AWS to every domain. It waits indefinitely for servers of FTP, and reads and writes any directory of this machine.
While repogen calls MLflow, it uses the tracking server, Azure, Cloudflare, and what the user names in
REPOGEN_ARTIFACT_SERVERS. Of the directories of this machine, it uses those that the variable names; and, if the
tracking server is a database, those of MLflow's and repogen's default places that other users cannot replace, or any
if only this user can change the database, because whoever can write to it can name any directory. Sources:
mlflow.store.artifact.http_artifact_repo, mlflow_artifacts_repo, azure_data_lake_artifact_repo,
azure_blob_artifact_repo, r2_artifact_repo, ftp_artifact_repo and local_artifact_repo of MLflow 3.17.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from repogen.files import is_inside
from repogen.files.paths import is_own_place, is_private
from repogen.registry.mlflow.library import (
    MlflowException,
    artifact_stores,
    get_default_host_creds,
    local_file_uri_to_path,
)
from repogen.registry.mlflow.uri import ARTIFACTS_DIRECTORY, sqlite_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VARIABLE = "REPOGEN_ARTIFACT_SERVERS"
_PROXIED = "mlflow-artifacts"
_DOMAINS = {
    "abfss": (
        ".dfs.core.windows.net",
        ".dfs.core.chinacloudapi.cn",
        ".dfs.core.usgovcloudapi.net",
        ".dfs.fabric.microsoft.com",
    ),
    "wasbs": (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net"),
    "b2": (".backblazeb2.com",),
    "r2": (".r2.cloudflarestorage.com",),
}
"""Schemes and domains of Azure, Backblaze and Cloudflare."""
_OTHER_SERVERS = frozenset({"ftp", "hdfs", "sftp", "viewfs"})
_LOCAL = frozenset({"", "file"})
_DIRECTORIES = (ARTIFACTS_DIRECTORY, "mlruns")
"""Where repogen, and MLflow by default, store artifacts: next to a sqlite database, or in the working directory."""
_PORTS = {"http": 80, "https": 443}

_MAX_URIS = 8
"""URIs that lead to each other: a version leads to a logged model or a run, which leads to a directory or a server."""

_lock = threading.Lock()
_nested = threading.local()
_tracking_uris: Counter[str] = Counter()
"""The tracking servers of the calls in progress; without a call, MLflow is not restricted."""
_unrestricted = artifact_stores.get_artifact_repository


class ForeignServerError(MlflowException):
    """Artifacts are on a server, or in a directory, that is not the user's.

    Attributes:
        hint: What to do if it is.
    """

    def __init__(self, message: str, hint: str) -> None:
        """Keep the hint."""
        super().__init__(message)
        self.hint = hint


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
    on_servers = {*_PORTS, _PROXIED, *_DOMAINS, *_OTHER_SERVERS}
    if parts.scheme not in on_servers or (parts.scheme == _PROXIED and not parts.netloc):
        return ""
    # libraries differ in which part of other URIs they take for the host
    users = {int(parts.scheme in _DOMAINS), int(parts.scheme in {*_DOMAINS, *_OTHER_SERVERS})}
    is_plain = bool(host) and "\\" not in uri and parts.netloc.count("@") in users
    names = {host, parts.netloc.rpartition("@")[2].lower()}
    if is_plain and names & {name.strip().lower() for name in allowed.split(",")}:
        return ""
    if parts.scheme in _DOMAINS:
        return "" if is_plain and host.endswith(_DOMAINS[parts.scheme]) else parts.netloc
    if parts.scheme in _OTHER_SERVERS:
        return parts.netloc or uri
    schemes = {each.scheme for each in own} if parts.scheme == _PROXIED else {parts.scheme}
    servers = {(each.scheme, each.hostname, each.port or _PORTS.get(each.scheme)) for each in own}
    is_own = any((scheme, host, port or _PORTS.get(scheme)) in servers for scheme in schemes)
    return "" if is_plain and is_own else parts.netloc


def _checked(artifact_uri: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - of MLflow
    """Return the store of artifacts at a URI, as MLflow does.

    Raises:
        ForeignServerError: MLflow would send credentials to a foreign server, or use a foreign directory.
    """
    with _lock:
        tracking_uris = tuple(_tracking_uris)
    allowed = os.environ.get(VARIABLE, "")
    server = foreign_server(artifact_uri, tracking_uris, allowed) if tracking_uris else ""
    if server and (_scheme(artifact_uri) not in {*_PORTS, _PROXIED} or _has_credentials(artifact_uri)):
        raise ForeignServerError(
            f"the artifacts are on the server {server!r:.100}, to which MLflow would send your credentials",
            f"if that server is yours, set {VARIABLE} to its HOST:PORT; if not, a user of the registry may have "
            "registered it to collect credentials",
        )
    if tracking_uris and is_foreign_directory(artifact_uri, tracking_uris, allowed):
        raise ForeignServerError(
            f"the artifacts are in a directory of this machine, {artifact_uri!r:.200}",
            f"if it is the directory of your artifacts, set {VARIABLE} to its path; if not, a user of the registry may "
            "have registered it to read or replace your files",
        )
    depth = getattr(_nested, "depth", 0)
    if depth >= _MAX_URIS:
        raise MlflowException(f"the URI of the artifacts leads to more than {_MAX_URIS} other URIs")
    _nested.depth = depth + 1
    try:
        return _unrestricted(artifact_uri, *args, **options)
    finally:
        _nested.depth = depth


def is_foreign_directory(uri: str, tracking_uris: Iterable[str], allowed: str = "") -> bool:
    """Return whether an artifact URI is a path of this machine that a tracking server must not name.

    >>> is_foreign_directory("file:///dev", ["https://mlflow.example"])
    True
    >>> is_foreign_directory("file:///dev", ["postgresql://mlflow.example/db"])
    True
    >>> is_foreign_directory("file:///home/me/mlartifacts/1", ["sqlite:////home/me/mlflow.db"])
    False

    Args:
        uri: URI of artifacts, as a server names it.
        tracking_uris: The tracking servers.
        allowed: Directories and other servers, separated by commas.
    """
    if _scheme(uri) not in _LOCAL:
        return False
    path = _local_path(uri)
    named = (name.strip() for name in allowed.split(","))
    if any(name.startswith("/") and is_inside(path, Path(name)) for name in named):
        return False
    return not any(_may_name(each, path) for each in tracking_uris)


def _may_name(tracking_uri: str, path: Path) -> bool:
    """Return whether a tracking server may name a directory of this machine: no server, and not any database."""
    if _scheme(tracking_uri) in _PORTS or tracking_uri.partition(":")[0] == "databricks":
        return False
    database = sqlite_file(tracking_uri)
    store = None if database is None else Path(database)
    if _scheme(tracking_uri) in _LOCAL:
        store = _local_path(tracking_uri)
    if store is not None and is_private(store):
        return True
    places = [Path(), *([] if store is None else [store.parent])]
    owner = store.parent.stat().st_uid if store is not None and store.parent.is_dir() else None
    # in a directory such as /tmp, another user could make a link to any directory
    return is_own_place(path, owner) and any(
        is_inside(path, place / name) and is_own_place(place / name, owner) for place in places for name in _DIRECTORIES
    )


def _local_path(uri: str) -> Path:
    return Path(local_file_uri_to_path(uri))  # type: ignore[no-untyped-call]  # mlflow is not typed


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
artifact_stores.get_artifact_repository = _checked  # type: ignore[method-assign]  # the library has no hook for this
