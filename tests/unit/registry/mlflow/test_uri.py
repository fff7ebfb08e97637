"""Where the tracking URI comes from, and that no message contains its password."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.tracking import Tracking
from repogen.errors import SpecError, TrackingError
from repogen.registry.mlflow.client import connect, servers_restored, set_servers
from repogen.registry.mlflow.library import mlflow
from repogen.registry.mlflow.uri import redact_uri, tracking_of
from repogen.spec.load import load_spec
from repogen.spec.tracking import URI_EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
{mlflow}
models:
  m:
    source: {{factory: "models.py:build"}}
    inputs: {{x: {{dtype: float32, shape: [4]}}}}
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URI", "USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}")


def test_servers_of_the_calling_program_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting sets mlflow's own servers, but no variable that another process would inherit."""
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "")
    monkeypatch.delenv("MLFLOW_REGISTRY_URI")
    set_servers("http://tracking.invalid", "http://registry.invalid")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with servers_restored():
        connect(Tracking(uri, "repogen", register=True, root=tmp_path))
        assert (mlflow.get_tracking_uri(), mlflow.get_registry_uri()) == (uri, uri)
    assert (mlflow.get_tracking_uri(), mlflow.get_registry_uri()) == (
        "http://tracking.invalid", "http://registry.invalid")  # fmt: skip
    set_servers(None)
    assert [name for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI") if name in os.environ] == []


@pytest.mark.parametrize("uri", ["foo://host", "mlflow.example.com:5000", "not a uri", "./mlruns"])
def test_uri_that_mlflow_does_not_support(tmp_path: Path, uri: str) -> None:
    """The hint is about the URI, not about the state of a database."""
    with pytest.raises(TrackingError) as caught, servers_restored():
        connect(Tracking(uri, "repogen", register=True, root=tmp_path))
    assert (caught.value.code, URI_EXAMPLES in caught.value.hint) == ("tracking.uri", True)


def spec_in(folder: Path, mlflow: str) -> Path:
    """Write a spec with an ``mlflow:`` line."""
    folder.mkdir(exist_ok=True)
    (folder / "models.py").touch()
    (folder / "repogen.yaml").write_text(SPEC.format(mlflow=mlflow))
    return folder / "repogen.yaml"


def test_flag_overrides_environment_overrides_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path of a database starts at the spec's directory."""
    spec = load_spec(
        spec_in(tmp_path / "p", 'mlflow: {tracking_uri: "sqlite:///a.db", experiment: e, register: false}')
    )
    tracking = tracking_of(spec, None, tmp_path)
    assert (tracking.uri, tracking.experiment, tracking.register) == (f"sqlite:///{tmp_path}/p/a.db", "e", False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert tracking_of(spec, None, tmp_path).uri == "http://127.0.0.1:1"
    assert tracking_of(spec, "sqlite:////b.db", tmp_path).uri == "sqlite:////b.db"
    assert tracking_of(None, "sqlite:///b.db", tmp_path).uri == f"sqlite:///{tmp_path}/b.db"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("http://me:secret@[::1", "is not a URI"),
        ("http://127.0.0.1:port", "is not a URI"),
        ("http://127.0.0.1:99999", "is not a URI"),
        ("http://", "is not a URI of a server"),
        ("https:secret", "is not a URI of a server"),
        ("http://a b/", "is not a URI of a server"),
        ("sqlite:", "does not name a database file"),
        ("sqlite://", "does not name a database file"),
        ("sqlite:///", "does not name a database file"),
        ("sqlite:///?secret=1", "does not name a database file"),
    ],
)
def test_malformed_uri_is_an_error(uri: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the option or variable, and not the URI, which may contain a password."""
    with pytest.raises(SpecError, match=f"--tracking-uri {problem}") as flag:
        tracking_of(None, uri, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(SpecError, match=f"MLFLOW_TRACKING_URI {problem}") as variable:
        tracking_of(None, None, tmp_path)
    for error in (flag.value, variable.value):
        assert (error.code, error.exit_code) == ("tracking.uri", 2)
        assert "secret" not in error.message + error.hint


def test_missing_uri_is_an_error(tmp_path: Path) -> None:
    """The hint has all ways to configure one: flag, environment, spec."""
    with pytest.raises(SpecError, match="no MLflow tracking server is configured") as caught:
        tracking_of(None, None, tmp_path)
    assert all(way in caught.value.hint for way in ("--tracking-uri", "MLFLOW_TRACKING_URI", "mlflow:"))


def test_credentials_are_removed_from_the_uri(tmp_path: Path) -> None:
    """They are moved to the environment variables that MLflow's client reads."""
    tracking = tracking_of(None, "https://me:s3%40cret@host:8443/mlflow", tmp_path)
    assert tracking.uri == "https://host:8443/mlflow"
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("me", "s3@cret")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("postgresql+psycopg2://me:s3cret@db/mlflow?password=s3cret", "postgresql+psycopg2://db/mlflow"),
        ("http://host:5000", "http://host:5000"),
        ("sqlite:////a/b.db?x=y", "sqlite:////a/b.db"),
    ],
)
def test_redacted_uri_has_no_credentials(uri: str, expected: str) -> None:
    """No user, no password, no query."""
    assert expected == redact_uri(uri)


