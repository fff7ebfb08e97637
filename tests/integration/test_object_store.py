"""The real Triton serves an S3 bucket that `repogen` writes, in explicit mode; S3 is moto's server."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from tritonclient.grpc import InferenceServerClient, InferInput

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode
from repogen.cli.group import main
from repogen.files.url import location
from repogen.serving import commands, control, embedded
from repogen.serving.embedded import EmbeddedTriton
from repogen.stores.claim import claim_name
from repogen.stores.open import open_store
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.moto_s3 import create_bucket, s3_server
from tests.support.scaled_models import Scaled, publish_scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


@contextmanager
def server_on(environment: dict[str, str], directory: Path) -> Iterator[Server]:
    """Start a Triton in explicit mode whose repository is the bucket, as the user of the URL writes it for Triton."""
    command = embedded.server_command
    mounted = f"--model-repository=s3://{environment['AWS_ENDPOINT_URL']}/{URL.removeprefix('s3://')}"

    def on_bucket(*arguments: Any) -> list[str]:
        options = command(*arguments)
        variables = [f"{name}={value}" for name, value in environment.items() if name != "AWS_ENDPOINT_URL"]
        return [*variables, *(mounted if part.startswith("--model-repository=") else part for part in options)]

    header = ControlHeader("x-ops", "5ecre7")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_command", on_bucket)
        patch.setattr(control, "random_header", lambda: header)
        patch.setenv(control.VARIABLE, f"{header.key}={header.value}")
        triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
        with triton.running(directory, ControlMode.EXPLICIT, strict=True) as running:
            yield Server(running.endpoint.grpc)


class Server:
    """A running Triton."""

    def __init__(self, address: str) -> None:
        """Use the server at a gRPC address."""
        self.address = address

    def deploy(self, name: str) -> int:
        """Deploy a model from the bucket, and return the exit code."""
        return repogen.deploy(name, servers=[self.address], repository=URL).exit_code

    def answer(self, name: str) -> float:
        """Return what the model multiplies by."""
        x = InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.ones((1, 4), np.float32))
        with closing(InferenceServerClient(self.address)) as client:
            y = client.infer(name, [x]).as_numpy("y")
        assert y is not None
        return float(y[0, 0])


def publish(local: Path, scaled: Scaled, name: str = "scale") -> int:
    """Publish a version into a local repository, and from there into the bucket."""
    publish_scaled(local, name, scaled)
    return repogen.publish(name, source=local, target=URL).versions[0].number


def test_build_into_a_bucket(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """The model is built, tested and uploaded; a second build has nothing to do, and downloads no model."""
    project = new_project(tmp_path / "project")
    run = project.run("build", "--repository", URL)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"repository: {URL}" in run.stdout
    assert not project.repository.exists()
    run = project.run("build", "--repository", URL)
    assert (run.returncode, "unchanged" in run.stdout) == (0, True), run.stdout + run.stderr
    run = project.run("smoke", URL, "--model", "tiny")
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(project.scratch.iterdir()) == []


def test_server_on_a_bucket(environment: dict[str, str], tmp_path: Path) -> None:
    """Publish, deploy, roll back and prune; an upload in progress and a version that fails leave the old one."""
    local, empty = tmp_path / "local", tmp_path / "empty"
    empty.mkdir()
    assert publish(local, Scaled(2.0)) == 1
    with server_on(environment, empty) as server:
        assert (server.deploy("scale"), server.answer("scale")) == (0, 2.0)
        assert publish(local, Scaled(3.0)) == 2
        assert server.answer("scale") == 2.0
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
        repogen.rollback("scale", repository=URL)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 2.0)
        repogen.rollback("scale", repository=URL, release=True)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
        assert publish(local, Scaled(4.0, golden=5.0)) == 3
        assert (server.deploy("scale"), server.answer("scale")) == (6, 3.0)
        repogen.rollback("scale", 2, repository=URL)
        begin_upload(tmp_path, 4)
        assert (server.deploy("scale"), server.answer("scale")) == (0, 3.0)
    assert [version.version for version in repogen.prune("scale", keep=1, repository=URL).deleted] == [1]
    with server_on(environment, empty) as fresh:
        assert (fresh.deploy("scale"), fresh.answer("scale")) == (0, 3.0)


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
    assert list((tmp_path / "scratch").glob("repogen-store-*")) == []
