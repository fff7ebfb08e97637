"""A tritonserver process on this machine: choose ports, start, wait until live, stop, and clean up."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, TypeAdapter

from repogen.artifacts.serving import ControlHeader, ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.files.temporary import locked_directory, system_directory
from repogen.machine import has_own_listeners
from repogen.responses import ResponseError, limited, response_limits
from repogen.serving import control
from repogen.serving.environment import private_places, without_secrets
from repogen.serving.interface import ServerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LOCALHOST = "127.0.0.1"
START_SECONDS = 600.0
"""Time limit of a start, which includes loading every model in control mode ``none``."""
_GRACE_SECONDS = 1.5
_STOP_SECONDS = 5.0
_PORT_TRIES = 5
_POLL_SECONDS = 0.02
_MAX_LOG_BYTES = 64 * 2**20
_METADATA_SECONDS = 2.0
# Triton quotes its messages since release 24.09, and then writes line breaks as backslash-n.
_NOT_LOADED = re.compile(
    r"""^E[0-9]{4}[ ].*?\][ ]"?(?:[\w ]+:[ ])?
    (?:
        Poll[ ]failed[ ]for[ ]model[ ]directory[ ]'(?P<polled>[^']+)':[ ]
        | failed[ ]to[ ]load[ ](?:model[ ])?'(?P<loaded>[^']+)'(?:[ ]version[ ](?P<version>-?[0-9]+))?:[ ]
        | ensemble[ ]'?(?P<ensemble>[^' ]+)'?[ ](?=depends|contains)
        | (?=circular[ ]dependency[ ]between[ ]ensembles:[ ](?P<circle>[^ ]+))
    )
    (?P<reason>.*?)(?:\\n.*)?"?$""",
    re.MULTILINE | re.VERBOSE,
)
# A row of the table in Triton's log: model, version, and status.
_READY = re.compile(r"^\| \S+ +\| \S+ +\| READY +\|$", re.MULTILINE)
_NO_GPU = "KIND_GPU but no GPUs are available"
_NO_GPU_HINT = (
    "serve it on a machine with a GPU (--server docker passes GPUs on), or set instance_group's kind to KIND_CPU and "
    "build again; `repogen smoke` tests such a model on the CPU"
)
_GRPC_SOCKET, _HTTP_SOCKET = "grpc", "http"
# Triton appends a colon and the port to any gRPC address.
_GRPC_SUFFIX = 8001
# The path of a Unix socket has at most 107 bytes (unix(7)).
_MAX_RUN_DIR = 107 - len(f"/sockets/{_GRPC_SOCKET}:{_GRPC_SUFFIX}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+", re.ASCII)
_METADATA = TypeAdapter(dict[str, object])
_MAX_METADATA_BYTES = 2**20
_RUN_DIR = "repogen-server-"
HIDDEN = "REPOGEN_HIDDEN_"
"""Prefix of the variables whose values the supervisor passes as arguments that are not in the command line."""
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Ports:
    """The ports of one server."""

    grpc: int
    http: int
    metrics: int


class PortOptions(ServerOptions):
    """Options of a server on this machine: its ports, which have no effect in explicit mode without ``own_control``.

    Attributes:
        http_port: Port of the HTTP service; 0 takes a free one.
        grpc_port: The same for gRPC.
        metrics_port: The same for metrics.
        own_control: Whether this process may use the control API of a server with ports, also in explicit mode, by a
            header that no other user can read.
    """

    first_without_key: ClassVar[bool] = False

    http_port: int = Field(default=0, ge=0, le=65535)
    grpc_port: int = Field(default=0, ge=0, le=65535)
    metrics_port: int = Field(default=0, ge=0, le=65535)
    own_control: bool = False


FREE_PORTS = PortOptions()


@dataclass(frozen=True)
class Launch:
    """One attempt to start a server.

    Attributes:
        identity: Unique name: the server's ``--id``, and the prefix of its shared memory regions.
        run_dir: Private directory, removed when the server has stopped.
        ports: Ports to listen on; None for a server that listens on sockets in ``run_dir``.
        control: Header that the server requires in requests to its control API.
        lock: Descriptor that holds the run directory's lock; None if there is none.
    """

    identity: str
    run_dir: Path
    ports: Ports | None
    control: ControlHeader = field(default_factory=control.random_header, repr=False)
    lock: int | None = None

    @property
    def sockets(self) -> Path:
        """Directory of the sockets of a server without ports."""
        return self.run_dir / "sockets"

    def remove(self) -> None:
        """Remove the run directory and release its lock."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)

    @property
    def log(self) -> Path:
        """Path of the server's log."""
        return self.run_dir / "server.log"


