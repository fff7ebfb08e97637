"""Which server a name means, its options, and the commands that start it."""

from __future__ import annotations

import fcntl
import os
import re
import socket
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from repogen import machine
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode, Credentials
from repogen.errors import ServerError, SpecError
from repogen.serving import control, docker, embedded, process, servers
from repogen.serving.host_requirements import check_host
from repogen.serving.install import Installation
from repogen.serving.interface import ServerOptions, ServerPlugin
from repogen.serving.interpreter import Interpreter
from repogen.serving.remote import RemoteTriton
from repogen.serving.servers import find_server, prepare_server
from repogen.serving.wheels import shipped_lock
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = targets()["24.10"]
HEADER = ControlHeader("key", "value")
APIS = "model-repository,logging,trace,shared-memory"
RESTRICTED = [f"--grpc-restricted-protocol={APIS}:key=value", f"--http-restricted-api={APIS}:key=value"]
LAUNCH = process.Launch("repogen-1-ab", Path("/run"), process.Ports(5001, 5000, 5002), HEADER)
PRIVATE = process.Launch("repogen-1-ab", Path("/run"), None, HEADER)
# As tritonserver 2.51.0 logs it, shortened.
FAILED_START_LOG = """\
E1121 15:18:40.382163 32170 model_repository_manager.cc:1460] "Poll failed for model directory 'odd': bad name"
E1121 15:18:40.382873 32170 model_repository_manager.cc:724] "failed to load model 'none': no version"
E1121 15:18:40.396624 32170 model_lifecycle.cc:642] "failed to load 'tiny' version 1: Invalid argument: {}\\n\\nAt:\\n"
E1121 15:18:41.396624 32170 model_repository_manager.cc:703] "Invalid argument: ensemble 'all' depends on 'tiny'"
E1121 15:18:41.396624 32170 model_repository_manager.cc:703] "Invalid argument: ensemble part contains models that ..."
E1121 15:18:41.396624 32170 manager.cc:703] "Invalid argument: circular dependency between ensembles: a -> b"
E1121 15:18:42.000000 32170 tritonserver.cc:2607] "Internal: failed to load all models"
I1121 15:18:42.551720 32170 server.cc:674]
+-------+---------+------------------------------------------------------------------------------+
| Model | Version | Status                                                                       |
+-------+---------+------------------------------------------------------------------------------+
| tiny  | 1       | UNAVAILABLE: Invalid argument: {}                                              |
+-------+---------+------------------------------------------------------------------------------+
"""
READY_ROW = "| fine  | 2       | READY                                                                        |\n"


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
        ("unix:/run/triton/grpc:8001", RemoteTriton("unix:/run/triton/grpc:8001")),
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
    with pytest.raises(SpecError, match="is not a server") as caught:
        find_server(kind, TARGET, Silent())

    assert (caught.value.code, caught.value.exit_code) == ("server.kind", 2)
    assert "docker, embedded, remote; or HOST:PORT or unix:PATH" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        ("remote", "--server remote: address is missing", "for example --server remote:HOST:PORT; options of remote"),
        ("remote:triton", "--server remote: address: 'triton' is not HOST:PORT or unix:PATH", "options of remote"),
        (
            "embedded:fast",
            "--server embedded: fast: unknown option",
            "options of embedded: http_port, grpc_port, metrics_port",
        ),
        ("embedded:grpc_prt=1", 'grpc_prt: unknown option (did you mean "grpc_port"?)', "options of embedded"),
        ("docker:8001", "--server docker: 8001: unknown option", "on the host 'docker' write remote:docker:8001"),
    ],
)
def test_invalid_options_are_rejected(kind: str, message: str, hint: str) -> None:
    """The message names the option, and the hint lists the options of the server."""
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        find_server(kind, TARGET, Silent())

    assert (caught.value.code, caught.value.exit_code, hint in caught.value.hint) == ("server.options", 2, True)


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
    mounts = {"/models": Path("/my models")}
    options = process.triton_options(LAUNCH, ControlMode.NONE, "2.51.0", strict=False)
    assert docker.docker_command(TARGET, LAUNCH, mounts, options, gpu=False) == [
        *("docker", "run", "--rm", "--init", "--name=repogen-1-ab", "--shm-size=1g"),
        "--mount=type=bind,source=/my models,target=/models,readonly",
        *("--publish=127.0.0.1:5001:8001", "--publish=127.0.0.1:5000:8000", "--publish=127.0.0.1:5002:8002"),
        "nvcr.io/nvidia/tritonserver:24.10-py3",
        *("tritonserver", "--model-repository=/models", "--exit-timeout-secs=3", "--id=repogen-1-ab"),
        *("--model-control-mode=none", "--exit-on-error=false", *RESTRICTED),
    ]


