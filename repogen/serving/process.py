"""A tritonserver process on this machine: choose ports, start, wait until live, stop, and clean up."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LOCALHOST = "127.0.0.1"
START_SECONDS = 600.0
"""Time limit of a start, which includes loading every model in control mode ``none``."""
_GRACE_SECONDS = 1.5
_STOP_SECONDS = 5.0
_PORT_TRIES = 5
_POLL_SECONDS = 0.02
# A row of the table in Triton's log: model, version, and the reason why it is not served.
_UNAVAILABLE = re.compile(r"^\| (\S+) +\| (\S+) +\| UNAVAILABLE: (.+?) +\|$", re.MULTILINE)
_NO_GPU = "KIND_GPU but no GPUs are available"
_NO_GPU_HINT = (
    "serve it on a machine with a GPU (--server docker passes GPUs on), or set instance_group's kind to KIND_CPU and "
    "build again; `repogen smoke` tests such a model on the CPU"
)
_METADATA = TypeAdapter(dict[str, object])
_MAX_METADATA_BYTES = 2**20
_RUN_DIR = "repogen-server-"
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Ports:
    """The ports of one server."""

    grpc: int
    http: int
    metrics: int


@dataclass(frozen=True)
class Launch:
    """One attempt to start a server.

    Attributes:
        identity: Unique name: the server's ``--id``, and the prefix of its shared memory regions.
        run_dir: Private directory, removed when the server has stopped.
        ports: Ports to listen on.
        lock: Descriptor that holds the run directory's lock.
    """

    identity: str
    run_dir: Path
    ports: Ports
    lock: int = -1

    def remove(self) -> None:
        """Remove the run directory and release its lock."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
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
            text = self.launch.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def endpoint(self, kind: str, runtime: str, *, has_gpu: bool) -> Endpoint:
        """Return the server's endpoint once it is live."""
        ports = self.launch.ports
        grpc, http, metrics = (f"{LOCALHOST}:{port}" for port in (ports.grpc, ports.http, ports.metrics))
        return Endpoint(grpc, http, metrics, kind, self.version, runtime, sees_files=True, has_gpu=has_gpu)

    def stop(self) -> None:
        """Stop the server and wait until its supervisor has cleaned up."""
        self.supervisor.terminate()
        try:
            self.supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()


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


def triton_options(launch: Launch, mode: ControlMode, *, strict: bool) -> list[str]:
    """Return the options of tritonserver that do not depend on how it runs.

    In control mode ``none`` a model that does not load ends the server; in the other modes only that model fails.
    Without ``strict`` Triton completes each config, which takes the Python backend about a second per load.
    """
    return [
        f"--id={launch.identity}",
        f"--model-control-mode={mode.value}",
        f"--exit-on-error={'true' if mode is ControlMode.NONE else 'false'}",
        *(("--repository-poll-secs=1",) if mode is ControlMode.POLL else ()),
        *(("--disable-auto-complete-config",) if strict else ()),
    ]


def free_ports() -> Ports:
    """Return three different ports that are free now.

    Another process may take one before Triton does; ``started`` then tries again.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((LOCALHOST, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


@contextlib.contextmanager
def started(command: Callable[[Launch], list[str]]) -> Iterator[ServerProcess]:
    """Start a server, wait until it is live, and stop it on exit.

    Args:
        command: Prepares the launch's run directory and returns the command line; called again when a port was taken.

    Yields:
        The live server.

    Raises:
        ServerError: It exited, or was not live in time; the message has the log's last lines.
    """
    process = _start(command)
    try:
        yield process
    finally:
        process.stop()
        process.launch.remove()


def _start(command: Callable[[Launch], list[str]]) -> ServerProcess:
    for attempt in range(1, _PORT_TRIES + 1):
        identity = f"repogen-{os.getpid()}-{secrets.token_hex(4)}"
        run_dir, lock = _run_dir()
        launch = Launch(identity, run_dir, free_ports(), lock)
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


def _run_dir() -> tuple[Path, int]:
    """Return a new run directory with its lock, and remove run directories that no process holds.

    A process that is killed before its supervisor runs leaves one behind. The lock is on the directory itself, not on a
    file in it, so that its holder can remove the directory without a race. The kernel releases it with the process.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{_RUN_DIR}*"):
        with contextlib.suppress(OSError):  # another user's, or in use
            os.close(_lock(directory))
            shutil.rmtree(directory, ignore_errors=True)
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_RUN_DIR))
        with contextlib.suppress(OSError):  # another process removed it before it was locked
            lock = _lock(directory)
            if directory.exists():
                return directory, lock
            os.close(lock)


def _lock(directory: Path) -> int:
    """Return a descriptor that holds a directory's lock; raises OSError when another process holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _spawn(launch: Launch, command: list[str]) -> ServerProcess:
    supervised = [
        *(sys.executable, "-I", "-S", str(_SUPERVISOR)),
        *(str(os.getpid()), str(launch.run_dir), launch.identity, str(_GRACE_SECONDS)),
        *command,
    ]
    with launch.log.open("wb") as log:
        supervisor = subprocess.Popen(
            supervised,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=launch.run_dir,
            start_new_session=True,  # Ctrl-C reaches repogen only, which then stops the server
        )
    return ServerProcess(launch, supervisor)


def start_failure(exit_code: int, log: str) -> ServerError:
    """Return the error for a server that exited while it started: the models that did not load, or else its log."""
    failures = [f"  {model} version {version}: {reason}" for model, version, reason in _UNAVAILABLE.findall(log)]
    if not failures:
        return ServerError(
            f"Triton exited while it started (exit code {exit_code}):\n{log}",
            "the log's last error is the cause; `repogen doctor` checks this machine",
            code="server.start",
        )
    lines = "\n".join(failures)
    return ServerError(
        f"Triton could not load every model of the repository:\n{lines}",
        _NO_GPU_HINT if _NO_GPU in lines else "fix or remove these models; --debug shows Triton's log",
        code="server.start",
        details=log,
    )


def _wait_until_live(process: ServerProcess) -> str:
    """Wait until the server responds and return its version.

    Triton opens its ports after it has loaded the models of control modes ``none`` and ``poll``, and with
    ``--exit-on-error`` it exits when one does not load, so a live server is ready.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if not process.alive():
            raise start_failure(process.supervisor.returncode, process.log_tail())
        metadata = server_metadata(LOCALHOST, process.launch.ports.http)
        # The name identifies this server; another process may have taken the port.
        if metadata.get("name") == process.launch.identity:
            return metadata.get("version", "")
        time.sleep(_POLL_SECONDS)
    raise ServerError(
        f"Triton was not live after {START_SECONDS:.0f} s:\n{process.log_tail()}",
        "the machine may be overloaded, or a model may be very large",
        code="server.start",
    )


def server_metadata(host: str, port: int) -> dict[str, str]:
    """Return ``name`` and ``version`` of the server at ``host:port`` (HTTP); empty when no server responds."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/v2")
        document = _METADATA.validate_json(connection.getresponse().read(_MAX_METADATA_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return {key: value for key, value in document.items() if isinstance(value, str)}


def _port_taken(process: ServerProcess) -> bool:
    return not process.alive() and "already in use" in process.log_tail(400)
