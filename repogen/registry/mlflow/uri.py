"""Which tracking server is meant, without its credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from repogen.artifacts.tracking import Tracking
from repogen.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec

_ENV = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_REMEDY = (
    'give --tracking-uri, set MLFLOW_TRACKING_URI, or write mlflow: {tracking_uri: "sqlite:///mlflow.db"} in the spec'
)


@dataclass(frozen=True)
class Credentials:
    """What a URI held before its host."""

    user: str
    password: str


def tracking_of(spec: Spec | None, flag: str | None, root: Path) -> Tracking:
    """Return where to track: the flag, else MLFLOW_TRACKING_URI, else what the spec says.

    Credentials in an HTTP URI are moved to MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, where MLflow finds
    them and no message shows them.

    Args:
        spec: The spec, if there is one.
        flag: ``--tracking-uri``.
        root: Where relative sqlite paths start without a spec; with one, its directory.

    Raises:
        SpecError: None of them names one.
    """
    section = spec.mlflow if spec is not None else None
    found = flag or os.environ.get(_ENV) or (section.tracking_uri if section is not None else "")
    if not found:
        raise SpecError("no MLflow tracking server is named", _REMEDY, code="tracking.no-uri")
    base = spec.root if spec is not None else root
    uri, credentials = without_credentials(_absolute(found, base))
    if credentials is not None:
        os.environ.setdefault("MLFLOW_TRACKING_USERNAME", credentials.user)
        os.environ.setdefault("MLFLOW_TRACKING_PASSWORD", credentials.password)
    return Tracking(
        uri=uri,
        experiment=section.experiment if section is not None else "repogen",
        register=section.register_models if section is not None else True,
        root=base,
    )


def without_credentials(uri: str) -> tuple[str, Credentials | None]:
    """Return an HTTP URI without its user and password, and those; a database's URI needs them and is left alone."""
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or parts.username is None:
        return uri, None
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, Credentials(unquote(parts.username), unquote(parts.password or ""))


def shown(uri: str) -> str:
    """Return a URI as a message may show it: without password, query or fragment."""
    parts = urlsplit(uri)
    netloc = parts.netloc.rpartition("@")[2]
    return SplitResult(parts.scheme, netloc, parts.path, "", "").geturl() if netloc else uri.partition("?")[0]


def sqlite_file(uri: str) -> str | None:
    """Return the path of a sqlite database, None for any other URI."""
    scheme, _, path = uri.partition(":///")
    return path.partition("?")[0] if scheme.partition("+")[0] == "sqlite" and path else None


def _absolute(uri: str, base: Path) -> str:
    path = sqlite_file(uri)
    if path is None or path.startswith("/"):
        return uri
    return uri.replace(path, str((base / path).absolute()), 1)
