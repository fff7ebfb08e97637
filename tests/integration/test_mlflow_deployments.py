"""`mlflow deployments` with the target triton-repogen, on real servers and a real registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import torch
from mlflow import deployments
from mlflow.exceptions import MlflowException

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode
from repogen.deployments import client
from repogen.serving import control
from repogen.serving.embedded import EmbeddedTriton
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits, WireTensor
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Project

HEADER = ControlHeader("x-ops", "5ecre7")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def expected(seed: int) -> Any:
    """Return what PyTorch computes for ``X``."""
    torch.manual_seed(seed)
    with torch.inference_mode():
        return torch.nn.Linear(4, 2)(torch.from_numpy(X)).numpy()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Iterator[Project]:
    """Return a project with two registered versions, and MLflow's variables in the environment."""
    project = new_project(tmp_path_factory.mktemp("team"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project.directory}/mlflow.db")
        for seed in (0, 1):
            models = project.directory / "models.py"
            models.write_text(models.read_text().replace("manual_seed(0)", f"manual_seed({seed})"))
            built = project.invoke("build", "--no-smoke")
            assert built.returncode == 0, built.stdout + built.stderr
        yield project


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Return the gRPC address of an empty server in explicit mode, and its repository."""
    repository = tmp_path_factory.mktemp("server") / "repository"
    repository.mkdir()
    triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "random_header", lambda: HEADER)
        with triton.running(repository, ControlMode.EXPLICIT, strict=True) as running:
            patch.setenv(control.VARIABLE, f"{HEADER.key}={HEADER.value}")
            yield running.endpoint.grpc, repository


def deploy_client(target: str) -> Any:
    """Return MLflow's client of a target."""
    get: Any = deployments.get_deploy_client
    return get(target)


def error_code(client: Any, method: str, *arguments: Any, **options: Any) -> str:
    """Return MLflow's code of the error that a call raises."""
    with pytest.raises(MlflowException) as caught:
        getattr(client, method)(*arguments, **options)
    return str(caught.value.error_code)


def test_life_of_a_deployment(team: Project, address: tuple[str, Path]) -> None:
    """Create, predict, update, list, delete; every error has MLflow's code."""
    grpc, repository = address
    client = deploy_client(f"triton-repogen://{grpc}?repository={repository}")
    assert error_code(client, "get_deployment", "tiny") == "RESOURCE_DOES_NOT_EXIST"
    assert error_code(client, "update_deployment", "tiny", "models:/tiny/1") == "RESOURCE_DOES_NOT_EXIST"
    assert error_code(client, "create_deployment", "tiny", "models:/tiny/9") == "RESOURCE_DOES_NOT_EXIST"
    assert error_code(client, "create_deployment", "other", "models:/tiny/1") == "INVALID_PARAMETER_VALUE"
    assert error_code(client, "create_deployment", "tiny", "runs:/1/model") == "RESOURCE_DOES_NOT_EXIST"
    client.delete_deployment("tiny")  # idempotent

    created = client.create_deployment("tiny", "models:/tiny/1")
    assert created == {"name": "tiny", "flavor": "triton", "versions": {grpc: [1]}}
    assert client.list_deployments() == [created]
    assert error_code(client, "create_deployment", "tiny", "models:/tiny/2") == "RESOURCE_ALREADY_EXISTS"
    answers = [client.predict("tiny", data)["predictions"]["y"] for data in (X, {"x": X}, pd.DataFrame({"x": list(X)}))]
    for answer in answers:
        np.testing.assert_allclose(answer, expected(0), atol=1e-5)
    assert error_code(client, "predict", "tiny", {"z": X}) == "INVALID_PARAMETER_VALUE"
    assert error_code(client, "predict", "tiny", X[0]) == "INVALID_PARAMETER_VALUE"
    assert error_code(client, "predict", "tiny", X[:, :3]) == "INVALID_PARAMETER_VALUE"

    assert team.invoke("promote", "tiny", "2", "--alias", "champion").returncode == 0
    assert client.update_deployment("tiny", "models:/tiny@champion")["versions"] == {grpc: [2]}
    np.testing.assert_allclose(client.predict("tiny", X)["predictions"]["y"], expected(1), atol=1e-5)
    client.delete_deployment("tiny")
    assert client.list_deployments() == []
    assert (repository / "tiny" / "2" / "manifest.json").is_file()


@pytest.mark.full
def test_command_line(team: Project, address: tuple[str, Path]) -> None:
    """`mlflow deployments create`, `predict` and `delete`."""
    grpc, repository = address
    target = f"triton-repogen://{grpc}"
    (team.directory / "input.json").write_text(json.dumps({"x": X.tolist()}))

    def mlflow(*words: str) -> str:
        command = [sys.executable, "-m", "mlflow", "deployments", words[0], "-t", target, *words[1:]]
        run = subprocess.run(
            command, cwd=team.directory, env=dict(os.environ), capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    mlflow("create", "--name", "tiny", "-m", "models:/tiny/1", "-C", f"repository={repository}")
    (line,) = [line for line in mlflow("predict", "--name", "tiny", "-I", "input.json").splitlines() if "{" in line]
    np.testing.assert_allclose(json.loads(line)["predictions"]["y"], expected(0), atol=1e-5)
    mlflow("delete", "--name", "tiny")
    assert "REPOGEN_DEPLOY_SERVERS" in mlflow("help")


@pytest.mark.usefixtures("team")
def test_run_local(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What `run-local` serves responds as PyTorch does."""
    outputs: list[Any] = []

    class Waiting:
        """Sends a request instead of waiting for Ctrl-C."""

        def wait(self) -> None:
            grpc = capsys.readouterr().out.partition("serving tiny at ")[2].partition(" ")[0]
            with GrpcClient(grpc, Limits()) as triton:
                outputs.append(triton.infer("tiny", 2, [WireTensor("x", "FP32", X)])["y"])

    monkeypatch.setattr(client, "threading", SimpleNamespace(Event=Waiting))
    run_local: Any = deployments.run_local
    run_local("triton-repogen", "tiny", "models:/tiny/2", config={})
    np.testing.assert_allclose(outputs, [expected(1)], atol=1e-5)