@dataclass
class ServerProcess:
    """A started server.

    Attributes:
        launch: Its launch.
        supervisor: The process that runs it.
        version: Version that the server reports once it is live.
    """

    launch: Launch
    supervisor: subprocess.Popen[bytes]
    version: str = field(default="")

    def alive(self) -> bool:
        """Return whether the server still runs."""
        return self.supervisor.poll() is None

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log."""
        try:
            with self.launch.log.open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _MAX_LOG_BYTES))
                text = stream.read(_MAX_LOG_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def endpoint(self, kind: str, runtime: str, *, has_gpu: bool) -> Endpoint:
        """Return the server's endpoint once it is live."""
        launch = self.launch
        if launch.ports is None:
            grpc, http = f"unix:{launch.sockets}/{_GRPC_SOCKET}:{_GRPC_SUFFIX}", f"unix:{launch.sockets}/{_HTTP_SOCKET}"
            metrics = ""
        else:
            numbers = (launch.ports.grpc, launch.ports.http, launch.ports.metrics)
            grpc, http, metrics = (f"{LOCALHOST}:{port}" for port in numbers)
        return Endpoint(
            *(grpc, http, metrics, kind, self.version, runtime),
            sees_files=True,
            has_gpu=has_gpu,
            control=launch.control if control.is_sendable(launch.control) else None,
        )

    def stop(self) -> None:
        """Stop the server and wait until its supervisor has cleaned up."""
        stop_supervised(self.supervisor)


