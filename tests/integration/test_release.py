"""Releases with a real `mlflow server` on PostgreSQL with auth; the server and the builds are killed in turn."""

from __future__ import annotations

import json
import os
import signal
import urllib.parse
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from repogen.artifacts.progress import Silent
from repogen.repository.lock import locked
from repogen.serving import commands as live
from tests.support.release_server import ReleaseServer, release_server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Project

pytestmark = [pytest.mark.first, pytest.mark.full]

MODELS = """\
import torch


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((4,), 1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def build() -> torch.nn.Module:
    return Scale()
"""


@pytest.fixture(scope="module")
def mlflow_server() -> Iterator[ReleaseServer]:
    """Run the servers, and set URI and credentials in the environment of every `repogen` of this file."""
    with release_server() as server, pytest.MonkeyPatch.context() as environment:
        for key, value in server.environment.items():
            environment.setenv(key, value)
        yield server


@dataclass(frozen=True)
class Team:
    """A project whose builds are tracked.

    Attributes:
        project: The project.
        name: Its model.
        server: The servers.
    """

    project: Project
    name: str
    server: ReleaseServer

    def scale_by(self, factor: float) -> None:
        """Change what the model computes."""
        models = self.project.directory / "models.py"
        models.write_text(MODELS.replace("1.0", str(factor)), encoding="utf-8")

    def run(self, *arguments: str, expected: int = 0) -> Any:
        """Run `repogen … --json` with an expected exit code, and return its document."""
        process = self.project.invoke(*arguments, "--json")
        assert process.returncode == expected, process.stdout + process.stderr
        assert self.server.password not in process.stdout + process.stderr
        return json.loads(process.stdout)

    def build(self, *flags: str, expected: int = 0) -> Any:
        """Build, and return the model's part of the document."""
        (model,) = self.run("build", *flags, expected=expected)["models"]
        return model

    def until(self, line: str, then: Callable[[subprocess.Popen[str]], None], *arguments: str) -> tuple[int, str]:
        """Run `repogen` until a line of its progress begins with ``line``, call ``then``, and wait for its end."""
        lines = []
        with self.project.start(*arguments) as process:
            assert process.stderr is not None
            for progress in process.stderr:
                lines.append(progress)
                if progress.partition("] ")[2].startswith(line):
                    then(process)
                    break
            else:
                pytest.fail(f"{line!r} was not printed:\n{''.join(lines)}")
            lines += process.stderr
            assert process.stdout is not None
            lines += process.stdout
        return process.returncode, "".join(lines)

    def versions(self) -> list[tuple[str, str, str]]:
        """Return number, state and Triton version of every registered version, oldest first, from MLflow's API."""
        query = urllib.parse.urlencode({"filter": f"name='{self.name}'"})
        versions = self.server.ask(f"/api/2.0/mlflow/model-versions/search?{query}").get("model_versions", [])
        rows = []
        for version in versions:
            tags = {tag["key"]: tag["value"] for tag in version.get("tags", [])}
            rows.append((version["version"], tags["repogen.state"], tags.get("repogen.triton.version", "")))
        return sorted(rows)


@pytest.fixture
def team(tmp_path: Path, new_project: Callable[[Path], Project], mlflow_server: ReleaseServer, request: Any) -> Team:
    """Return a project whose model only this test uses."""
    name = request.node.originalname.removeprefix("test_")
    project = new_project(tmp_path)
    project.edit("tiny:", f"{name}:")
    project.edit("models:", 'mlflow: {tracking_uri: "sqlite:///not-this-one.db"}\nmodels:')
    team = Team(project, name, mlflow_server)
    team.scale_by(1.0)
    return team


def kill(process: subprocess.Popen[str]) -> None:
    """Kill `repogen` and its children with SIGKILL."""
    os.killpg(process.pid, signal.SIGKILL)


