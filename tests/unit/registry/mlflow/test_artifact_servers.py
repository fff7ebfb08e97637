"""MLflow sends the credentials of the tracking server to no other server."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SourceError, TrackingError
from repogen.registry.mlflow.artifact_servers import VARIABLE, foreign_server, is_foreign_directory
from repogen.registry.mlflow.download import download_model
from repogen.registry.mlflow.entries import CONTENT, STATE
from repogen.registry.mlflow.library import get_artifact_repository
from repogen.registry.mlflow.registry import MlflowRegistry
from repogen.registry.mlflow.runs import MlflowTracker
from repogen.registry.mlflow.uri import sqlite_file
from tests.support.responding import responding

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.registry.mlflow.client import Connection

API = "/api/2.0/mlflow-artifacts/artifacts"
OWN = "https://mlflow.example"
EMPTY = b'{"files": []}'


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")


def registered(store: Connection, source: str) -> str:
    """Register a version whose files are at a URI, as any user of the registry can; return the model's name."""
    name = f"foreign-{uuid.uuid4().hex[:8]}"
    store.client.create_registered_model(name)
    tags = {STATE: "published", CONTENT: "0" * 64}
    store.client.create_model_version(name, source, tags=tags, await_creation_for=0)
    return name


def test_files_of_a_version_on_another_server(store: Connection, tmp_path: Path) -> None:
    """Neither a sync, nor a build from the version, sends the token to the server that the version names."""
    authorizations: list[str | None] = []
    with responding(200, EMPTY, authorizations) as uri:
        name = registered(store, f"{uri}{API}/1")
        registry = MlflowRegistry(store)
        (entry,) = registry.entries(name)
        for read in (
            lambda: registry.manifest(entry),
            lambda: registry.fetch(entry, tmp_path),
            lambda: download_model(store, f"models:/{name}/1", tmp_path),
        ):
            with pytest.raises(TrackingError) as caught:
                read()
            assert caught.value.code == "tracking.artifact-server"
            assert uri.removeprefix("http://") in caught.value.message
    assert authorizations == []


def test_experiment_on_another_server(store: Connection) -> None:
    """Another user may have created it under the name that a build uses."""
    authorizations: list[str | None] = []
    with responding(200, EMPTY, authorizations) as uri:
        name = f"foreign-{uuid.uuid4().hex[:8]}"
        store.client.create_experiment(name, artifact_location=f"{uri}{API}/1")
        tracker = MlflowTracker(replace(store, tracking=replace(store.tracking, experiment=name)))
        tracker.start({})
        with pytest.raises(TrackingError) as caught:
            tracker._log_page(tracker._parent, "page")  # type: ignore[arg-type] # noqa: SLF001 - as `log` does
        tracker.finish(None, "")
    assert caught.value.code == "tracking.artifact-server"
    assert authorizations == []