@dataclass(frozen=True)
class RunningProcess:
    """A server on this machine that is live."""

    endpoint: Endpoint
    process: ServerProcess

    def alive(self) -> bool:
        """Return whether the server still runs."""
        return self.process.alive()

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log."""
        return self.process.log_tail(lines)

    def provide(self, requirements: Sequence[str]) -> None:
        """Do nothing: a model that requires a package that the server lacks does not load."""


def triton_options(launch: Launch, mode: ControlMode, version: str, *, strict: bool) -> list[str]:
    """Return the options of tritonserver ``version`` that do not depend on how it runs.

    A model that does not load does not end the server. Without ``strict`` Triton completes each config, which takes the
    Python backend about a second per load.
    """
    return [
        f"--id={launch.identity}",
        f"--model-control-mode={mode.value}",
        "--exit-on-error=false",
        *control.restrictions(launch.control, version),
        *(("--repository-poll-secs=1",) if mode is ControlMode.POLL else ()),
        *(("--disable-auto-complete-config",) if strict else ()),
    ]


def socket_options(directory: str) -> list[str]:
    """Return the options of a server without ports, which listens on sockets in ``directory``, a path on the server."""
    return [
        *(f"--grpc-address=unix:{directory}/{_GRPC_SOCKET}", f"--grpc-port={_GRPC_SUFFIX}"),
        f"--http-address=unix:{directory}/{_HTTP_SOCKET}",
        "--allow-metrics=false",
    ]


def choose_ports(ports: PortOptions) -> Ports:
    """Return three different ports that can be bound now; the chosen ones, and free ones in place of 0.

    Another process may take one before Triton does; ``started`` then tries again.

    Raises:
        ServerError: A port is in use, or needs more rights.
    """
    with contextlib.ExitStack() as stack:
        numbers = [_bound(stack, port) for port in (ports.grpc_port, ports.http_port, ports.metrics_port)]
        return Ports(*numbers)


def _bound(stack: contextlib.ExitStack, port: int) -> int:
    """Bind a port until the stack is closed; return its number."""
    listener = stack.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Triton binds it
    try:
        listener.bind((LOCALHOST, port))
        listener.listen()
    except OSError as error:
        raise ServerError(
            f"port {port} of {LOCALHOST} cannot be used: {error.strerror}",
            "choose another port, or 0 for a free one",
            code="server.port",
        ) from error
    return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(
    command: Callable[[Launch], list[str]], mode: ControlMode, ports: PortOptions = FREE_PORTS
) -> Iterator[ServerProcess]:
    """Start a server, wait until it is live, and stop it on exit.

    Args:
        command: Prepares the launch's run directory and returns the command line; called again when a port was taken.
        mode: Its control mode; a server in explicit mode has no ports without ``own_control``.
        ports: Its ports.

    Yields:
        The live server.

    Raises:
        ServerError: It exited, or was not live in time; the message has the log's last lines.
    """
    process = _start(command, mode, ports)
    try:
        yield process
    finally:
        process.stop()
        process.launch.remove()


def _start(command: Callable[[Launch], list[str]], mode: ControlMode, ports: PortOptions) -> ServerProcess:
    for attempt in range(1, _PORT_TRIES + 1):
        launch = _launch(mode, ports)
        process: ServerProcess | None = None
        try:
            process = _spawn(launch, command(launch))
            process.version = _wait_until_live(process)
        except BaseException:
            collided = process is not None and _port_taken(process)
            if process is not None:
                process.stop()
            launch.remove()
            if collided and attempt < _PORT_TRIES:
                continue
            raise
        return process
    raise AssertionError  # pragma: no cover - the last attempt returns or raises


def _launch(mode: ControlMode, ports: PortOptions) -> Launch:
    identity = f"repogen-{os.getpid()}-{secrets.token_hex(4)}"
    has_ports = mode is not ControlMode.EXPLICIT or ports.own_control
    chosen = choose_ports(ports) if has_ports else None
    run_dir, lock = _run_dir()
    if chosen is not None:
        return Launch(identity, run_dir, chosen, _header(ports), lock)
    launch = Launch(identity, run_dir, None, control.random_header(), lock)
    launch.sockets.mkdir(mode=0o700)
    return launch


def _header(ports: PortOptions) -> ControlHeader:
    """Return the header of a server with ports.

    If this process sends it, it is a random one: after the end of the server, another user could take its ports, and
    the user's own header is also that of other servers.
    """
    if ports.own_control:
        return control.random_header()
    return control.configured_header() or control.unsendable_header()


def _run_dir() -> tuple[Path, int | None]:
    """Return a new run directory with its lock, in a directory whose path is short enough for sockets."""
    parent = system_directory()
    if len(os.fsencode(parent / f"{_RUN_DIR}xxxxxxxx")) > _MAX_RUN_DIR or not _PLAIN_PATH.fullmatch(str(parent)):
        parent = system_directory(Path("/tmp"))  # noqa: S108 - the directory is private
    return locked_directory(_RUN_DIR, parent)


def _hides(launch: Launch, command: list[str]) -> bool:
    """Return whether the header with which other users could control the server is hidden from its command line.

    It must be if a client can send it. Otherwise, it is where that is possible: a container has a command line of its
    own, and some sandboxes forbid ptrace(2).
    """
    if launch.ports is None:
        return False
    return control.is_sendable(launch.control) or (command[0] != "docker" and _may_trace())


def _may_trace() -> bool:
    """Return whether a process may let its parent trace it."""
    program = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, None, None) != 0)"
    return subprocess.run([sys.executable, "-I", "-S", "-c", program], check=False).returncode == 0


def _spawn(launch: Launch, command: list[str]) -> ServerProcess:
    header = f"={launch.control.value}"
    secrets = frozenset(part for part in command if part.endswith(header)) if _hides(launch, command) else frozenset()
    return ServerProcess(launch, spawn_supervised(command, launch.run_dir, launch.log, launch.identity, secrets))


def spawn_supervised(
    command: list[str],
    run_dir: Path,
    log: Path,
    shm_prefix: str,
    secrets: frozenset[str] = frozenset(),
    data_bytes: int = 0,
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process, even if it is killed; return its supervisor, which SIGTERM stops.

    Args:
        command: The program and its arguments.
        run_dir: Its working directory, which the supervisor removes if this process is killed; also for temporary
            files, which models create.
        log: File that receives its output.
        shm_prefix: Prefix of the shared memory that is removed when it ends.
        secrets: Arguments that other users must not see.
        data_bytes: Private memory that it may use (RLIMIT_DATA); 0 for no limit.
    """
    hidden = {f"{HIDDEN}{index}": part for index, part in enumerate(command) if part in secrets}
    names = {part: name for name, part in hidden.items()}
    supervised = [
        *(sys.executable, "-I", "-S", str(_SUPERVISOR)),
        *(str(os.getpid()), str(run_dir), shm_prefix, str(_GRACE_SECONDS), str(data_bytes)),
        *(names.get(part, part) for part in command),
    ]
    with log.open("wb") as stream:
        return subprocess.Popen(
            supervised,
            env=without_secrets() | hidden | private_places(run_dir),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=run_dir,
            start_new_session=True,  # Ctrl-C reaches repogen only, which then stops the program
        )


