"""Models in MLflow as sources: the version that a URI refers to, and the files that are downloaded."""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from mlflow.entities import FileInfo

from repogen.artifacts.tracking import Tracking
from repogen.errors import SourceError, SpecError, TrackingError
from repogen.registry.mlflow import download
from repogen.registry.mlflow.access import fetch_model, pin_model
from repogen.registry.mlflow.download import download_model, fetch_version, pinned_uri
from repogen.registry.mlflow.library import MlflowException, get_artifact_repository
from repogen.registry.mlflow.registry import MlflowRegistry
from repogen.registry.mlflow.uri import is_pinned
from repogen.responses import ResponseError
from tests.support.responding import responding
from tests.support.swapping import swap_when_opened

from .conftest import Stage, built, report
from .test_artifact_servers import registered as registered_at

if TYPE_CHECKING:
    from repogen.registry.mlflow.client import Connection


@pytest.fixture
def registered(store: Connection, track: Any, stage: Stage) -> str:
    """Register two versions, the second a champion; return the model's name."""
    name = f"registered-{uuid.uuid4().hex[:8]}"
    for factor in (1.0, 2.0):
        staged = stage(name, factor)
        track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
    store.client.set_registered_model_alias(name, "champion", "2")
    return name


@pytest.mark.parametrize(
    ("uri", "pinned"),
    [
        ("models:/net/3", True),
        ("models:/m-0123456789abcdef0123456789abcdef", True),
        ("runs:/abc/model", True),
        ("models:/net@champion", False),
        ("models:/net/Production", False),
        ("models:/net/latest", False),
    ],
)
def test_uri_is_pinned_if_it_always_refers_to_one_model(uri: str, *, pinned: bool) -> None:
    """An alias can move; the number of a version does not change."""
    assert is_pinned(uri) is pinned


def test_alias_is_replaced_by_its_version(store: Connection, registered: str) -> None:
    """If the alias moves, the URI changes, and the model is built again."""
    assert pinned_uri(store, f"models:/{registered}@champion") == f"models:/{registered}/2"
    store.client.set_registered_model_alias(registered, "champion", "1")
    assert pin_model(store.tracking, f"models:/{registered}@champion") == f"models:/{registered}/1"


def test_files_of_a_version_are_downloaded(store: Connection, registered: str, tmp_path: Path) -> None:
    """All of them, as they were logged: a version of repogen is a model of the onnx flavor."""
    (tmp_path / "downloaded").mkdir()
    fetched = fetch_model(store.tracking, f"models:/{registered}@champion", tmp_path / "downloaded")
    assert {"MLmodel", "model.onnx", "manifest.json"} <= {path.name for path in fetched.iterdir()}