def output_for_one(name: str, repository: Path) -> float:
    """Serve a repository with a new Triton, and return the model's output for an input of ones."""
    with (
        live.serve(repository, "embedded", poll=False, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        x = InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.ones((1, 4), np.float32))
        y = client.infer(name, [x]).as_numpy("y")
        assert y is not None
        return float(y[0, 0])


def test_loop(team: Team, tmp_path: Path) -> None:
    """Build, promote, gate, sync, serve, roll back: Triton serves the version that the registry's alias points to."""
    production = tmp_path / "production"
    follow = ("sync", "--alias", "champion", "--repository", str(production), "--model", team.name)
    first = team.build("--no-smoke")
    assert (first["version"], first["registry_version"]) == (1, 1)
    team.run("promote", team.name, "--alias", "champion")
    team.scale_by(2.0)
    assert team.build("--no-smoke")["registry_version"] == 2
    failed = team.run("promote", team.name, "--alias", "champion", "--gate", "size.max_ratio=0.01", expected=1)
    assert {gate["gate"]: gate["verdict"] for gate in failed["gates"]}["size.max_ratio"] == "failed"
    team.run(*follow)
    assert output_for_one(team.name, production) == 1.0
    passed = team.run("promote", team.name, "--alias", "champion", "--gate", "smoke", "--gate", "latency.max_ratio=20")
    assert (passed["old"], passed["new"]) == (1, 2)
    team.run(*follow)
    assert output_for_one(team.name, production) == 2.0
    team.run("promote", team.name, "--alias", "champion", "--rollback")
    assert team.run(*follow)["changed"] is True
    assert output_for_one(team.name, production) == 1.0
    assert team.run(*follow)["changed"] is False
    periods = team.run("history", team.name)["periods"]
    assert [(period["version"], period["why"]) for period in periods] == [
        (1, "promote"),
        (2, "promote"),
        (1, "rollback"),
    ]
    assert team.versions() == [("1", "published", "1"), ("2", "published", "2")]
    assert not (team.project.directory / "not-this-one.db").exists()
    assert team.server.password.encode() not in b"".join(p.read_bytes() for p in production.rglob("*") if p.is_file())


def test_server_killed(team: Team, tmp_path: Path) -> None:
    """During build, promote and sync: exit code 8 each time, no partial output, and a rerun completes."""
    production = tmp_path / "production"
    follow = ("sync", "--alias", "champion", "--repository", str(production), "--model", team.name)
    promote = ("promote", team.name, "--alias", "champion", "--gate", "smoke")

    def down(_: object) -> None:
        team.server.kill()

    code, output = team.until(f"{team.name}: smoke", down, "build")
    assert (code, team.project.published()) == (8, {}), output
    assert "Traceback" not in output
    team.server.start()
    assert team.versions() == []
    assert team.build()["version"] == 1

    code, output = team.until(f"{team.name}: smoke", down, *promote)
    assert code == 8, output
    team.server.start()
    assert team.run("history", team.name)["periods"] == []
    team.run(*promote)

    code, output = team.until(f"{team.name}: fetch", down, *follow)
    assert code == 8, output
    assert not [path for path in production.glob("*/*") if path.is_dir()]
    team.server.start()
    team.run(*follow)
    assert output_for_one(team.name, production) == 1.0


def test_builder_killed(team: Team) -> None:
    """Between register, publish and confirm: a pending version is not promoted, and a rerun adopts or confirms it."""
    code, _ = team.until(f"{team.name}: publish", kill, "build")
    assert code == -signal.SIGKILL
    ((number, state, _),) = team.versions()
    assert (number, state) == ("1", "pending")
    team.run("promote", team.name, "--alias", "champion", expected=1)
    assert team.build()["status"] in {"published", "unchanged"}  # the build may have been killed after the rename
    assert team.versions() == [("1", "published", "1")]

    team.scale_by(3.0)
    code, _ = team.until(f"{team.name}: confirm", kill, "build")
    assert code == -signal.SIGKILL
    (_, (number, state, _)) = team.versions()
    assert (number, state) == ("2", "pending")
    rerun = team.build()
    assert (rerun["status"], rerun["version"]) == ("unchanged", 2)
    assert "version 2 is now confirmed in MLflow's registry" in rerun["notes"]
    assert team.versions() == [("1", "published", "1"), ("2", "published", "2")]
    assert team.build()["notes"] == []


def test_unconfirmed(team: Team) -> None:
    """The server is killed while a build publishes: published, not confirmed, exit 8; the next build confirms it."""
    lock = ExitStack()

    def down(_: object) -> None:
        team.server.kill()
        lock.close()  # publishing waited for the lock, so that the server is gone when the version is confirmed

    repository = team.project.directory / "model_repository"
    repository.mkdir()
    lock.enter_context(locked(repository, 1.0))
    code, output = team.until(f"{team.name}: publish", down, "build")
    assert (code, "not confirmed in MLflow" in output) == (8, True), output
    assert team.project.published()
    team.server.start()
    assert team.versions() == [("1", "pending", "")]
    assert team.build()["status"] == "unchanged"
    assert team.versions() == [("1", "published", "1")]