def test_docker_server_in_explicit_mode_listens_on_sockets_only() -> None:
    """They are in a directory of this user, writable in the container; no port is published."""
    command = docker.docker_command(TARGET, PRIVATE, {"/models": Path("/m")}, [], gpu=False)
    assert command[6:] == [
        "--mount=type=bind,source=/m,target=/models,readonly",
        "--mount=type=bind,source=/run/sockets,target=/run/repogen",
        "nvcr.io/nvidia/tritonserver:24.10-py3",
        *("bash", "-c", 'umask 0; exec "$@"', "tritonserver", "tritonserver"),
        *("--grpc-address=unix:/run/repogen/grpc", "--grpc-port=8001", "--http-address=unix:/run/repogen/http"),
        *("--allow-metrics=false", "--model-repository=/models", "--exit-timeout-secs=3"),
    ]


def test_docker_does_not_accept_the_users_header() -> None:
    """The command lines of Docker and of the container are visible to other users."""
    with pytest.raises(SpecError, match="cannot be kept secret") as caught:
        docker.require_closed(LAUNCH)
    assert HEADER.value not in caught.value.message + caught.value.hint
    docker.require_closed(replace(LAUNCH, control=control.unsendable_header()))


def test_docker_gets_gpus() -> None:
    """One option is added."""
    without = docker.docker_command(TARGET, LAUNCH, {}, [], gpu=False)
    assert set(docker.docker_command(TARGET, LAUNCH, {}, [], gpu=True)) - set(without) == {"--gpus=all"}


def test_options_follow_the_control_mode() -> None:
    """Only ``poll`` polls, strict disables completion, and every mode restricts the control API."""
    none, poll, explicit = (process.triton_options(LAUNCH, mode, "2.51.0", strict=False) for mode in ControlMode)
    assert set(poll) - set(none) == {"--model-control-mode=poll", "--repository-poll-secs=1"}
    assert explicit == ["--id=repogen-1-ab", "--model-control-mode=explicit", "--exit-on-error=false", *RESTRICTED]
    strict = process.triton_options(LAUNCH, ControlMode.EXPLICIT, "2.51.0", strict=True)
    assert strict == [*explicit, "--disable-auto-complete-config"]


@pytest.mark.parametrize("version", ["2.37.0", "2.39.0"])
def test_old_servers_cannot_restrict_http(version: str) -> None:
    """Triton 2.40, release 23.11, is the first one with the option."""
    assert control.restrictions(HEADER, version) == RESTRICTED[:1]
    assert control.restrictions(HEADER, "2.40.0") == RESTRICTED


@pytest.mark.parametrize("text", ["", "secret", "=secret", "key=", "a b=secret", "key=a b", "key=a\nb", "k\u00e9=v"])
def test_control_header_is_validated_and_not_printed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The error contains the names of the option and the variable, but no part of the value."""
    with pytest.raises(SpecError, match="is not KEY=VALUE") as caught:
        control.parse_header(text)
    assert caught.value.code == "server.control-header"
    assert "secret" not in caught.value.message + caught.value.hint
    monkeypatch.delenv(control.VARIABLE, raising=False)
    assert control.configured_header() is None


def test_control_header_is_not_in_any_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote server has it; `repr` does not show it."""
    monkeypatch.setenv(control.VARIABLE, "X-Ops=secret=1")
    server = find_server("localhost:8001", TARGET, Silent())
    assert isinstance(server, RemoteTriton)
    assert server.header == ControlHeader("X-Ops", "secret=1")
    assert server.header.grpc == {"triton-grpc-protocol-x-ops": "secret=1"}
    assert "secret" not in repr(server) + repr(server.header) + repr(LAUNCH)


