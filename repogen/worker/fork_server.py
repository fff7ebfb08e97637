"""Warm workers: processes that are forked from one that has imported torch, the exporters and ONNX Runtime.

A build of several models starts one fork server, and imports once what every one of its workers needs. A forked worker
runs the same code as one that is started directly, in a session of its own and below a supervisor of its own; see
``repogen.worker.subreaper``. ``repogen.worker.fork_server_child`` is the server's process. If it cannot be used, or
ends, workers are started directly.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING

from repogen.files.temporary import temporary_directory
from repogen.serving.environment import private_places, without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

_CHILD = "repogen.worker.fork_server_child"
_START_SECONDS = 120.0
_MAX_MESSAGE = 65536


class ForkServer:
    """A process that forks workers; a context manager that ends it.

    Args:
        modules: Modules that every worker of this server imports.
        environment: Variables of all workers, in addition to those of this process.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process; it imports the modules when the first worker is requested.

        Its directory for temporary files is private, as those of its workers: PyTorch finds one when it is imported.
        """
        self._resources = ExitStack()
        temporary = self._resources.enter_context(temporary_directory())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, str(theirs.fileno()), str(os.getpid()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**without_secrets(), **private_places(temporary), **environment},
            )

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process; workers that are still running end with it."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._resources.close()

    @property
    def pid(self) -> int:
        """ID of the process."""
        return self._process.pid

    def start(
        self,
        module: str,
        environment: Mapping[str, str],
        files: tuple[int, int],
        cancelled: threading.Event | None = None,
    ) -> ForkedProcess | None:
        """Fork a process that runs a module as ``python -m`` does.

        Args:
            module: The module; it calls ``run_supervised``.
            environment: Variables that are set in addition to those of the server.
            files: Descriptors of its log, and of the pipe for its events.
            cancelled: When set, waiting for the server ends.

        Returns:
            The process; None if the server has ended, or does not respond.

        Raises:
            KeyboardInterrupt: It was cancelled.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin, write_end = os.pipe()
        try:
            with theirs:
                request = json.dumps({"module": module, "environment": dict(environment)}).encode()
                with self._lock:
                    socket.send_fds(self._control, [request], [stdin, *files, theirs.fileno()])
            process = _started(ours, write_end, cancelled)
        except OSError:
            process = None
        except BaseException:
            ours.close()
            os.close(write_end)
            raise
        finally:
            os.close(stdin)
        if process is None:
            ours.close()
            os.close(write_end)
        return process


class ForkedProcess:
    """A process of a fork server, with the part of ``subprocess.Popen`` that a supervised process needs.

    Args:
        connection: Connection to the server, which sends the wait status when the process has ended.
        pid: ID of the process.
        pidfd: Descriptor of the process, which stays valid after its end.
        stdin: Write end of its standard input.

    Attributes:
        lost: Whether its status is unknown because the server has ended.
    """

    def __init__(self, connection: socket.socket, pid: int, pidfd: int, stdin: int) -> None:
        """Store the arguments."""
        self._connection = connection
        self._pidfd = pidfd
        self.pid = pid
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.returncode: int | None = None
        self.lost = False

    def poll(self) -> int | None:
        """Return the exit status, or the number of the signal that ended it as a negative number; None if it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; a process whose server has ended counts as killed.

        Raises:
            subprocess.TimeoutExpired: It is still running.
        """
        if self.returncode is not None:
            return self.returncode
        if not _readable(self._pidfd, timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        # The server sends the status as soon as the process has ended; the server's own end closes the connection.
        message = self._connection.recv(_MAX_MESSAGE)
        self.lost = not message
        self.returncode = -signal.SIGKILL if self.lost else json.loads(message)["status"]
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._pidfd)
        self._connection.close()
        if self.stdin is not None:
            with suppress(OSError):
                self.stdin.close()


def _started(connection: socket.socket, stdin: int, cancelled: threading.Event | None) -> ForkedProcess | None:
    """Wait until the server has forked the process; None if it ended, or does not respond."""
    deadline = time.monotonic() + _START_SECONDS
    while not _readable(connection.fileno(), 0.2):
        if cancelled is not None and cancelled.is_set():
            raise KeyboardInterrupt
        if time.monotonic() > deadline:
            return None
    message, descriptors, _, _ = socket.recv_fds(connection, _MAX_MESSAGE, 1)
    if not message or not descriptors:
        return None
    return ForkedProcess(connection, json.loads(message)["pid"], descriptors[0], stdin)


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
