"""The real Triton serves an S3 bucket that `repogen` writes, in explicit mode; S3 is moto's server."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tritonclient.grpc import InferenceServerClient

import repogen
from repogen.cli.group import main
from repogen.files.url import location
from repogen.serving import commands
from repogen.stores import s3
from repogen.stores.claim import claim_name
from repogen.stores.open import open_store
from tests.support.clients import Load, ask
from tests.support.moto_s3 import create_bucket, s3_server
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled
from tests.support.served_bucket import server_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.deployment import DeployReport

    from .conftest import Project

URL = "s3://bucket/team/models"


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[dict[str, str]]:
    """Run S3 with one bucket, and set the variables of its clients."""
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        create_bucket(variables, "bucket")
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


class Server:
    """A running Triton."""

    def __init__(self, address: str) -> None:
        """Use the server at a gRPC address."""
        self.address = address

    def deploy(self, name: str) -> int:
        """Deploy a model from the bucket, and return the exit code."""
        return self.report(name).exit_code

    def report(self, name: str) -> DeployReport:
        """Deploy a model from the bucket."""
        return repogen.deploy(name, servers=[self.address], repository=URL)

    def answer(self, name: str) -> float:
        """Return what the model multiplies by."""
        with closing(InferenceServerClient(self.address)) as client:
            return ask(client, name)


def publish(local: Path, scaled: Scaled, name: str = "scale") -> int:
    """Publish a version into a local repository, and from there into the bucket."""
    publish_scaled(local, name, scaled)
    return repogen.publish(name, source=local, target=URL).versions[0].number


@pytest.mark.full
def test_build_into_a_bucket(
    tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is built, tested and uploaded; a second build has nothing to do. Credentials are not written."""
    secret = "5ecre7-access-key"  # noqa: S105 - moto accepts any
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    project = new_project(tmp_path / "project")
    tracking = ("--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db")
    run = project.run("build", "--repository", URL, "--debug", *tracking)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"repository: {URL}" in run.stdout
    assert not project.repository.exists()
    again = project.run("build", "--repository", URL, "--debug", *tracking)
    assert (again.returncode, "unchanged" in again.stdout) == (0, True), again.stdout + again.stderr
    smoke = project.run("smoke", URL, "--model", "tiny")
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
    assert list(project.scratch.iterdir()) == []
    store = open_store(location(URL))  # type: ignore[arg-type]
    stored = [store.read(each.key, 10**7) for each in store.list("team/models/tiny/")]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    printed = [text.encode() for each in (run, again, smoke) for text in (each.stdout, each.stderr)]
    assert len(stored) > 5
    assert not [content for content in (*stored, *files, *printed) if secret.encode() in content]


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the keys of the objects that are downloaded."""
    keys: list[str] = []
    download = s3.S3Store.download

    def recorded(store: s3.S3Store, key: str, *arguments: Any) -> None:
        keys.append(key.removeprefix("team/models/"))
        download(store, key, *arguments)

    monkeypatch.setattr(s3.S3Store, "download", recorded)
    return keys


def test_server_on_a_bucket(environment: dict[str, str], tmp_path: Path, downloads: list[str]) -> None:
    """Publish, deploy, roll back and prune; an upload in progress and a version that fails leave the old one."""
    local, empty = tmp_path / "local", tmp_path / "empty"
    empty.mkdir()
    assert publish(local, Scaled(2.0)) == 1
    with server_on(environment, URL, empty) as address:
        server = Server(address)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 2.0)
        assert publish(local, Scaled(3.0)) == 2
        assert server.answer("scale") == 2.0
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
        repogen.rollback("scale", repository=URL)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 2.0)
        repogen.rollback("scale", repository=URL, release=True)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
        assert publish(local, Scaled(4.0, golden=5.0)) == 3
        load = Load(address, "scale")
        with load.running():
            report = server.report("scale")
        (model,) = report.servers[0].models
        assert (report.exit_code, model.action.value, model.serving) == (6, "restored", (2,)), model.note
        assert "was not tested" not in model.note  # version 2 was tested after it was restored
        assert (load.failures, server.answer("scale")) == ([], 3.0)
        assert load.requests > 0
        assert load.answers <= {3.0, 4.0}  # the new version answers while it is tested
        repogen.rollback("scale", 2, repository=URL)
        begin_upload(tmp_path, 4)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
    # Triton reads the graph from the bucket
    assert {key.rpartition("/")[2] for key in downloads} == {"golden.json", "golden.npz"}
    assert [version.version for version in repogen.prune("scale", keep=1, repository=URL).deleted] == [1]
    with server_on(environment, URL, empty) as address:
        fresh = Server(address)
        assert (fresh.deploy("scale"), fresh.answer("scale")) == (0, 3.0)


@pytest.mark.full
def test_ensemble_on_a_bucket(environment: dict[str, str], tmp_path: Path) -> None:
    """A step is deployed with the ensemble that uses it, although only the step is named."""
    local, empty = tmp_path / "local", tmp_path / "empty"
    empty.mkdir()
    with server_on(environment, URL, empty) as address:
        server = Server(address)
        for factor, name in ((2.0, "whole"), (3.0, "part")):
            publish(local, Scaled(factor), "part")
            publish_ensemble(local, "whole", "part", Scaled(factor))
            repogen.publish("whole", source=local, target=URL)
            report = server.report(name)
            assert (report.exit_code, [model.model for model in report.servers[0].models]) == (0, ["part", "whole"])
            assert (server.answer("whole"), server.answer("part")) == (factor, factor)


def begin_upload(directory: Path, version: int) -> None:
    """Leave what an upload leaves that was killed after its first file."""
    (directory / "model.onnx").write_bytes(b"a part")
    store = open_store(location(URL))  # type: ignore[arg-type]
    store.create(f"team/models/{claim_name('scale', version)}", b"{}")
    store.upload(directory / "model.onnx", f"team/models/scale/{version}/model.onnx", lambda _: None)


@pytest.mark.full
def test_serve_and_bench_on_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both use a copy, which is removed afterward."""
    publish(tmp_path / "local", Scaled(2.0), "copied")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(commands, "wait", lambda *_arguments: None)
    result = CliRunner().invoke(main, ["serve", URL, "--model", "copied", "--debug"])
    assert (result.exit_code, f"serves {URL}" in result.output) == (0, True), result.output
    report = repogen.bench(["copied"], spec=None, repository=URL, batch=[1], concurrency=[1], rounds=1, seconds=0.1)
    assert str(report.repository) == URL
    assert list((tmp_path / "scratch").glob("repogen-temporary-*")) == []