def test_server_of_a_benchmark_has_a_header_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's header is also that of other servers; who takes the ports of a server that ended would receive it."""
    monkeypatch.setenv(control.VARIABLE, "X-Ops=secret")
    launch = process._launch(ControlMode.EXPLICIT, process.PortOptions(own_control=True))  # noqa: SLF001 - as `started` does
    launch.remove()
    assert control.is_sendable(launch.control)
    assert "secret" not in (launch.control.key, launch.control.value)
    serving = process._launch(ControlMode.NONE, process.FREE_PORTS)  # noqa: SLF001 - the same
    serving.remove()
    assert serving.control == ControlHeader("X-Ops", "secret")


TCP_HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


OWN = [(f"0100007F:{port}", "0A", os.geteuid()) for port in ("1388", "1389", "138A")]


@pytest.mark.parametrize(
    ("rows", "is_own"),
    [
        (OWN, True),
        ([(address, state, 0) for address, state, _ in OWN], True),
        ([(f"{'0' * 32}:{port}", "0A", 0) for port in ("1388", "1389", "138A")], True),
        # another user took a port before Triton, and can answer with the name of the server, which everyone can read
        ([*OWN[:2], ("0100007F:138A", "0A", 4711)], False),
        ([*OWN, ("00000000:1389", "0A", 4711)], False),
        ([*OWN, (f"{'0' * 32}:138A", "0A", 4711)], False),
        ([*OWN, ("0000000000000000FFFF00000100007F:1388", "0A", 4711)], False),
        # not on these ports, or not reachable at 127.0.0.1
        ([*OWN, ("0100007F:1388", "01", 4711), ("0100007F:1F90", "0A", 4711), ("0200000A:1388", "0A", 4711)], True),
        # the other user answered, and stopped to listen before the response was read
        ([], False),
        (OWN[:2], False),
        ([*OWN[:2], ("0200000A:138A", "0A", os.geteuid())], False),
    ],
)
def test_ports_of_a_server_belong_to_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str, int]], *, is_own: bool
) -> None:
    """Every port has a listener of this user or of root, and none of another user."""
    text = "".join(
        f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user:5}        0 1 1 0 100\n"
        for address, state, user in rows
    )
    (tmp_path / "tcp").write_text(TCP_HEADER + text, encoding="ascii")
    monkeypatch.setattr(machine, "_TCP_TABLES", (tmp_path / "missing", tmp_path / "tcp"))
    assert process._has_own_ports(process.Ports(0x1389, 0x1388, 0x138A)) is is_own  # noqa: SLF001 - takes a second user
    assert process._has_own_ports(None)  # noqa: SLF001 - the same


def test_ports_are_not_known_without_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS, with Docker, the name in the response must be sufficient."""
    monkeypatch.setattr(machine, "_TCP_TABLES", (tmp_path / "missing",))
    assert process._has_own_ports(process.Ports(1, 2, 3))  # noqa: SLF001 - as above


def test_listener_is_own_as_the_system_reports_it() -> None:
    """Until it stops to listen."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert process._has_own_ports(process.Ports(port, port, port))  # noqa: SLF001 - as above
    assert not process._has_own_ports(process.Ports(port, port, port))  # noqa: SLF001 - as above


