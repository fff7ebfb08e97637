"""A tritonserver process on this machine: free ports, start, wait until live, stop; nothing of it survives."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
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

from repogen.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCALHOST = "127.0.0.1"
START_SECONDS = 600.0
"""How long a start may take; it includes loading every model in control mode ``none``."""
_GRACE_SECONDS = 1.5
_STOP_SECONDS = 5.0
_PORT_TRIES = 5
_POLL_SECONDS = 0.02
# A row of the table in Triton's log: model, version, and why it is not served.
_REFUSED = re.compile(r"^\| (\S+) +\| (\S+) +\| UNAVAILABLE: (.+?) +\|$", re.MULTILINE)
_NO_GPU = "KIND_GPU but no GPUs are available"
_NO_GPU_HINT = (
    "serve it on a machine with a GPU (--server docker hands GPUs on), or set instance_group's kind to KIND_CPU and "
    "build again; `repogen smoke` tests such a model on the CPU"
)
_RUN_DIR = "repogen-server-"
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Ports:
    """Three ports of one server."""

    grpc: int
    http: int
    metrics: int


@dataclass(frozen=True)
class Launch:
    """One attempt to start a server.

    Attributes:
        identity: Unique name: the server's ``--id``, and the start of its shared memory's names.
        run_dir: Private directory, removed in the end.
        ports: Where to listen.
        lock: Descriptor that tells others that the run directory is in use.
    """

    identity: str
    run_dir: Path
    ports: Ports
    lock: int = -1

    def remove(self) -> None:
        """Remove the run directory."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
        os.close(self.lock)

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.run_dir / "server.log"


@dataclass
class ServerProcess:
    """A server that was started.

    Attributes:
        launch: What it was started with.
        supervisor: The process that runs it.
        version: As the server reports it, once it is live.
    """

    launch: Launch
    supervisor: subprocess.Popen[bytes]
    version: str = field(default="")

    def alive(self) -> bool:
        """Whether the server still runs."""
        return self.supervisor.poll() is None

    def log_tail(self, lines: int = 40) -> str:
        """Last lines of the server's log."""
        try:
            text = self.launch.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Stop it and wait until nothing of it is left."""
        self.supervisor.terminate()
        try:
            self.supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()


def free_ports() -> Ports:
    """Return three ports that were free a moment ago, all different.

    Another process may take one before Triton does: ``started`` then tries again.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for opened in sockets:
            opened.bind((LOCALHOST, 0))
        return Ports(*(opened.getsockname()[1] for opened in sockets))


@contextlib.contextmanager
def started(command: Callable[[Launch], list[str]]) -> Iterator[ServerProcess]:
    """Start a server, wait until it is live, and stop it on exit.

    Args:
        command: Prepares the launch's run directory and gives the argv; called again when a port was taken.

    Yields:
        The live server.

    Raises:
        ServerError: It ended, or was not live in time; the log's tail is in the message.
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
    """Make a run directory, held by a lock as long as this process lives, and remove those that nobody holds.

    A process that is killed before its supervisor runs leaves one behind.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_RUN_DIR}*"):
        with contextlib.suppress(OSError):  # another user's, or held
            os.close(_locked(left))
            shutil.rmtree(left, ignore_errors=True)
    while True:
        made = Path(tempfile.mkdtemp(prefix=_RUN_DIR))
        with contextlib.suppress(OSError):  # taken for a dead one's before it was locked
            lock = _locked(made)
            if made.exists():
                return made, lock
            os.close(lock)


def _locked(directory: Path) -> int:
    """Return a descriptor that holds a directory's lock; raise OSError when another process holds it."""
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
            start_new_session=True,  # a terminal's Ctrl-C goes to repogen, which then stops the server in order
        )
    return ServerProcess(launch, supervisor)


def start_failure(exit_code: int, log: str) -> ServerError:
    """Return the error for a server that ended while it started: the models that it refused, or else its log."""
    refused = [f"  {model} version {version}: {reason}" for model, version, reason in _REFUSED.findall(log)]
    if not refused:
        return ServerError(
            f"Triton ended while it started (exit code {exit_code}):\n{log}",
            "the log's last error says why; `repogen doctor` checks this machine",
            code="server.start",
        )
    lines = "\n".join(refused)
    return ServerError(
        f"Triton does not load all of the repository:\n{lines}",
        _NO_GPU_HINT if _NO_GPU in lines else "correct these models, or take them out; --debug shows Triton's log",
        code="server.start",
        details=log,
    )


def _wait_until_live(process: ServerProcess) -> str:
    """Wait for the server's own answer and return its version.

    Triton opens its ports after the models of control modes ``none`` and ``poll`` are loaded, and with
    ``--exit-on-error`` it ends when one does not load: live is ready.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if not process.alive():
            raise start_failure(process.supervisor.returncode, process.log_tail())
        answer = server_metadata(LOCALHOST, process.launch.ports.http)
        # The name proves that it is our server, not one that took the port before it.
        if answer.get("name") == process.launch.identity:
            return answer.get("version", "")
        time.sleep(_POLL_SECONDS)
    raise ServerError(
        f"Triton was not live after {START_SECONDS:.0f} s:\n{process.log_tail()}",
        "is the machine overloaded, or a model very large?",
        code="server.start",
    )


def server_metadata(host: str, port: int) -> dict[str, str]:
    """Return ``name`` and ``version`` as the server at ``host:port`` (HTTP) gives them; empty when nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/v2")
        document = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return {key: value for key, value in document.items() if isinstance(value, str)}


def _port_taken(process: ServerProcess) -> bool:
    return not process.alive() and "already in use" in process.log_tail(400)
