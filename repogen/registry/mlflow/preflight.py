"""Checks within seconds, and without importing mlflow, that the tracking server responds.

MLflow's own client retries for about four minutes before it reports that no server is listening, and for almost two
minutes if it is the server of a database.
"""

from __future__ import annotations

import base64
import http.client
import math
import os
import re
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from repogen.distribution import install_command
from repogen.errors import MissingExtraError, TrackingError
from repogen.registry.mlflow.uri import redact_uri, sqlite_file
from repogen.responses import ResponseError, limited, response_limits

if TYPE_CHECKING:
    from repogen.artifacts.tracking import Tracking

_TIMEOUT = 8.0
_MAX_BYTES = 2**20
_ENDPOINT = "/api/2.0/mlflow/experiments/search?max_results=1"
_DOWN = "start the server, or correct the tracking URI"
_PORTS = {"http": 80, "https": 443}
_DATABASE_SCHEMES = frozenset({"postgresql", "mysql", "mssql"})
_TIMEOUT_OPTIONS = {
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "pymysql": "connect_timeout",
    "mysqldb": "connect_timeout",
    "pyodbc": "timeout",
}
"""The option of each driver for the seconds that a connection may take."""
_DISTRIBUTIONS = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""The distribution of a driver's module, where it has another name."""
_TOKEN = re.compile(r"[ -~]+", re.ASCII)


def preflight(tracking: Tracking, seconds: float = _TIMEOUT) -> None:
    """Request one experiment from the server, with the credentials that MLflow would send.

    Args:
        tracking: The tracking server.
        seconds: How long to wait for its response.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server is down or slow, rejects the request, or is not an MLflow server; or the directory of
            the database does not exist; or the database's driver is not installed, or cannot connect.
    """
    if find_spec("mlflow") is None:
        raise MissingExtraError("MLflow is not installed", install_command("track"))
    database = sqlite_file(tracking.uri)
    if database is not None:
        _check_writable(Path(database))
    elif tracking.uri.startswith(("http://", "https://")):
        _check_server(tracking.uri, seconds)
    elif urlsplit(tracking.uri).scheme.partition("+")[0] in _DATABASE_SCHEMES:
        _check_database(tracking.uri, seconds)


def _check_database(uri: str, seconds: float) -> None:
    """Connect once to the server of a database, with the driver that MLflow would use."""
    if find_spec("sqlalchemy") is None:  # mlflow-skinny
        raise MissingExtraError("MLflow is installed without SQLAlchemy", install_command("track"))
    from sqlalchemy import NullPool, create_engine  # noqa: PLC0415 - for databases only
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - the same
    from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError  # noqa: PLC0415 - the same

    scheme = urlsplit(uri).scheme
    try:
        option = _TIMEOUT_OPTIONS.get(make_url(uri).get_dialect().driver)
        limits = {} if option is None else {option: math.ceil(seconds)}
        create_engine(uri, poolclass=NullPool, connect_args=limits).connect().close()
    except NoSuchModuleError as error:
        schemes = ", ".join(sorted(_DATABASE_SCHEMES))
        raise TrackingError(
            f"SQLAlchemy has no driver for {scheme}://", f"use {schemes}", code="tracking.uri"
        ) from error
    except ImportError as error:
        module = error.name or str(error)
        raise TrackingError(
            f"the driver of {scheme}:// is not installed: the Python module {module}",
            f"pip install '{_DISTRIBUTIONS.get(module, module)}'",
            code="tracking.driver",
        ) from error
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise TrackingError(
            f"the tracking database {redact_uri(uri)} can't be opened: {_without_password(reason, uri)}",
            "start the database server, or correct its address, user, password or database in the tracking URI",
            code="tracking.database",
        ) from error


def _without_password(text: str, uri: str) -> str:
    password = urlsplit(uri).password
    return text.replace(password, "***").replace(unquote(password), "***") if password else text


def _check_writable(database: Path) -> None:
    path = database if database.exists() else database.parent
    if not path.parent.is_dir() or not os.access(path, os.W_OK) or database.is_dir():
        raise TrackingError(
            f"the tracking database {database} can't be written",
            "create its directory, fix the permissions, or set another database in mlflow.tracking_uri",
            code="tracking.database",
        )


