"""Which server a name means, and the commands they are started with."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError
from repogen.serving import docker, embedded, process
from repogen.serving import wheel_lock as lock
from repogen.serving.install import Installation
from repogen.serving.interpreter import Interpreter
from repogen.serving.remote import RemoteTriton
from repogen.serving.servers import embedded_requirements, server
from repogen.targets import targets

TARGET = targets()["24.10"]
LAUNCH = process.Launch("repogen-1-ab", Path("/run"), process.Ports(5001, 5000, 5002))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("embedded", embedded.EmbeddedTriton(TARGET, Silent())),
        ("docker", docker.DockerTriton(TARGET, Silent())),
        ("triton.internal:8001", RemoteTriton("triton.internal:8001")),
        ("[::1]:8001", RemoteTriton("[::1]:8001")),
    ],
)
def test_a_kind_names_its_server(kind: str, expected: object) -> None:
    """Nothing is started by naming it."""
    found = server(kind, TARGET, Silent())

    assert (type(found), getattr(found, "address", "")) == (type(expected), getattr(expected, "address", ""))


@pytest.mark.parametrize("kind", ["", "Docker", "localhost", "localhost:", "localhost:0", "host:70000", "http://h:80"])
def test_any_other_kind_is_refused_with_the_kinds_that_are(kind: str) -> None:
    """The message lists what may be said."""
    with pytest.raises(ServerError, match="embedded, docker, HOST:PORT"):
        server(kind, TARGET, Silent())


def test_docker_runs_the_targets_image_on_a_read_only_repository() -> None:
    """The whole argv, ports on 127.0.0.1 only."""
    assert docker.docker_command(TARGET, LAUNCH, Path("/my models"), ControlMode.NONE, gpu=False) == [
        *("docker", "run", "--rm", "--init", "--name=repogen-1-ab", "--shm-size=1g"),
        *("--publish=127.0.0.1:5001:8001", "--publish=127.0.0.1:5000:8000", "--publish=127.0.0.1:5002:8002"),
        "--mount=type=bind,source=/my models,target=/models,readonly",
        "nvcr.io/nvidia/tritonserver:24.10-py3",
        *("tritonserver", "--id=repogen-1-ab", "--model-repository=/models", "--model-control-mode=none"),
        *("--exit-on-error=true", "--exit-timeout-secs=3"),
    ]


def test_docker_gets_gpus_and_polls_when_asked() -> None:
    """Two options more."""
    plain = docker.docker_command(TARGET, LAUNCH, Path("/m"), ControlMode.EXPLICIT, gpu=False)
    asked = docker.docker_command(TARGET, LAUNCH, Path("/m"), ControlMode.POLL, gpu=True)

    assert set(asked) - set(plain) == {"--gpus=all", "--model-control-mode=poll", "--repository-poll-secs=1"}


def test_the_embedded_server_listens_on_localhost_and_keeps_its_own_shared_memory() -> None:
    """All three addresses are 127.0.0.1; the shared memory's prefix is this server's."""
    python = Interpreter(Path("/usr/bin/python3.11"), "3.11", Path("/usr/lib/libpython3.11.so.1.0"))
    parts = (Path("/c/server"), Path("/c/site"), Path("/c/backends"))
    installation = Installation(Path("/c"), lock.shipped(), python, "1.19.2", *parts)

    command = embedded.server_command(installation, LAUNCH, Path("/m"), ControlMode.EXPLICIT)
    strict = embedded.server_command(installation, LAUNCH, Path("/m"), ControlMode.EXPLICIT, strict=True)
    assert [*command, "--disable-auto-complete-config"] == strict

    assert command[0] == "/c/server/bin/tritonserver"
    assert [part for part in command if "-address=" in part] == [
        "--grpc-address=127.0.0.1",
        "--http-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]
    assert "--backend-config=python,shm-region-prefix-name=repogen-1-ab-" in command


def test_free_ports_are_three_that_can_be_bound() -> None:
    """Different, and free."""
    ports = process.free_ports()

    chosen = {ports.grpc, ports.http, ports.metrics}
    assert len(chosen) == 3
    for port in chosen:
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", port))


def test_a_server_that_ends_at_once_is_an_error_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and the last lines are in the message; its run directory is gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with (
        pytest.raises(ServerError, match=r"(?s)exit code 3.*out of luck"),
        process.started(lambda _: ["sh", "-c", "echo out of luck; exit 3"]),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_port_taken_meanwhile_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has ports of its own; after the last the error stands."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    launches = []

    def command(launch: process.Launch) -> list[str]:
        launches.append(launch.identity)
        return ["sh", "-c", "echo Socket already in use; exit 1"]

    with pytest.raises(ServerError, match="already in use"), process.started(command):
        pass

    assert len(set(launches)) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_remote_server_that_is_down_is_an_error_that_names_it() -> None:
    """Nothing listens on a port that was just free."""
    address = f"127.0.0.1:{process.free_ports().grpc}"

    with pytest.raises(ServerError, match=rf"no Triton answers at {address}"):
        server(address, TARGET, Silent()).preflight()


def test_every_unmet_requirement_has_a_remedy() -> None:
    """Met or not is this machine's affair; the names are ours."""
    found = embedded_requirements(TARGET)

    assert [each.name for each in found] == [
        *("processor", "glibc", "interpreter", "bash", "shared memory", "paths", "disk")
    ]
    assert [each.name for each in found if not each.met and not each.remedy] == []


def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run directory without a process that holds its lock, from before its supervisor ran."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, alive = tmp_path / "repogen-server-dead", tmp_path / "repogen-server-alive"
    for directory in (dead, alive):
        (directory / "lib").mkdir(parents=True)
    held = os.open(alive, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    def start() -> None:
        with process.started(lambda _: ["false"]):
            pass

    with pytest.raises(ServerError, match="ended while it started"):
        start()

    os.close(held)
    assert [path.name for path in tmp_path.iterdir()] == ["repogen-server-alive"]