def test_embedded_server_listens_on_localhost_and_uses_its_own_shared_memory() -> None:
    """All three addresses are 127.0.0.1; the prefix of its shared memory is unique."""
    python = Interpreter(Path("/usr/bin/python3.11"), "3.11", Path("/usr/lib/libpython3.11.so.1.0"))
    parts = (Path("/c/server"), Path("/c/site"), Path("/c/backends"))
    installation = Installation(Path("/c"), shipped_lock(), python, "1.19.2", *parts)

    command = embedded.server_command(installation, LAUNCH, Path("/m"), ["--last"])
    private = embedded.server_command(installation, PRIVATE, Path("/m"), [])

    assert (command[0], command[-1]) == ("/c/server/bin/tritonserver", "--last")
    assert [part for part in command if "-address=" in part] == [
        "--grpc-address=127.0.0.1",
        "--http-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]
    assert [part for part in private if "-address=" in part or "-port=" in part or "metrics=" in part] == [
        *("--grpc-address=unix:/run/sockets/grpc", "--grpc-port=8001", "--http-address=unix:/run/sockets/http"),
        *("--allow-metrics=false", "--allow-gpu-metrics=false", "--allow-cpu-metrics=false"),
    ]
    assert "--backend-config=python,shm-region-prefix-name=repogen-1-ab-" in command


def test_free_ports_can_be_bound() -> None:
    """There are three different ports."""
    ports = process.choose_ports(process.FREE_PORTS)

    numbers = {ports.grpc, ports.http, ports.metrics}
    assert len(numbers) == 3
    for port in numbers:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a directory for temporary files whose path is short enough for the sockets of a server."""
    with TemporaryDirectory(prefix="t-", dir="/tmp") as directory:
        yield Path(directory)


def test_server_that_exits_at_once_is_an_error_with_its_log(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and the last lines are in the message, and its run directory is removed."""
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    with (
        pytest.raises(ServerError, match=r"(?s)exit code 3.*out of luck"),
        process.started(lambda _: ["sh", "-c", "echo out of luck; exit 3"], ControlMode.NONE),
    ):
        pass

    assert list(temporary.iterdir()) == []


def test_start_is_repeated_when_a_port_was_taken(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has its own ports; the error of the last attempt is raised."""
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    launches = []

    def command(launch: process.Launch) -> list[str]:
        launches.append(launch.identity)
        return ["sh", "-c", "echo Socket already in use; exit 1"]

    with pytest.raises(ServerError, match="already in use"), process.started(command, ControlMode.NONE):
        pass

    assert len(set(launches)) == 5
    assert list(temporary.iterdir()) == []


def test_remote_server_that_is_down_is_an_error() -> None:
    """The message names the address; no server listens on a port that is free."""
    address = f"127.0.0.1:{process.choose_ports(process.FREE_PORTS).grpc}"

    with pytest.raises(ServerError, match=rf"no Triton responds at {address}") as caught:
        prepare_server(address, TARGET, Silent())
    assert caught.value.hint == "start it, and check its gRPC port (8001 by default)"  # for `deploy` as well


def test_tls_is_for_a_running_server() -> None:
    """The embedded server has no port that others reach; headers of the environment are ignored."""
    with pytest.raises(SpecError, match="--server embedded does not use TLS"):
        prepare_server("embedded", TARGET, Silent(), credentials=Credentials(tls=True))
    with pytest.raises(SpecError, match=r"absent\.pem cannot be used for TLS") as caught:
        prepare_server(
            "localhost:1", TARGET, Silent(), credentials=Credentials(tls=True, root_certificates=Path("absent.pem"))
        )
    assert (caught.value.code, caught.value.exit_code) == ("server.tls", 2)
    address = f"127.0.0.1:{process.choose_ports(process.FREE_PORTS).grpc}"
    credentials = Credentials(headers={"authorization": "Bearer secret"})
    with pytest.raises(ServerError, match=rf"no Triton responds at {address}"):
        prepare_server(address, TARGET, Silent(), credentials=credentials)


def test_every_unmet_requirement_has_a_remedy() -> None:
    """Which requirements are met depends on the machine; the names do not."""
    checks = check_host(TARGET)

    assert [check.name for check in checks] == [
        *("processor", "glibc", "interpreter", "bash", "shared memory", "paths", "disk")
    ]
    assert [check.name for check in checks if check.ok == bool(check.remedy)] == []


def test_disk_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message states the space that is free, and the space that is needed."""
    monkeypatch.setenv("REPOGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: Mock(free=3 * 2**20))
    (check,) = (check for check in check_host(TARGET) if check.name == "disk")
    assert check.found == f"{tmp_path} has 3 MB of free space, and the embedded Triton needs 450 MB"
    monkeypatch.setattr("os.access", lambda *_: False)
    (check,) = (check for check in check_host(TARGET) if check.name == "disk")
    assert check.found == f"{tmp_path} is not writable"


def test_planted_names_are_neither_opened_nor_followed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users can create any name in a shared directory for temporary files; a FIFO would block forever."""
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    target = temporary / "target"
    (target / "file").mkdir(parents=True)
    os.mkfifo(temporary / "repogen-server-fifo")
    (temporary / "repogen-server-file").touch()
    (temporary / "repogen-server-link").symlink_to(target)

    with (
        pytest.raises(ServerError, match="exited while it started"),
        process.started(lambda _: ["false"], ControlMode.NONE),
    ):
        pass

    assert (target / "file").exists()
    assert {path.name for path in temporary.iterdir()} == {
        *("target", "repogen-server-fifo", "repogen-server-file", "repogen-server-link")
    }


def test_sockets_have_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a socket has at most 107 bytes, so the run directory is elsewhere when TMPDIR is long."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    directories = []

    def command(launch: process.Launch) -> list[str]:
        directories.append(launch.run_dir)
        return ["false"]

    with pytest.raises(ServerError), process.started(command, ControlMode.EXPLICIT):
        pass

    (directory,) = directories
    assert len(str(directory / "sockets" / "grpc:8001")) < 107
    assert not directory.exists()


def test_only_unused_run_directories_are_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory without a process that holds its lock was left by a killed process."""
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    free_dir, locked_dir = temporary / "repogen-server-unused", temporary / "repogen-server-used"
    for directory in (free_dir, locked_dir):
        (directory / "lib").mkdir(parents=True)
    descriptor = os.open(locked_dir, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def start() -> None:
        with process.started(lambda _: ["false"], ControlMode.EXPLICIT):
            pass

    with pytest.raises(ServerError, match="exited while it started"):
        start()

    os.close(descriptor)
    assert [path.name for path in temporary.iterdir()] == ["repogen-server-used"]


def test_models_that_did_not_load_are_listed() -> None:
    """Each has one line with the reason; the log is in the details."""
    log = FAILED_START_LOG.format("has kind KIND_MODEL", "")
    failures = {
        "odd": "bad name",
        "none": "no version",
        "tiny version 1": "Invalid argument: has kind KIND_MODEL",
        "all": "depends on 'tiny'",
        "part": "contains models that ...",
        "a": "circular dependency between ensembles: a -> b",
    }
    assert process.load_failures(log) == failures
    with pytest.raises(ServerError) as caught:
        process.require_loaded(log)
    lines = [f"  {name}: {reason}" for name, reason in failures.items()]
    assert caught.value.message.splitlines() == ["Triton could not load any model of the repository:", *lines]
    assert (caught.value.code, caught.value.details) == ("server.start", log)
    process.require_loaded(log + READY_ROW)
    process.require_loaded(log + READY_ROW, {"other": "it has another name"})
    with pytest.raises(ServerError, match=r"(?s)could not load any model.*other: it has another name"):
        process.require_loaded("", {"other": "it has another name"})
    process.require_loaded("")


def test_gpu_model_without_a_gpu_has_a_hint() -> None:
    """The hint names another server, another kind, and the command that works without a GPU."""
    with pytest.raises(ServerError) as caught:
        process.require_loaded(FAILED_START_LOG.format("KIND_GPU but no GPUs are available", ""))
    assert all(way in caught.value.hint for way in ("--server docker", "KIND_CPU", "repogen smoke"))


def test_failed_start_without_a_failed_model_has_the_log() -> None:
    """The message contains the log."""
    assert process.start_failure(127, "libpython is missing").message == (
        "Triton exited while it started (exit code 127):\nlibpython is missing"
    )


def test_hint_of_a_restricted_control_api() -> None:
    """A server of `repogen serve` has a random header unless it was started with the variable."""
    error = control.refusal("This protocol is restricted, expecting header 'triton-grpc-protocol-repogen-7'", None)
    assert error is not None
    assert "if `repogen serve` started the server, start it with the same variable" in error.hint


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, "the server's control API requires a header: "),
        (ControlHeader("other", "s3cret"), "the server's control API requires a header: "),
        (
            ControlHeader("Secret", "s3cret"),
            "the server's control API did not accept the value of the header: ",
        ),
    ],
)
def test_control_header_with_a_wrong_value(header: ControlHeader | None, expected: str) -> None:
    """Its key is the one that the server requires; the value is not printed."""
    message = "This protocol is restricted, expecting header 'triton-grpc-protocol-secret'"
    error = control.refusal(message, header)
    assert error is not None
    assert (str(error), error.code) == (expected + message, "smoke.control-header")
    assert "s3cret" not in error.hint