def test_artifact_of_a_run_is_downloaded(store: Connection, registered: str, tmp_path: Path) -> None:
    """By its path in the run."""
    (tmp_path / "downloaded").mkdir()
    run_id = store.client.get_model_version(registered, "1").run_id
    (tmp_path / "net.onnx").write_bytes(b"graph")
    store.client.log_artifact(run_id, str(tmp_path / "net.onnx"), "mine")
    fetched = download_model(store, f"runs:/{run_id}/mine", tmp_path / "downloaded")
    assert (fetched / "net.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize("what", ["@nobody", "/99", "/latest", "-x@champion", "-x/1"])
def test_missing_model_is_an_error(store: Connection, registered: str, tmp_path: Path, what: str) -> None:
    """A model, a version, an alias, a stage: the message contains the URI."""
    with pytest.raises(SourceError) as caught:
        fetch_model(store.tracking, f"models:/{registered}{what}", tmp_path)
    assert caught.value.code == "source.mlflow"
    assert f"models:/{registered}{what}" in caught.value.message


def test_missing_run_is_an_error(store: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its code is that of every missing model."""
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(SourceError, match="MLflow has no runs:/") as caught:
        download_model(store, f"runs:/{'0' * 32}/model", tmp_path)
    assert caught.value.code == "source.mlflow"


def test_unreachable_server_is_an_error(tmp_path: Path) -> None:
    """It is reported within seconds."""
    server = Tracking("http://127.0.0.1:9", "repogen", register=True, root=tmp_path)
    with pytest.raises(TrackingError) as caught:
        fetch_model(server, "models:/net/1", tmp_path)
    assert caught.value.code == "tracking.unreachable"


@pytest.mark.parametrize(
    ("file", "problem"),
    [("manifest.json", "manifest.json has 1099511627776 bytes"), ("model.onnx", "model.onnx has 1099511627776 bytes")],
)
def test_larger_file_is_not_downloaded(
    store: Connection, registered: str, tmp_path: Path, file: str, problem: str
) -> None:
    """Its size in the artifact store is compared with the manifest before: it could fill the disk."""
    location = store.client.get_model_version_download_uri(registered, "1")
    (entry,) = [entry for entry in MlflowRegistry(store).entries(registered) if entry.version == 1]
    path = Path(location.removeprefix("file://"), file)
    with path.open("r+b") as stream:
        stream.truncate(2**40)
    with pytest.raises(TrackingError, match=problem):
        fetch_version(store, entry, tmp_path)
    assert not (tmp_path / file).exists()


def test_artifacts_larger_than_the_disk(tmp_path: Path) -> None:
    """None of them is downloaded."""
    artifacts = MagicMock()
    with pytest.raises(TrackingError, match=f"{2**62} bytes, and the disk of") as caught:
        download._download_all("m version 1", artifacts, {"a": 2**61, "b": 2**61, "c": None}, tmp_path)  # noqa: SLF001 - as below
    assert (caught.value.code, artifacts.mock_calls) == ("tracking.space", [])


class EndlessArtifacts:
    """An artifact server whose directories have no end, and which lists directories below files."""

    def __init__(self) -> None:
        """Start without requests."""
        self.downloads: list[str] = []

    def list_artifacts(self, path: str | None) -> list[FileInfo]:
        """Return two directories."""
        return [FileInfo(f"{path or ''}/{name}", is_dir=True, file_size=None) for name in "ab"]

    def _download_file(self, path: str, target: str) -> None:
        self.downloads.append(path)
        Path(target).write_bytes(b"x")


def test_directories_without_end(
    store: Connection, registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not followed."""
    monkeypatch.setattr(download, "get_artifact_repository", lambda *_, **__: EndlessArtifacts())
    with pytest.raises(TrackingError, match="more than 10000 files"):
        download_model(store, registered, tmp_path)


def test_listings_of_a_version_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest can name many directories, for each of which a server lists many files; few are kept in memory."""
    artifacts, files = MagicMock(), [f"{number}/a" for number in range(9)]
    artifacts.list_artifacts.return_value = [FileInfo(name, is_dir=False, file_size=3) for name in "abcdef"]
    assert download._sizes(artifacts, "m", {"0/a", "d"}) == {"0/a": 3, "d": 3}  # noqa: SLF001 - as below
    monkeypatch.setattr(download, "_MAX_LISTED", 20)
    with pytest.raises(TrackingError, match="more than 20 other files") as caught:
        download._sizes(artifacts, "m", files)  # noqa: SLF001 - as below
    assert caught.value.code == "tracking.server"
    monkeypatch.setattr(download, "_LISTING_SECONDS", -1)
    for attempt in (lambda: download._sizes(artifacts, "m", files), lambda: download._tree(artifacts, "m")):  # noqa: SLF001 - as below
        with pytest.raises(TrackingError, match="takes too long"):
            attempt()


def test_listings_have_a_limit_on_their_total_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response is smaller."""
    monkeypatch.setattr(download, "_MAX_LISTING_BYTES", 2000)
    body = json.dumps({"files": [{"path": name, "is_dir": False, "file_size": 1} for name in "abc"]}).encode()
    with responding(200, body, []) as uri:
        artifacts = get_artifact_repository("mlflow-artifacts:/1", tracking_uri=uri)
        with pytest.raises(MlflowException, match="larger than 2000 bytes in total"):
            download._sizes(artifacts, "m", [f"{number}/a" for number in range(50)])  # noqa: SLF001 - as above


def test_file_is_not_listed_before_it_is_downloaded(tmp_path: Path) -> None:
    """The server may list directories below it."""
    artifacts = EndlessArtifacts()
    download.download_file(artifacts, "a/model.onnx", 1, tmp_path)
    assert artifacts.downloads == ["a/model.onnx"]


@pytest.mark.parametrize("name", ["..", "a/..", "x\0y", "/"])
def test_name_that_is_not_one_of_a_file(name: str) -> None:
    """It is an error, and nothing is written."""
    artifacts = MagicMock()
    artifacts.list_artifacts.return_value = [FileInfo(name, is_dir=False, file_size=1)]
    with pytest.raises(TrackingError, match="as a file"):
        download._tree(artifacts, "models:/m/1")  # noqa: SLF001 - as above


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"files": [{}]}', b'{"files": [{"path": "a", "is_dir": false, "file_size": "x"}]}', b"[" * 100_000,
     b'{"files": ' + b"9" * 5000 + b"}"],
    ids=["array", "no path", "no number", "nested", "digits"],
)  # fmt: skip
def test_listing_that_is_not_valid(store: Connection, tmp_path: Path, body: bytes) -> None:
    """It is an error of this version: whoever registers one with such a server must not end a sync of other models."""
    with responding(200, body, []) as uri:
        name = registered_at(store, f"{uri}/api/2.0/mlflow-artifacts/artifacts/1")
        (entry,) = MlflowRegistry(store).entries(name)
        with pytest.raises(TrackingError, match=rf"downloading {name} version 1 failed: \w+") as caught:
            fetch_version(store, entry, tmp_path)
    assert caught.value.code == "tracking.server"


