"""Rules for the MLflow tracking URI."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from repogen.spec.problems import printable
from repogen.spec.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

# Source: mlflow.utils.uri._DATABASE_ENGINES and the schemes of its REST store.
_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
_PATH = ("mlflow", "tracking_uri")


URI_EXAMPLES = 'for example "sqlite:///mlflow.db" or "http://127.0.0.1:5000"'
_SQLITE = re.compile(r"sqlite(\+\w+)?:///[^?]")
_UNENCODED = "has `@` after the server; in a password, write `#`, `/`, `?` and `@` as %23, %2F, %3F and %40"


def malformed_uri(uri: str) -> str:
    """Return why MLflow could not use a tracking URI of any scheme, as the end of a sentence; empty if it could.

    >>> malformed_uri("http://[::1"), malformed_uri("sqlite:"), malformed_uri("sqlite:///mlflow.db")
    ('is not a URI', 'does not name a database file', '')
    """
    rest = uri.partition("://")[2]
    server = re.split("[/?#]", rest)[0]
    try:
        parts = urlsplit(uri)
        port = parts.port  # reading it checks it
    except ValueError:
        # the part of a password before a `#` is read as the port
        is_password = "@" in rest and "@" not in server and not server.startswith("[")
        return _UNENCODED if is_password else "is not a URI"
    if parts.scheme in {"http", "https"} and (not parts.hostname or port == 0 or not uri.isprintable() or " " in uri):
        return "is not a URI of a server"
    if parts.scheme.partition("+")[0] == "sqlite":
        return "" if _SQLITE.match(uri) else "does not name a database file"
    path = parts.path + parts.fragment + (parts.query if parts.scheme in {"http", "https"} else "")
    if parts.scheme and "@" not in parts.netloc and "@" in path:
        return _UNENCODED
    return ""


def check_tracking_uri(uri: str | None) -> Iterator[Finding]:
    """Yield the problems of a tracking URI; None if it is not set or not a string, which is reported elsewhere."""
    if uri is None:
        return
    if problem := malformed_uri(uri):
        yield Finding(_PATH, problem, URI_EXAMPLES)
        return
    parts = urlsplit(uri)
    if parts.scheme.partition("+")[0] not in _SCHEMES and uri != "databricks":
        what = f'"{printable(parts.scheme or uri)}" is not a tracking store with a model registry'
        yield Finding(_PATH, what, f"use one of {', '.join(_SCHEMES)}; sqlite:///mlflow.db needs no server")
    elif parts.password is not None:
        what = "contains a password, which must not be in a file under version control"
        hint = "remove user and password, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        if parts.scheme not in {"http", "https"}:
            hint = "remove tracking_uri, and set MLFLOW_TRACKING_URI"
        yield Finding(_PATH, what, hint)
