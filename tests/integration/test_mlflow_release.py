"""Releases of an ensemble with a real `mlflow server` on PostgreSQL: tracked, promoted, synced by webhook, deployed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode
from repogen.serving import control
from repogen.serving.embedded import EmbeddedTriton
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.release_server import ReleaseServer, release_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Project

pytestmark = [pytest.mark.first, pytest.mark.full]

SPEC = """\
models:
  scale:
    source: {factory: "models.py:scale"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    outputs: [y]
    dims: {batch: {max: 8}}
    export: {exporter: torchscript}
  shift:
    source: {factory: "models.py:shift"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    outputs: [y]
    dims: {batch: {max: 8}}
    export: {exporter: torchscript}
  chain:
    description: Scales a row, and then shifts it.
    source:
      kind: ensemble
      steps:
        - {model: scale, outputs: {y: scaled}}
        - {model: shift, inputs: {x: scaled}}
    outputs: [y]
"""
MODELS = """\
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((4,), FACTOR))

    def forward(self, x):
        return x * self.factor


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x + self.shift


def scale() -> torch.nn.Module:
    return Scale().eval()


def shift() -> torch.nn.Module:
    return Shift().eval()
"""
HEADER = ControlHeader("x-ops", "5ecre7")
SECRET = secrets.token_hex(32)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
WAIT_SECONDS = 300


@dataclass(frozen=True)
class Team:
    """A project, and the registry that its builds are tracked in.

    Attributes:
        project: The project.
        server: The servers.
    """

    project: Project
    server: ReleaseServer

    def build(self, factor: float) -> None:
        """Build the models with a factor; no flag and no section of the spec says where to track."""
        (self.project.directory / "models.py").write_text(MODELS.replace("FACTOR", str(factor)), encoding="utf-8")
        self.run("build", "--no-smoke")

    def run(self, *arguments: str, expected: int = 0) -> Any:
        """Run `repogen … --json` with an expected exit code, and return its document."""
        process = self.project.run(*arguments, "--json")
        output = process.stdout + process.stderr
        assert process.returncode == expected, output
        assert self.server.password not in output
        return json.loads(process.stdout)

    def expected(self, factor: float) -> Any:
        """Return what PyTorch computes for ``X``."""
        program: dict[str, Any] = {}
        exec(MODELS.replace("FACTOR", str(factor)), program)  # noqa: S102 - the text above
        with torch.inference_mode():
            return program["shift"]()(program["scale"]()(torch.from_numpy(X))).numpy()

    def mlflow(self, *words: str) -> str:
        """Run `mlflow deployments`."""
        command = [sys.executable, "-m", "mlflow", "deployments", *words]
        run = subprocess.run(
            command, cwd=self.project.directory, env=dict(os.environ), capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


@pytest.fixture
def team(project_at: type[Project], tmp_path: Path) -> Iterator[Team]:
    """Run MLflow and PostgreSQL, with URI and credentials in the environment of every process of the test."""
    project = project_at(tmp_path / "project")
    project.directory.mkdir()
    project.spec.write_text(SPEC, encoding="utf-8")
    with release_server() as server, pytest.MonkeyPatch.context() as environment:
        for key, value in (server.environment | {"REPOGEN_WEBHOOK_SECRET": SECRET}).items():
            environment.setenv(key, value)
        yield Team(project, server)


@pytest.fixture
def triton(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return the gRPC address of an empty server in explicit mode, and its repository."""
    repository = tmp_path / "served" / "repository"
    repository.mkdir(parents=True)
    triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "random_header", lambda: HEADER)
        with triton.running(repository, ControlMode.EXPLICIT, strict=True) as running:
            patch.setenv(control.VARIABLE, f"{HEADER.key}={HEADER.value}")
            yield running.endpoint.grpc, repository


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


def served(repository: Path, *names: str) -> list[str]:
    """Return the version that each config.pbtxt of a synced repository serves."""
    configs = [(repository / name / "config.pbtxt").read_text(encoding="utf-8") for name in names]
    return [config.partition("versions: [ ")[2].partition(" ]")[0] for config in configs]


