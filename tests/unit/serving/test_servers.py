"""Which server a name means, its options, and the commands that start it."""

from __future__ import annotations

import fcntl
import os
import socket
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError, SpecError
from repogen.serving import docker, embedded, process, servers
from repogen.serving.host_requirements import check_host
from repogen.serving.install import Installation
from repogen.serving.interface import ServerOptions, ServerPlugin
from repogen.serving.interpreter import Interpreter
from repogen.serving.remote import RemoteTriton
from repogen.serving.servers import find_server, prepare_server
from repogen.serving.wheels import shipped_lock
from repogen.targets import targets

TARGET = targets()["24.10"]
LAUNCH = process.Launch("repogen-1-ab", Path("/run"), process.Ports(5001, 5000, 5002))
# As tritonserver 2.51.0 logs it, shortened.
FAILED_START_LOG = """\
I1121 15:18:42.551720 32170 server.cc:674]
+-------+---------+------------------------------------------------------------------------------+
| Model | Version | Status                                                                       |
+-------+---------+------------------------------------------------------------------------------+
| fine  | 2       | READY                                                                        |
| tiny  | 1       | UNAVAILABLE: Invalid argument: instance group tiny_0 of model tiny has kind {} |
+-------+---------+------------------------------------------------------------------------------+
error: creating server: Internal - failed to load all models
"""


class ClusterOptions(ServerOptions):
    """Options of a plug-in's server."""

    namespace: str
    port: int = 8001


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("embedded", embedded.EmbeddedTriton(TARGET, Silent())),
        ("docker", docker.DockerTriton(TARGET, Silent())),
        ("triton.internal:8001", RemoteTriton("triton.internal:8001")),
        ("[::1]:8001", RemoteTriton("[::1]:8001")),
        ("remote:[::1]:8001", RemoteTriton("[::1]:8001")),
        ("remote:address=docker:8001", RemoteTriton("docker:8001")),
    ],
)
def test_name_selects_the_server(kind: str, expected: object) -> None:
    """Nothing is installed or started."""
    server = find_server(kind, TARGET, Silent())

    assert (type(server), getattr(server, "address", "")) == (type(expected), getattr(expected, "address", ""))


@pytest.mark.parametrize("kind", ["", "Docker", "localhost", "localhost:", "localhost:0", "host:70000", "http://h:80"])
def test_unknown_name_lists_the_registered_servers(kind: str) -> None:
    """The hint lists every name that is accepted."""
    with pytest.raises(ServerError, match="is not a server") as caught:
        find_server(kind, TARGET, Silent())

    assert caught.value.code == "server.kind"
    assert "docker, embedded, remote; or HOST:PORT" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        ("remote", "--server remote: address: Field required", "options of remote: address"),
        ("remote:triton", "--server remote: address: Value error, 'triton' is not HOST:PORT", "options of remote"),
        ("embedded:fast", "--server embedded: fast: Extra inputs are not permitted", "options of embedded: none"),
        ("docker:8001", "--server docker: 8001: Extra inputs", "on the host 'docker' write remote:docker:8001"),
    ],
)
def test_invalid_options_are_rejected(kind: str, message: str, hint: str) -> None:
    """The message names the option, and the hint lists the options of the server."""
    with pytest.raises(ServerError, match=message) as caught:
        find_server(kind, TARGET, Silent())

    assert (caught.value.code, hint in caught.value.hint) == ("server.options", True)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("ml", ClusterOptions(namespace="ml")),
        ("ml,port=9001", ClusterOptions(namespace="ml", port=9001)),
        ("port=9001,namespace=a=b", ClusterOptions(namespace="a=b", port=9001)),
    ],
)
def test_plugin_receives_its_validated_options(
    monkeypatch: pytest.MonkeyPatch, argument: str, expected: ClusterOptions
) -> None:
    """``NAME:ARGUMENT`` is parsed into the fields of the plug-in's model."""
    received: list[ClusterOptions] = []

    def create(options: ClusterOptions, *_: object) -> RemoteTriton:
        received.append(options)
        return RemoteTriton("127.0.0.1:1")

    monkeypatch.setattr(servers, "plugins", lambda group: {"cluster": EntryPoint("cluster", "x:PLUGIN", group)})
    monkeypatch.setattr(servers, "load_plugin", lambda *_: ServerPlugin(ClusterOptions, create))

    find_server(f"cluster:{argument}", TARGET, Silent())

    assert received == [expected]