def stop_supervised(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop a program and wait until its supervisor has cleaned up."""
    supervisor.terminate()
    try:
        supervisor.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def start_failure(exit_code: int, log: str) -> ServerError:
    """Return the error for a server that exited while it started."""
    return ServerError(
        f"Triton exited while it started (exit code {exit_code}):\n{log}",
        "the log's last error is the cause; `repogen doctor` checks this machine",
        code="server.start",
    )


def load_failures(log: str) -> dict[str, str]:
    """Return the models and versions that did not load by Triton's log, with the last reason of each."""
    failures: dict[str, str] = {}
    for match in _NOT_LOADED.finditer(log):
        model = match["polled"] or match["loaded"] or match["ensemble"] or match["circle"]
        name = model if match["version"] is None else f"{model} version {match['version']}"
        failures[name] = match["reason"]
    return failures


def require_loaded(log: str, refused: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check that a server that loaded its models at its start serves at least one, or had none to load.

    Args:
        log: The server's log.
        refused: Why repogen did not let it load models, by name.

    Raises:
        ServerError: No model loaded; the message has the reason of each.
    """
    failures = {**refused, **load_failures(log)}
    if not failures or _READY.search(log):
        return
    lines = "\n".join(f"  {name}: {reason}" for name, reason in failures.items())
    raise ServerError(
        f"Triton could not load any model of the repository:\n{lines}",
        _NO_GPU_HINT if _NO_GPU in lines else "fix or remove these models; --debug shows Triton's log",
        code="server.start",
        details=log,
    )


def _wait_until_live(process: ServerProcess) -> str:
    """Wait until the server responds and return its version.

    Triton listens after it has loaded the models of control modes ``none`` and ``poll``, or failed to load them.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if not process.alive():
            raise start_failure(process.supervisor.returncode, process.log_tail())
        metadata = server_metadata(process.endpoint("", "", has_gpu=False).http)
        # The name identifies this server; another process may have taken the port. Another user can read the name.
        if metadata.get("name") == process.launch.identity and _has_own_ports(process.launch.ports):
            return metadata.get("version", "")
        time.sleep(_POLL_SECONDS)
    raise ServerError(
        f"Triton was not live after {START_SECONDS:.0f} s:\n{process.log_tail()}",
        "the machine may be overloaded, or a model may be very large",
        code="server.start",
    )


def _has_own_ports(ports: Ports | None) -> bool:
    """Return whether processes of this user or of root, and no others, listen on all ports; True without ``/proc``.

    Every user can read Triton's command line, with its name and its ports, a moment before Triton binds the ports.
    Another user can therefore listen on a port, respond with that name, and stop listening before this check.
    """
    if ports is None:
        return True
    return has_own_listeners(ports.grpc, ports.http, ports.metrics)


class UnixConnection(http.client.HTTPConnection):
    """A connection to the HTTP server on the Unix socket ``path``."""

    def __init__(self, path: str, timeout: float = _METADATA_SECONDS) -> None:
        """Store the path; ``timeout`` is in seconds."""
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def server_metadata(address: str) -> dict[str, str]:
    """Return ``name`` and ``version`` of the server at an HTTP address; empty when no server responds."""
    scheme, _, path = address.partition(":")
    connection = (
        limited(UnixConnection)(path)
        if scheme == "unix"
        else limited(http.client.HTTPConnection)(address, timeout=_METADATA_SECONDS)
    )
    try:
        with response_limits(_MAX_METADATA_BYTES, _METADATA_SECONDS):
            connection.request("GET", "/v2")
            document = _METADATA.validate_json(connection.getresponse().read(_MAX_METADATA_BYTES))
    except (OSError, http.client.HTTPException, ResponseError, ValueError):
        return {}
    finally:
        connection.close()
    return {key: value for key, value in document.items() if isinstance(value, str)}


def _port_taken(process: ServerProcess) -> bool:
    return not process.alive() and "already in use" in process.log_tail(400)