@pytest.mark.parametrize(
    ("uri", "what", "hint"),
    [
        ("http://me:pw@host", "contains a password", "MLFLOW_TRACKING_PASSWORD"),
        ("postgresql://me:pw@host/db", "contains a password", "set MLFLOW_TRACKING_URI"),
        ("./mlruns", "is not a tracking store with a model registry", "sqlite:///mlflow.db"),
        ("http://[::1", "is not a URI", "127.0.0.1"),
    ],
)
def test_invalid_uri_in_the_spec_is_an_error(tmp_path: Path, uri: str, what: str, hint: str) -> None:
    """With line and column, the problem, and a remedy."""
    with pytest.raises(SpecError) as caught:
        load_spec(spec_in(tmp_path, f'mlflow: {{tracking_uri: "{uri}"}}'))
    (line,) = str(caught.value).splitlines()
    assert ":1:10 mlflow.tracking_uri" in line
    assert what in line
    assert hint in line


def test_misspelled_key_gets_the_spec_s_name_as_suggestion(tmp_path: Path) -> None:
    """Not the name of the Python attribute."""
    with pytest.raises(SpecError, match='did you mean "register"'):
        load_spec(spec_in(tmp_path, "mlflow: {registre: true}"))


def test_connection_does_not_change_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later build of a spec without `mlflow:` is not tracked on the server of an earlier call."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    server = Tracking(f"sqlite:///{tmp_path}/mlflow.db", "repogen", register=True, root=tmp_path)
    connect(server)
    assert "MLFLOW_TRACKING_URI" not in os.environ
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    connect(server)
    assert os.environ["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://user:12#5ecret@database/mlflow",
        "http://user:pa#5ecret@host",
        "postgresql://user:12/5ecret@database/mlflow",
        "postgresql:user:5ecret@database/mlflow",
        "http://user:12?5ecret@server",
    ],
)
def test_password_that_is_not_encoded(tmp_path: Path, uri: str) -> None:
    """It would be taken for a path or a query, and printed as such."""
    with pytest.raises(SpecError, match="%23") as caught:
        tracking_of(None, uri, tmp_path)
    assert caught.value.code == "tracking.uri"
    assert "5ecret" not in caught.value.message


def test_error_of_mlflow_does_not_contain_the_user(tmp_path: Path) -> None:
    """MLflow's messages contain the URI, which may come from an option."""
    with pytest.raises(TrackingError, match="other://server/x") as caught:
        connect(Tracking("other://user:5ecret@server/x", "repogen", register=True, root=tmp_path))
    assert "5ecret" not in f"{caught.value}{caught.value.details}"


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "sqlite:///{}/mlflow.db", "sqlite:///own/mlflow.db"])
@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_database_next_to_which_other_users_can_create_files(tmp_path: Path, uri: str, mode: int) -> None:
    """SQLite writes the pages of a journal into the database, also those of another user's journal."""
    (tmp_path / "mlflow.db").touch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mlflow.db").symlink_to("../mlflow.db")
    tracking_of(None, uri.format(tmp_path), tmp_path)
    os.chown(tmp_path, -1, 65534)
    tmp_path.chmod(mode)
    with pytest.raises(SpecError, match=f"other users can create files in {tmp_path}, and SQLite") as caught:
        tracking_of(None, uri.format(tmp_path), tmp_path)
    assert caught.value.code == "working-directory.foreign"


@pytest.mark.parametrize("path", ["link/private.db", "link/new.db", "file.db", "dangling.db", "own/private.db"])
@pytest.mark.parametrize("is_absolute", [True, False])
def test_database_behind_a_link_of_another_user(tmp_path: Path, path: str, *, is_absolute: bool) -> None:
    """MLflow would write its tables into another database of this user, or create one."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "private.db").touch()
    targets = {"link": "private", "file.db": "private/private.db", "dangling.db": "private/new.db", "own": "link"}
    for name, target in targets.items():
        (tmp_path / name).symlink_to(target)
    uri = f"sqlite:///{tmp_path if is_absolute else '.'}/{path}"
    tracking_of(None, uri, tmp_path)
    for name in ("link", "file.db", "dangling.db"):
        os.chown(tmp_path / name, 65534, -1, follow_symlinks=False)
    with pytest.raises(SpecError, match="is a symlink of another user") as caught:
        tracking_of(None, uri, tmp_path)
    assert caught.value.code == "foreign-link"


@pytest.mark.parametrize("name", ["mlflow.db", "mlflow.db-journal", "mlflow.db-wal", "mlartifacts"])
def test_database_of_another_user(tmp_path: Path, name: str) -> None:
    """In a directory in which any user can create files, one is used only if the user passes its absolute path."""
    (tmp_path / name).touch()
    os.chown(tmp_path / name, 65534, 65534)
    tracking_of(None, "sqlite:///mlflow.db", tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(SpecError, match="belongs to another user") as caught:
        tracking_of(None, "sqlite:///mlflow.db", tmp_path)
    assert caught.value.code == "working-directory.foreign"
    tracking_of(None, f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    (tmp_path / "directory").mkdir()
    os.chown(tmp_path / "directory", 65534, 65534)
    with pytest.raises(SpecError, match="belongs to another user"):
        tracking_of(None, "sqlite:///directory/mlflow.db", tmp_path)
