"""URIs of tracking servers and of models in MLflow, and how to print them without credentials."""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from repogen.artifacts.tracking import Tracking
from repogen.errors import SpecError
from repogen.files import is_directory, is_foreign_in_public, is_like_tmp
from repogen.files.paths import real_path
from repogen.files.resolve import resolved
from repogen.spec.tracking import URI_EXAMPLES, malformed_uri

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec

MODEL_ALIAS = re.compile(r"models:/(?P<name>[^@]+)@(?P<alias>[^@/]+)")
MODEL_VERSION = re.compile(r"models:/(?P<name>[^@/]+)/(?P<version>[1-9][0-9]*)")
# Source: MLflow reserves `latest` and `v<number>`, and accepts word characters and hyphens.
_ALIAS = re.compile(r"(?!latest$|v[0-9]+$)[A-Za-z0-9_][A-Za-z0-9_-]{0,254}", re.ASCII)
_LOGGED_MODEL = re.compile(r"models:/m-[0-9a-f]{32}")
ARTIFACTS_DIRECTORY = "mlartifacts"
"""Directory of the artifacts, next to a sqlite database."""
TRACKING_URI = "MLFLOW_TRACKING_URI"
"""The environment variable that MLflow itself reads."""
REGISTRY_URI = "MLFLOW_REGISTRY_URI"
_REMEDY = (
    'pass --tracking-uri, set MLFLOW_TRACKING_URI, or write mlflow: {tracking_uri: "sqlite:///mlflow.db"} in the spec'
)


def require_alias(alias: str) -> None:
    """Require the name of an alias that MLflow accepts.

    Raises:
        SpecError: It does not.
    """
    if not _ALIAS.fullmatch(alias):
        raise SpecError(
            f"{alias!r} is not a valid alias",
            "use letters, digits, _ and -; `latest`, and `v` with a number, are reserved by MLflow",
            code="promotion.alias",
        )


def tracking_of(spec: Spec | None, flag: str | None, root: Path) -> Tracking:
    """Return where to track: the flag, or else MLFLOW_TRACKING_URI, or else what the spec configures.

    Credentials in an HTTP URI are moved to MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD: MLflow reads them
    there, and no message contains them.

    Args:
        spec: The spec; None without one.
        flag: Value of ``--tracking-uri``.
        root: Directory that relative sqlite paths start from without a spec; with one, the spec's directory is used.

    Raises:
        SpecError: No tracking server is configured, or its URI is malformed.
    """
    section = spec.mlflow if spec is not None else None
    origins = {
        "--tracking-uri": flag,
        TRACKING_URI: os.environ.get(TRACKING_URI),
        "mlflow.tracking_uri": section.tracking_uri if section is not None else "",
    }
    origin, configured = next(((origin, uri) for origin, uri in origins.items() if uri), ("", ""))
    if not configured:
        raise SpecError("no MLflow tracking server is configured", _REMEDY, code="tracking.no-uri")
    if problem := malformed_uri(configured):  # the message does not contain it: it may contain a password
        raise SpecError(f"{origin} {problem}", URI_EXAMPLES, code="tracking.uri")
    base = spec.root if spec is not None else root
    _require_own_database(configured, base)
    return Tracking(
        uri=_with_credentials_moved(_absolute(configured, base)),
        experiment=section.experiment if section is not None else "repogen",
        register=section.register_models if section is not None else True,
        root=base,
    )


def is_pinned(uri: str) -> bool:
    """Return whether a URI always refers to the same model: a version, a logged model or a run's artifact."""
    return uri.startswith("runs:/") or bool(MODEL_VERSION.fullmatch(uri) or _LOGGED_MODEL.fullmatch(uri))


def redact_uri(uri: str) -> str:
    """Return a URI without user, password, query and fragment, for messages."""
    parts = urlsplit(uri)
    netloc = parts.netloc.rpartition("@")[2]
    return SplitResult(parts.scheme, netloc, parts.path, "", "").geturl() if netloc else uri.partition("?")[0]


def sqlite_file(uri: str) -> str | None:
    """Return the path of a sqlite database; None for any other URI."""
    scheme, _, path = uri.partition(":///")
    return path.partition("?")[0] if scheme.partition("+")[0] == "sqlite" and path else None


def _with_credentials_moved(uri: str) -> str:
    """Return an HTTP URI without user and password, which are moved to the environment.

    The URI of a database is returned unchanged, because MLflow needs its credentials.
    """
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or parts.username is None:
        return uri
    os.environ.setdefault("MLFLOW_TRACKING_USERNAME", unquote(parts.username))
    os.environ.setdefault("MLFLOW_TRACKING_PASSWORD", unquote(parts.password or ""))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _require_own_database(uri: str, base: Path) -> None:
    """Require that other users cannot change a sqlite database, unless they could replace it.

    SQLite applies the journals next to a database to it, whoever created them, and artifacts are written to a directory
    next to it.

    Raises:
        SpecError: It is in a directory such as ``/tmp``, in which other users can create files, but not rename those of
            others. Or its relative path leads to a file that another user created. Or its path leads through a symlink
            of another user, who does not own what it leads to.
    """
    path = sqlite_file(uri)
    if path is None:
        return
    resolved(base / path)
    for directory in {(base / path).parent, real_path(base / path).parent}:
        if is_directory(directory) and is_like_tmp(directory):
            raise SpecError(
                f"other users can create files in {directory}, and SQLite would apply a journal of another user to the "
                f"database {PurePath(path).name}",
                "use a database in a directory of your own, such as sqlite:////home/me/mlflow.db",
                code="working-directory.foreign",
            )
    if path.startswith("/"):
        return
    files = [base / f"{path}{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]
    for file in (*files, (base / path).parent / ARTIFACTS_DIRECTORY):
        if is_foreign_in_public(file, base):
            raise SpecError(
                f"{file.name} belongs to another user, and other users can create files in its directory",
                "pass its absolute path if you trust it, or use a directory of your own",
                code="working-directory.foreign",
            )


def _absolute(uri: str, base: Path) -> str:
    path = sqlite_file(uri)
    if path is None or path.startswith("/"):
        return uri
    return uri.replace(path, str((base / path).absolute()), 1)