def _check_server(uri: str, seconds: float) -> None:
    request = urllib.request.Request(uri.rstrip("/") + _ENDPOINT, headers=_authorization())  # noqa: S310 - http or https
    try:
        opener = urllib.request.build_opener(_LimitedHandler(_tls(uri)), _Redirects())
        with response_limits(_MAX_BYTES, seconds), opener.open(request, timeout=seconds) as response:
            first_byte = response.read(1)
    except urllib.error.HTTPError as error:
        with error:  # it is also the response, which must be closed
            raise _http_error(uri, error) from error
    except ResponseError as error:
        raise TrackingError(
            f"{redact_uri(uri)} is not an MLflow server: {error}", "correct the URI", code="tracking.foreign"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            problem, code = f"did not respond within {seconds:g} s", "tracking.slow"
        else:
            text = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
            problem, code = f"can't be reached: {text}", "tracking.unreachable"
        raise TrackingError(f"MLflow at {redact_uri(uri)} {problem}", _DOWN, code=code) from error
    if first_byte != b"{":
        raise TrackingError(f"{redact_uri(uri)} is not an MLflow server", "correct the URI", code="tracking.foreign")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the credentials are not sent to another server, or without TLS where there was TLS."""

    def redirect_request(self, req: urllib.request.Request, *args: Any) -> urllib.request.Request | None:  # noqa: ANN401 - of the base class
        """Return the next request."""
        following = super().redirect_request(req, *args)
        if following is not None and not _is_same_server(req.full_url, following.full_url):
            following.remove_header("Authorization")
        return following


def _is_same_server(before: str, after: str) -> bool:
    """Return whether two URLs are of one server; as for requests, it may redirect from HTTP to HTTPS."""
    first, second = urlsplit(before), urlsplit(after)
    ports = [parts.port or _PORTS.get(parts.scheme) for parts in (first, second)]
    is_upgrade = (first.scheme, second.scheme) == ("http", "https") and ports == [80, 443]
    is_same = first.scheme == second.scheme and ports[0] == ports[1]
    return first.hostname == second.hostname and (is_same or is_upgrade)


class _LimitedHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Sends requests whose responses have limits, also those of redirects.

    Args:
        context: For requests with TLS; None for Python's default.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        """Keep the context."""
        super().__init__(context=context)
        self._tls = context

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request without TLS."""
        return self.do_open(limited(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request with TLS."""
        return self.do_open(limited(http.client.HTTPSConnection), req, context=self._tls)


def _http_error(uri: str, error: urllib.error.HTTPError) -> TrackingError:
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return TrackingError(
            f"MLflow at {redact_uri(uri)} rejects these credentials ({error.code})",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
            code="tracking.credentials",
        )
    if error.code == HTTPStatus.NOT_FOUND:
        return TrackingError(
            f"{redact_uri(uri)} is not an MLflow server: it has no {_ENDPOINT.partition('?')[0]}",
            "correct the URI",
            code="tracking.foreign",
        )
    return TrackingError(
        f"MLflow at {redact_uri(uri)} responds {error.code} {error.reason}", _DOWN, code="tracking.server"
    )


def _authorization() -> dict[str, str]:
    """Return what MLflow's client would send. Source: mlflow.utils.rest_utils.http_request.

    Raises:
        TrackingError: It cannot be sent; the message does not contain it.
    """
    user, token = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_TOKEN")
    if user is not None:
        pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
        try:
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        except UnicodeEncodeError as error:
            raise _unsendable("MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_PASSWORD is not UTF-8") from error
    if token and not _TOKEN.fullmatch(token):
        raise _unsendable("MLFLOW_TRACKING_TOKEN contains a line break, or a character that is not printable ASCII")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _unsendable(problem: str) -> TrackingError:
    return TrackingError(
        f"the credentials for MLflow cannot be sent: {problem}",
        "set the variable again; `echo` adds a line break to a token, and `printf %s` does not",
        code="tracking.credentials",
    )


def _tls(uri: str) -> ssl.SSLContext | None:
    if not uri.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in {"1", "true"}:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    client = os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")
    if client:
        context.load_cert_chain(client)
    return context
