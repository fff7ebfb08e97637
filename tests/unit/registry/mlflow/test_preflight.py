"""Every way in which a tracking server can be unavailable is reported within seconds."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.tracking import Tracking
from repogen.errors import TrackingError
from repogen.registry.mlflow.preflight import preflight
from tests.support.responding import responding

if TYPE_CHECKING:
    from pathlib import Path


def at(uri: str, root: Path) -> Tracking:
    """Return a tracking server."""
    return Tracking(uri, "repogen", register=True, root=root)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (500, b"", "tracking.server"),
        (503, b"", "tracking.server"),
        (401, b"", "tracking.credentials"),
        (403, b"", "tracking.credentials"),
        (404, b"", "tracking.foreign"),
        (200, b"<html>", "tracking.foreign"),
        (200, b"", "tracking.foreign"),
    ],
)
def test_other_response_is_an_error(tmp_path: Path, status: int, body: bytes, code: str) -> None:
    """With its own code and the server's address."""
    with responding(status, body, []) as uri, pytest.raises(TrackingError) as caught:
        preflight(at(uri, tmp_path))
    assert (caught.value.code, caught.value.exit_code) == (code, 8)
    assert uri in caught.value.message


def test_credentials_are_sent_as_mlflow_sends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Basic with a user, Bearer with a token, none without either."""
    authorizations: list[str | None] = []
    with responding(200, b"{}", authorizations) as uri:
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        preflight(at(uri, tmp_path))
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t")
        preflight(at(uri, tmp_path))
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "u")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "p")
        preflight(at(uri, tmp_path))
    assert authorizations == [None, "Bearer t", "Basic dTpw"]


def test_refused_connection_is_an_error(tmp_path: Path) -> None:
    """Without waiting for the timeout."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(TrackingError, match=r"can't be reached: Connection refused$") as caught:
            preflight(at(uri, tmp_path))
    assert caught.value.code == "tracking.unreachable"


def test_server_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    """It accepts the connection and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TrackingError, match=r"did not respond within 0\.2 s") as caught:
            preflight(at(uri, tmp_path), seconds=0.2)
    assert caught.value.code == "tracking.slow"


def test_database_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Its directory does not exist, or it is a directory itself."""
    (tmp_path / "directory.db").mkdir()
    for name in ("missing/mlflow.db", "directory.db"):
        with pytest.raises(TrackingError, match="can't be written") as caught:
            preflight(at(f"sqlite:///{tmp_path}/{name}", tmp_path))
        assert caught.value.code == "tracking.database"
    preflight(at(f"sqlite:///{tmp_path}/mlflow.db", tmp_path))


def test_database_server_that_is_down_is_an_error(tmp_path: Path) -> None:
    """MLflow's client would retry for almost two minutes."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        uri = f"postgresql://me:s3cret@127.0.0.1:{bound.getsockname()[1]}/mlflow"
        with pytest.raises(TrackingError, match=r"can't be opened: .*[Cc]onnection refused") as caught:
            preflight(at(uri, tmp_path))
    assert caught.value.code == "tracking.database"
    assert "start the database server" in caught.value.hint
    assert "s3cret" not in caught.value.message


def test_database_server_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    """Its driver would wait without a limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/mlflow"
        with pytest.raises(TrackingError, match="can't be opened") as caught:
            preflight(at(uri, tmp_path), seconds=0.2)
    assert caught.value.code == "tracking.database"


@pytest.mark.parametrize(
    ("uri", "command"),
    [
        ("mysql://127.0.0.1/mlflow", "pip install 'mysqlclient'"),
        ("mysql+pymysql://127.0.0.1/mlflow", "pip install 'pymysql'"),
        ("mssql+pyodbc://127.0.0.1/mlflow", "pip install 'pyodbc'"),
        ("postgresql://127.0.0.1/mlflow", "pip install 'psycopg[binary]'"),
        ("postgresql+psycopg2://127.0.0.1/mlflow", "pip install 'psycopg2-binary'"),
    ],
)
def test_missing_database_driver_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, command: str
) -> None:
    """With the command that installs it."""
    for module in ("MySQLdb", "pymysql", "pyodbc", "psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrackingError, match="is not installed") as caught:
        preflight(at(uri, tmp_path))
    assert (caught.value.code, caught.value.hint) == ("tracking.driver", command)


def test_unknown_database_driver_is_an_error(tmp_path: Path) -> None:
    """Of a database that MLflow supports."""
    with pytest.raises(TrackingError, match=r"no driver for mysql\+nothing://") as caught:
        preflight(at("mysql+nothing://127.0.0.1/mlflow", tmp_path))
    assert caught.value.code == "tracking.uri"


def test_redirect_to_another_server_has_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example to the page of a login, as a proxy does."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    first: list[str | None] = []
    second: list[str | None] = []
    with responding(200, b"{}", second) as other, responding(302, b"", first, other) as uri:
        preflight(at(uri, tmp_path))
    assert first == ["Bearer secret"]
    assert second == [None]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_TOKEN", "5ecret\n"),
        ("MLFLOW_TRACKING_TOKEN", "5ecret\u20ac"),
        ("MLFLOW_TRACKING_USERNAME", "5ecret\udcff"),
    ],
)
def test_credentials_that_cannot_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A secret of Kubernetes often ends with a line break; the message names the variable, and not its value."""
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(TrackingError, match=name) as caught:
        preflight(at("http://127.0.0.1:9", tmp_path))
    assert caught.value.code == "tracking.credentials"
    assert "5ecret" not in f"{caught.value}{caught.value.hint}{caught.value.details}"