@pytest.mark.parametrize("size", [2**40, 101, -1, "9"])
def test_size_of_a_file_in_parts(tmp_path: Path, size: object) -> None:
    """The server that offers it names its size; nothing is allocated or requested for it."""
    document = {"multipart_downloads_enabled": True, "url": "http://127.0.0.1:9/", "headers": {}, "file_size": size}
    with responding(200, json.dumps(document).encode(), []) as uri:
        artifacts = get_artifact_repository("mlflow-artifacts:/1", tracking_uri=uri)
        with pytest.raises(ResponseError, match="at most 100 are expected"):
            download.download_file(artifacts, "model.onnx", 100, tmp_path)
    assert not (tmp_path / "model.onnx").exists()


def _local(tmp_path: Path) -> Any:
    """Return a local directory of artifacts with one file, which a private file can replace."""
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "downloaded").mkdir()
    (tmp_path / "artifacts" / "attestation.json").write_text("{}")
    (tmp_path / "private").write_text("secret")
    return get_artifact_repository(f"file://{tmp_path}/artifacts")


def test_artifact_that_is_replaced_by_a_link_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may be able to write to a local directory of artifacts."""
    file = tmp_path / "artifacts" / "attestation.json"
    artifacts = _local(tmp_path)
    swap_when_opened(monkeypatch, file, file, tmp_path / "private")
    with pytest.raises(OSError, match="leads out of"):
        download.download_file(artifacts, file.name, 100, tmp_path / "downloaded")
    assert not (tmp_path / "downloaded" / file.name).exists()


def test_directory_of_artifacts_that_is_a_link_of_another_user(tmp_path: Path) -> None:
    """It could lead to a private model of this user, also if the link appears while files are downloaded."""
    artifacts = _local(tmp_path)
    download.download_file(artifacts, "attestation.json", 100, tmp_path / "downloaded")
    (tmp_path / "artifacts").rename(tmp_path / "other")
    (tmp_path / "artifacts").symlink_to(tmp_path / "other")
    download.download_file(artifacts, "attestation.json", 100, tmp_path / "downloaded")
    os.chown(tmp_path / "artifacts", 65534, -1, follow_symlinks=False)
    with pytest.raises(SpecError) as caught:
        download.download_file(artifacts, "attestation.json", 100, tmp_path / "downloaded")
    assert caught.value.code == "foreign-link"


@pytest.mark.parametrize("is_local", [True, False])
def test_link_in_the_place_of_the_downloaded_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    """Another user who can rename the staging directory may have made it."""
    artifacts = _local(tmp_path)
    if not is_local:
        artifacts = MagicMock(spec=["_download_file"], _download_file=artifacts._download_file)  # noqa: SLF001 - what MLflow calls
    target = tmp_path / "downloaded" / "attestation.json"
    target.symlink_to(tmp_path / "private")
    monkeypatch.setattr(download, "foreign_reason", lambda _: "belongs to another user")
    download.download_file(artifacts, target.name, 100, tmp_path / "downloaded")
    assert (target.is_symlink(), target.read_text()) == (False, "{}")
    assert (tmp_path / "private").read_text() == "secret"
