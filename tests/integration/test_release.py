"""The release desk for real: `mlflow server` on PostgreSQL with auth, and every process of it killed in turn."""

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

pytestmark = pytest.mark.first

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
def desk() -> Iterator[ReleaseServer]:
    """Run the servers, and let every `repogen` of this file know where and with which credentials."""
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
        desk: The servers.
    """

    project: Project
    name: str
    desk: ReleaseServer

    def scale_by(self, factor: float) -> None:
        """Change what the model computes."""
        models = self.project.directory / "models.py"
        models.write_text(MODELS.replace("1.0", str(factor)), encoding="utf-8")

    def run(self, *arguments: str, expected: int = 0) -> Any:
        """Run `repogen … --json` and return its document; its exit code must be the expected one."""
        done = self.project.run(*arguments, "--json")
        assert done.returncode == expected, done.stdout + done.stderr
        assert self.desk.password not in done.stdout + done.stderr
        return json.loads(done.stdout)

    def build(self, *flags: str, expected: int = 0) -> Any:
        """Build, and return the model's part of the document."""
        (model,) = self.run("build", *flags, expected=expected)["models"]
        return model

    def until(self, line: str, then: Callable[[subprocess.Popen[str]], None], *arguments: str) -> tuple[int, str]:
        """Run `repogen` until its progress says ``line``, do something then, and wait for its end."""
        told = []
        with self.project.start(*arguments) as process:
            assert process.stderr is not None
            for said in process.stderr:
                told.append(said)
                if said.endswith(f"{line}\n"):
                    then(process)
                    break
            else:
                pytest.fail(f"{line!r} was never said:\n{''.join(told)}")
            told += process.stderr
        return process.returncode, "".join(told)

    def versions(self) -> list[tuple[str, str, str]]:
        """Return number, state and Triton version of every registered version, oldest first, as MLflow's API tells."""
        query = urllib.parse.urlencode({"filter": f"name='{self.name}'"})
        found = self.desk.ask(f"/api/2.0/mlflow/model-versions/search?{query}").get("model_versions", [])
        rows = []
        for version in found:
            tags = {tag["key"]: tag["value"] for tag in version.get("tags", [])}
            rows.append((version["version"], tags["repogen.state"], tags.get("repogen.triton.version", "")))
        return sorted(rows)


@pytest.fixture
def team(tmp_path: Path, new_project: Callable[[Path], Project], desk: ReleaseServer, request: Any) -> Team:
    """Return a project with a model of this test's own."""
    name = request.node.originalname.removeprefix("test_")
    project = new_project(tmp_path)
    project.edit("tiny:", f"{name}:")
    project.edit("models:", 'mlflow: {tracking_uri: "sqlite:///not-this-one.db"}\nmodels:')
    found = Team(project, name, desk)
    found.scale_by(1.0)
    return found


def kill(process: subprocess.Popen[str]) -> None:
    """End a `repogen` and its children as `kill -9` does."""
    os.killpg(process.pid, signal.SIGKILL)


def answers(name: str, repository: Path) -> float:
    """Serve a repository with a fresh Triton, and return what the model makes of a one."""
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
    """Build, promote, build, gate, promote, sync, serve, roll back, sync, serve: what is served is the registry's."""
    production = tmp_path / "production"
    follow = ("sync", "--alias", "champion", "--repository", str(production), "--model", team.name)
    first = team.build()
    assert (first["version"], first["registry_version"]) == (1, 1)
    team.run("promote", team.name, "--alias", "champion")
    team.scale_by(2.0)
    assert team.build()["registry_version"] == 2
    refused = team.run("promote", team.name, "--alias", "champion", "--gate", "size.max_ratio=0.01", expected=1)
    assert {gate["gate"]: gate["verdict"] for gate in refused["gates"]}["size.max_ratio"] == "failed"
    team.run(*follow)
    assert answers(team.name, production) == 1.0
    passed = team.run("promote", team.name, "--alias", "champion", "--gate", "smoke", "--gate", "latency.max_ratio=20")
    assert (passed["old"], passed["new"]) == (1, 2)
    team.run(*follow)
    assert answers(team.name, production) == 2.0
    team.run("promote", team.name, "--alias", "champion", "--rollback")
    assert team.run(*follow)["changed"] is True
    assert answers(team.name, production) == 1.0
    assert team.run(*follow)["changed"] is False
    periods = team.run("history", team.name)["periods"]
    assert [(period["version"], period["why"]) for period in periods] == [
        (1, "promote"),
        (2, "promote"),
        (1, "rollback"),
    ]
    assert team.versions() == [("1", "published", "1"), ("2", "published", "2")]
    assert not (team.project.directory / "not-this-one.db").exists()
    assert team.desk.password.encode() not in b"".join(p.read_bytes() for p in production.rglob("*") if p.is_file())


def test_server_killed(team: Team, tmp_path: Path) -> None:
    """In the midst of build, promote and sync: exit code 8 each time, nothing half-done, and a rerun completes."""
    production = tmp_path / "production"
    follow = ("sync", "--alias", "champion", "--repository", str(production), "--model", team.name)
    promote = ("promote", team.name, "--alias", "champion", "--gate", "smoke")

    def down(_: object) -> None:
        team.desk.kill()

    code, told = team.until(f"{team.name}: smoke", down, "build")
    assert (code, team.project.published()) == (8, {}), told
    assert "Traceback" not in told
    team.desk.start()
    assert team.versions() == []
    assert team.build()["version"] == 1

    code, told = team.until(f"{team.name}: smoke", down, *promote)
    assert code == 8, told
    team.desk.start()
    assert team.run("history", team.name)["periods"] == []
    team.run(*promote)

    code, told = team.until(f"{team.name}: fetch", down, *follow)
    assert code == 8, told
    assert not [path for path in production.glob("*/*") if path.is_dir()]
    team.desk.start()
    team.run(*follow)
    assert answers(team.name, production) == 1.0


def test_builder_killed(team: Team) -> None:
    """Between register, publish and confirm: pending is never promoted, and a rerun adopts or confirms it."""
    code, _ = team.until(f"{team.name}: publish", kill, "build")
    assert code == -signal.SIGKILL
    ((number, state, _),) = team.versions()
    assert (number, state) == ("1", "pending")
    team.run("promote", team.name, "--alias", "champion", expected=1)
    assert team.build()["status"] in {"published", "unchanged"}  # the kill may come after the rename
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
    """A server that dies before publish has ended: published, unconfirmed, exit code 8; the next build confirms it."""
    held = ExitStack()

    def down(_: object) -> None:
        team.desk.kill()
        held.close()  # publish waited for this, so that the server is gone when it is to confirm

    repository = team.project.directory / "model_repository"
    repository.mkdir()
    held.enter_context(locked(repository, 1.0))
    code, told = team.until(f"{team.name}: publish", down, "build")
    assert (code, "not confirmed in MLflow" in told) == (8, True), told
    assert team.project.published()
    team.desk.start()
    assert team.versions() == [("1", "pending", "")]
    assert team.build()["status"] == "unchanged"
    assert team.versions() == [("1", "published", "1")]