def test_entry_point_that_is_not_a_plugin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint names the entry point."""
    monkeypatch.setattr(servers, "plugins", lambda group: {"cluster": EntryPoint("cluster", "json:loads", group)})
    monkeypatch.setattr(servers, "load_plugin", lambda *_: print)

    with pytest.raises(SpecError, match=r"'cluster' of repogen\.servers is not a ServerPlugin") as caught:
        find_server("cluster", TARGET, Silent())

    assert "json:loads" in caught.value.hint


def test_docker_runs_the_targets_image_on_a_read_only_repository() -> None:
    """The ports are published on 127.0.0.1 only."""
    options = process.triton_options(LAUNCH, ControlMode.NONE, strict=False)
    assert docker.docker_command(TARGET, LAUNCH, Path("/my models"), options, gpu=False) == [
        *("docker", "run", "--rm", "--init", "--name=repogen-1-ab", "--shm-size=1g"),
        *("--publish=127.0.0.1:5001:8001", "--publish=127.0.0.1:5000:8000", "--publish=127.0.0.1:5002:8002"),
        "--mount=type=bind,source=/my models,target=/models,readonly",
        "nvcr.io/nvidia/tritonserver:24.10-py3",
        *("tritonserver", "--model-repository=/models", "--exit-timeout-secs=3", "--id=repogen-1-ab"),
        *("--model-control-mode=none", "--exit-on-error=true"),
    ]


def test_docker_gets_gpus() -> None:
    """One option is added."""
    without = docker.docker_command(TARGET, LAUNCH, Path("/m"), [], gpu=False)
    assert set(docker.docker_command(TARGET, LAUNCH, Path("/m"), [], gpu=True)) - set(without) == {"--gpus=all"}


def test_options_follow_the_control_mode() -> None:
    """Only mode ``none`` exits on a model that does not load, only ``poll`` polls, and strict disables completion."""
    none, poll, explicit = (process.triton_options(LAUNCH, mode, strict=False) for mode in ControlMode)
    assert set(poll) - set(none) == {"--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false"}
    assert explicit == ["--id=repogen-1-ab", "--model-control-mode=explicit", "--exit-on-error=false"]
    strict = process.triton_options(LAUNCH, ControlMode.EXPLICIT, strict=True)
    assert strict == [*explicit, "--disable-auto-complete-config"]


def test_embedded_server_listens_on_localhost_and_uses_its_own_shared_memory() -> None:
    """All three addresses are 127.0.0.1; the prefix of its shared memory is unique."""
    python = Interpreter(Path("/usr/bin/python3.11"), "3.11", Path("/usr/lib/libpython3.11.so.1.0"))
    parts = (Path("/c/server"), Path("/c/site"), Path("/c/backends"))
    installation = Installation(Path("/c"), shipped_lock(), python, "1.19.2", *parts)

    command = embedded.server_command(installation, LAUNCH, Path("/m"), ["--last"])

    assert (command[0], command[-1]) == ("/c/server/bin/tritonserver", "--last")
    assert [part for part in command if "-address=" in part] == [
        "--grpc-address=127.0.0.1",
        "--http-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]
    assert "--backend-config=python,shm-region-prefix-name=repogen-1-ab-" in command


def test_free_ports_can_be_bound() -> None:
    """There are three different ports."""
    ports = process.free_ports()

    numbers = {ports.grpc, ports.http, ports.metrics}
    assert len(numbers) == 3
    for port in numbers:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_server_that_exits_at_once_is_an_error_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and the last lines are in the message, and its run directory is removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with (
        pytest.raises(ServerError, match=r"(?s)exit code 3.*out of luck"),
        process.started(lambda _: ["sh", "-c", "echo out of luck; exit 3"]),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_start_is_repeated_when_a_port_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has its own ports; the error of the last attempt is raised."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    launches = []

    def command(launch: process.Launch) -> list[str]:
        launches.append(launch.identity)
        return ["sh", "-c", "echo Socket already in use; exit 1"]

    with pytest.raises(ServerError, match="already in use"), process.started(command):
        pass

    assert len(set(launches)) == 5
    assert list(tmp_path.iterdir()) == []


def test_remote_server_that_is_down_is_an_error() -> None:
    """The message names the address; no server listens on a port that is free."""
    address = f"127.0.0.1:{process.free_ports().grpc}"

    with pytest.raises(ServerError, match=rf"no Triton responds at {address}"):
        prepare_server(address, TARGET, Silent())


def test_every_unmet_requirement_has_a_remedy() -> None:
    """Which requirements are met depends on the machine; the names do not."""
    checks = check_host(TARGET)

    assert [check.name for check in checks] == [
        *("processor", "glibc", "interpreter", "bash", "shared memory", "paths", "disk")
    ]
    assert [check.name for check in checks if check.ok == bool(check.remedy)] == []


def test_only_unused_run_directories_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory without a process that holds its lock was left by a killed process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    unused, used = tmp_path / "repogen-server-unused", tmp_path / "repogen-server-used"
    for directory in (unused, used):
        (directory / "lib").mkdir(parents=True)
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def start() -> None:
        with process.started(lambda _: ["false"]):
            pass

    with pytest.raises(ServerError, match="exited while it started"):
        start()

    os.close(descriptor)
    assert [path.name for path in tmp_path.iterdir()] == ["repogen-server-used"]


def test_models_that_did_not_load_are_listed() -> None:
    """Each has one line with the reason; the log is in the details."""
    log = FAILED_START_LOG.format("KIND_MODEL")
    error = process.start_failure(1, log)
    assert error.message == (
        "Triton could not load every model of the repository:\n"
        "  tiny version 1: Invalid argument: instance group tiny_0 of model tiny has kind KIND_MODEL"
    )
    assert (error.code, error.details) == ("server.start", log)


def test_gpu_model_without_a_gpu_has_a_hint() -> None:
    """The hint names another server, another kind, and the command that works without a GPU."""
    hint = process.start_failure(1, FAILED_START_LOG.format("KIND_GPU but no GPUs are available")).hint
    assert all(way in hint for way in ("--server docker", "KIND_CPU", "repogen smoke"))


def test_failed_start_without_a_failed_model_has_the_log() -> None:
    """The message contains the log."""
    assert process.start_failure(127, "libpython is missing").message == (
        "Triton exited while it started (exit code 127):\nlibpython is missing"
    )