def test_server_of_the_user_gets_the_token(store: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in an environment variable; and MLflow is not restricted outside of repogen's calls."""
    authorizations: list[str | None] = []
    with responding(200, EMPTY, authorizations) as uri:
        get_artifact_repository(f"{uri}{API}/1").list_artifacts()
        assert authorizations == ["Bearer secret"]
        monkeypatch.setenv(VARIABLE, f"other.example, {uri.removeprefix('http://')}")
        (entry,) = MlflowRegistry(store).entries(registered(store, f"{uri}{API}/1"))
        with pytest.raises(TrackingError) as caught:
            MlflowRegistry(store).fetch(entry, tmp_path)
    assert caught.value.code != "tracking.artifact-server"
    assert set(authorizations) == {"Bearer secret"}
    assert len(authorizations) > 1


def test_without_credentials_nothing_is_rejected(
    store: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to collect."""
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    authorizations: list[str | None] = []
    with responding(200, EMPTY, authorizations) as uri:
        (entry,) = MlflowRegistry(store).entries(registered(store, f"{uri}{API}/1"))
        with pytest.raises(TrackingError) as caught:
            MlflowRegistry(store).fetch(entry, tmp_path)
    assert caught.value.code != "tracking.artifact-server"
    assert set(authorizations) == {None}


def test_directory_that_a_server_names(store: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow would read any file of the user, or replace it, wherever a tracking server with HTTP says."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "net.onnx").write_bytes(b"graph")
    (tmp_path / "target").mkdir()
    name = registered(store, (tmp_path / "private").as_uri())
    remote = replace(store, tracking=replace(store.tracking, uri=OWN))
    with pytest.raises(TrackingError, match="in a directory of this machine") as caught:
        download_model(remote, f"models:/{name}/1", tmp_path / "target")
    assert caught.value.code == "tracking.artifact-server"
    assert not any((tmp_path / "target").iterdir())
    monkeypatch.setenv(VARIABLE, f"other.example, {tmp_path}")
    download_model(remote, f"models:/{name}/1", tmp_path / "target")
    assert (tmp_path / "target" / "net.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize("change", ["mode of a file", "owner of a file", "directory", "directory above"])
def test_code_that_others_can_change(store: Connection, tmp_path: Path, change: str) -> None:
    """Pickles, and the code that was logged with them, are downloaded to be run; other files are not examined."""
    artifacts, target, base = tmp_path / "shared" / "artifacts", tmp_path / "target", tmp_path / "spec"
    for directory in (artifacts / "code", target, base):
        directory.mkdir(parents=True)
    file = artifacts / "code" / "net.py"
    file.write_text("pass")
    name = registered(store, artifacts.as_uri())
    download_model(store, f"models:/{name}/1", target, base)
    match change:
        case "mode of a file":
            file.chmod(0o666)
        case "owner of a file":
            os.chown(file, 65534, -1)
        case "directory":
            (artifacts / "code").chmod(0o1777)
        case "directory above":
            artifacts.parent.chmod(0o777)
    with pytest.raises(SourceError, match="other users can add files to it or replace it") as caught:
        download_model(store, f"models:/{name}/1", target, base)
    assert caught.value.code == "working-directory.foreign"
    download_model(store, f"models:/{name}/1", target)


def test_pipe_among_artifacts(store: Connection, tmp_path: Path) -> None:
    """A copy would not end; the store is a directory if the tracking server is a database."""
    (tmp_path / "artifacts").mkdir()
    os.mkfifo(tmp_path / "artifacts" / "net.onnx")
    name = registered(store, (tmp_path / "artifacts").as_uri())
    with pytest.raises(TrackingError, match="not a regular file"):
        download_model(store, f"models:/{name}/1", tmp_path)


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("/dev", ""),
        ("file:///dev", ""),
        ("file:///mnt/../dev", "/mnt"),
        ("file:///mnt2/1", "/mnt"),
        ("file:///mnt/1", "mnt"),
    ],
)
def test_foreign_directories(uri: str, allowed: str) -> None:
    """All but those that the user names."""
    for server in (OWN, "postgresql://user@mlflow.example/db", "databricks", "databricks://profile"):
        assert is_foreign_directory(uri, [server], allowed)
        assert not is_foreign_directory("file:///mnt/1", [server], "/mnt")


@pytest.mark.parametrize(
    ("change", "is_allowed", "is_default_allowed"),
    [
        (lambda path: path, True, True),
        (lambda path: path.chmod(0o666), False, True),
        (lambda path: path.parent.chmod(0o777), False, False),
        (lambda path: path.parent.parent.chmod(0o777), False, False),
        (lambda path: path.parent.chmod(0o1777), True, True),
        (lambda path: os.chown(path, 65534, -1), False, True),
        (lambda path: os.chown(path.parent, 65534, -1), False, True),
        (lambda path: path.unlink(), False, True),
    ],
)
def test_directories_that_a_database_names(
    tmp_path: Path, change: Callable[[Path], object], *, is_allowed: bool, is_default_allowed: bool
) -> None:
    """Any, if only this user can change it; otherwise the default ones, if other users cannot replace them."""
    database = tmp_path / "data" / "mlflow.db"
    database.parent.mkdir()
    database.touch()
    change(database)
    servers = [f"sqlite:///{database}"]
    assert is_foreign_directory(str(tmp_path / "private"), servers) is not is_allowed
    for name in ("mlartifacts", "mlruns"):
        assert is_foreign_directory(str(database.parent / name / "1"), servers) is not is_default_allowed
        assert not is_foreign_directory(str(Path(name, "1").absolute()), servers)
        assert is_foreign_directory(str(database.parent / name / ".." / ".." / "private"), servers) is not is_allowed


@pytest.mark.parametrize("place", ["here", "next to the database"])
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(lambda path, target: path.symlink_to(target), id="link"),
        pytest.param(lambda path, target: path.symlink_to(target.parent), id="link to the directory above"),
        pytest.param(lambda path, _: path.symlink_to("/"), id="link to the root"),
        pytest.param(lambda path, _: path.mkdir(), id="directory"),
        pytest.param(lambda _path, _target: None, id="nothing yet"),
    ],
)
def test_planted_default_directory(
    tmp_path: Path, plant: Callable[[Path, Path], None], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user makes a link in a directory such as /tmp, and names what it leads to in the database."""
    private, public, data = (tmp_path / name for name in ("private", "public", "data"))
    for directory in (private, public, data):
        directory.mkdir()
    public.chmod(0o1777)
    monkeypatch.chdir(public if place == "here" else data)
    database = (data if place == "here" else public) / "mlflow.db"
    database.touch()
    database.chmod(0o666)
    for name in ("mlartifacts", "mlruns"):
        planted = public / name
        plant(planted, private)
        if os.path.lexists(planted):
            os.chown(planted, 65534, 65534, follow_symlinks=False)
        for uri in (private / "m", f"file://{private}/m", planted / "m"):
            assert is_foreign_directory(str(uri), [f"sqlite:///{database}"])


def test_own_default_directory_in_a_public_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sticky bit prevents that others replace it; but not where others can write to the directory itself."""
    tmp_path.chmod(0o1777)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlruns").mkdir()
    servers = ["postgresql://user@mlflow.example/db"]
    assert not is_foreign_directory(str(tmp_path / "mlruns" / "1"), servers)
    (tmp_path / "mlruns").chmod(0o777)
    assert is_foreign_directory(str(tmp_path / "mlruns" / "1"), servers)


def test_default_directory_on_a_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume of a container may be writable by all users, and has no other users."""
    (tmp_path / "volume" / "job").mkdir(parents=True)
    for directory in (tmp_path / "volume", tmp_path / "volume" / "job"):
        directory.chmod(0o777)
    monkeypatch.chdir(tmp_path / "volume" / "job")
    uri = str(tmp_path / "volume" / "job" / "mlartifacts")
    servers = ["postgresql://user@mlflow.example/db"]
    assert is_foreign_directory(uri, servers)
    ismount = os.path.ismount
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path).name == "volume" or ismount(path))
    assert not is_foreign_directory(uri, servers)