def test_release_of_an_ensemble(team: Team, triton: tuple[str, Path], tmp_path: Path) -> None:
    """Build, promote with gates, sync by webhook, deploy, predict, and roll back: always the whole set."""
    production, names = tmp_path / "production", ("chain", "scale", "shift")
    client = MlflowClient()
    team.build(2.0)
    for name in names:
        version = client.get_model_version(name, "1")
        assert str(version.source).startswith("models:/m-")
        assert version.tags["repogen.state"] == "published"
    assert client.get_model_version("chain", "1").tags["repogen.steps"] == "scale, shift"
    first = team.run("promote", "chain")
    assert {step["model"]: step["new"] for step in first["steps"]} == {"scale": 1, "shift": 1}

    follow = ("sync", "--alias", "champion", "--repository", str(production), "--listen", "127.0.0.1:0")
    with team.project.start(*follow, "--interval", "86400") as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[2].rstrip(";")
            wait_for((production / "chain").is_dir)
            created: Any = client.create_webhook(
                name="production",
                url=f"http://{address}/",
                events=["model_version_alias.created", "model_version_alias.deleted"],
                secret=SECRET,
            )
            assert created.status.is_active()

            team.build(3.0)
            refused = team.run("promote", "chain", "--gate", "size.max_ratio=0.1", expected=1)
            assert (refused["outcome"], served(production, *names)) == ("refused", ["1", "1", "1"])
            moved = team.run("promote", "chain", "--gate", "latency.max_ratio=100", "--gate", "size.max_ratio=2")
            assert {gate["gate"]: gate["verdict"] for gate in moved["gates"]} == {
                "smoke": "passed",
                "parity.max_abs_diff": "recorded",
                "size.max_mb": "recorded",
                "size.max_ratio": "passed",
                "latency.p95_max_ms": "recorded",
                "latency.max_ratio": "passed",
            }
            assert {(step["model"], step["old"], step["new"]) for step in moved["steps"]} == {
                ("scale", 1, 2),
                ("shift", 1, 1),
            }
            wait_for(lambda: served(production, *names) == ["2", "2", "1"])
            team.run("promote", "scale", "1", expected=1)  # a step is promoted with its ensemble

            grpc, repository = triton
            target = ("-t", f"triton-repogen://{grpc}")
            champion = "models:/chain@champion"
            team.mlflow("create", *target, "--name", "chain", "-m", champion, "-C", f"repository={repository}")
            assert predicted(team, target) == pytest.approx(team.expected(3.0), abs=1e-5)

            back = team.run("promote", "chain", "--rollback")
            assert {(step["model"], step["old"], step["new"]) for step in back["steps"]} == {
                ("scale", 2, 1),
                ("shift", 1, 1),
            }
            wait_for(lambda: served(production, *names) == ["1", "1", "1"])
            team.mlflow("update", *target, "--name", "chain", "-m", champion, "-C", f"repository={repository}")
            assert predicted(team, target) == pytest.approx(team.expected(2.0), abs=1e-5)
        finally:
            process.terminate()
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "stopped"
    assert "rejected" not in out
    assert SECRET not in out + err
    check_history(team, client)


def predicted(team: Team, target: tuple[str, ...]) -> Any:
    """Return what `mlflow deployments predict` prints for ``X``."""
    (team.project.directory / "input.json").write_text(json.dumps({"x": X.tolist()}), encoding="utf-8")
    output = team.mlflow("predict", *target, "--name", "chain", "-I", "input.json")
    (line,) = [line for line in output.splitlines() if "{" in line]
    return np.array(json.loads(line)["predictions"]["y"])


def check_history(team: Team, client: MlflowClient) -> None:
    """Check what MLflow and `repogen history` have of the moves: of every model, as text, and with numbers."""
    periods = {name: team.run("history", name)["periods"] for name in ("chain", "scale", "shift")}
    assert {name: [(each["version"], each["why"]) for each in rows] for name, rows in periods.items()} == {
        "chain": [(1, "promote"), (2, "promote"), (1, "rollback")],
        "scale": [(1, "promote"), (2, "promote"), (1, "rollback")],
        "shift": [(1, "promote")],
    }
    assert [each["ensemble"] for each in periods["scale"]] == ["chain 1", "chain 2", "chain 1"]
    moves = [value for key, value in client.get_registered_model("chain").tags.items() if ".move." in key]
    assert [move.partition(" by ")[0] for move in sorted(moves)] == [
        "champion: none -> 1, promote",
        "champion: version 1 -> 2, promote",
        "champion: version 2 -> 1, rollback",
    ]
    (experiment,) = client.search_experiments(filter_string="name = 'repogen'")
    runs = client.search_runs([experiment.experiment_id], "tags.`repogen.outcome` = 'refused'")
    assert [(run.info.status, "gate/size.max_ratio" in run.data.metrics) for run in runs] == [("FAILED", True)]