def test_model_that_the_writer_of_a_database_names(store: Connection, tmp_path: Path) -> None:
    """Neither a sync nor a build reads the private directory of another user, which a version names as its files."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "MLmodel").write_text("flavors: {}")
    name = registered(store, (tmp_path / "private").as_uri())
    database = sqlite_file(store.tracking.uri)
    assert database is not None
    (tmp_path / "target").mkdir()
    download_model(store, f"models:/{name}/1", tmp_path / "target")
    Path(database).chmod(0o666)
    with pytest.raises(TrackingError) as caught:
        download_model(store, f"models:/{name}/1", tmp_path / "target")
    Path(database).chmod(0o644)
    assert (caught.value.code, "REPOGEN_ARTIFACT_SERVERS" in caught.value.hint) == ("tracking.artifact-server", True)


def test_uris_that_lead_to_each_other(store: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server can lead from each version to another one, and respond slowly to each request."""
    name = registered(store, (tmp_path / "artifacts").as_uri())
    uri, requests = f"models:/{name}/1", list[str]()

    def download_uri(_: object, name: str, version: str) -> str:
        requests.append(f"{name}/{version}")
        return uri

    monkeypatch.setattr(type(store.client), "get_model_version_download_uri", download_uri)
    with pytest.raises(TrackingError, match="leads to more than 8 other URIs"):
        download_model(store, uri, tmp_path)
    assert len(requests) < 20


@pytest.mark.parametrize(
    "uri",
    [
        f"{OWN}{API}/1",
        f"{OWN}:443{API}/1",
        "HTTPS://MLFLOW.example/1",
        "mlflow-artifacts:/1/artifacts",
        "mlflow-artifacts://mlflow.example/1",
        "s3://bucket/1",
        "file:///models",
        "/models",
        "runs:/1/model",
        "abfss://models@account.dfs.core.windows.net/1",
        "wasbs://models@account.blob.core.windows.net/1",
        "r2://models@account.r2.cloudflarestorage.com/1",
    ],
)
def test_own_servers(uri: str) -> None:
    """The tracking server, with or without its port, the domains of Azure, and stores without these credentials."""
    assert foreign_server(uri, ["sqlite:///mlflow.db", OWN]) == ""


@pytest.mark.parametrize(
    "uri",
    [
        "https://other.example/1",
        "http://mlflow.example/1",
        "https://mlflow.example:444/1",
        "https://mlflow.example.other.example/1",
        "https://mlflow.example@other.example/1",
        "https://user@mlflow.example/1",
        "https://other.example\\@mlflow.example/1",
        "mlflow-artifacts://other.example/1",
        "mlflow-artifacts://mlflow.example:80/1",
        "abfss://models@account.other.example/1",
        "abfss://models@account.other.example@account.dfs.core.windows.net/1",
        "abfss://models@dfs.core.windows.net.other.example/1",
        "abfss://models@account.other.example\\@account.dfs.core.windows.net/1",
        "wasbs://models@2130706433\\.blob.core.windows.net/1",
        "wasbs://models@account.dfs.core.windows.net/1",
        "r2://models@other.example/1",
        "b2://models@s3.us.backblazeb2.com.other.example/1",
        "ftp://other.example/1",
        "ftp://user:password@other.example/1",
        "sftp:///1",
        "hdfs://other:8020/1",
        "viewfs://other/1",
        "https://[/1",
        "https://mlflow.example:port/1",
    ],
)
def test_foreign_servers(uri: str) -> None:
    """Another host, port or scheme, and text that libraries read in different ways."""
    assert foreign_server(uri, [OWN])


def test_file_server_of_the_user() -> None:
    """It is named in the environment variable."""
    assert foreign_server("ftp://user:password@files.example/1", [OWN], "files.example") == ""
