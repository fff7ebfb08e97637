"""The process of a fork server: imports modules once, and forks a worker for each request.

The command line is ``python -P -m repogen.worker.fork_server_child FD PARENT MODULE...``: the socket of the requests,
and the ID of the process that started this one. A request is JSON with the descriptors of the worker's standard input,
its log, the pipe for its events, and a socket for the answers: the ID of the worker's supervisor with a descriptor of
the process, and later its wait status. This process has one thread: a fork copies no other.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from repogen.worker.subreaper import end_with

_MAX_MESSAGE = 1 << 20
_DESCRIPTORS = 4


@dataclass(frozen=True)
class _Running:
    """A process that was forked.

    Attributes:
        pid: Its ID.
        answers: The socket that receives its status.
    """

    pid: int
    answers: socket.socket


def main() -> None:
    """Serve requests until repogen closes the socket or ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    end_with(int(sys.argv[2]), signal.SIGKILL)
    running: dict[int, _Running] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    imported = False
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                _report_end(descriptor, running.pop(descriptor))
                continue
            message, descriptors, _, _ = socket.recv_fds(control, _MAX_MESSAGE, _DESCRIPTORS)
            if not message:
                return
            if not imported:
                _import(sys.argv[3:])
                imported = True
            pidfd = _fork(json.loads(message), descriptors, control, running)
            poll.register(pidfd, select.POLLIN)


def _import(modules: list[str]) -> None:
    """Import modules; what cannot be imported is reported by the worker that needs it."""
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the collector of a worker would otherwise write to every page
    # The threads of OpenBLAS end before a fork.
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - names only
        sys.exit("a module started a thread when it was imported")


def _fork(
    request: dict[str, object], descriptors: list[int], control: socket.socket, running: dict[int, _Running]
) -> int:
    """Fork a worker, and answer with its ID; return the descriptor of its process."""
    stdin, log, events, answers = descriptors
    server = os.getpid()
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            for unused in (
                control.detach(),
                answers,
                *running,
                *(process.answers.detach() for process in running.values()),
            ):
                os.close(unused)
            _become(request, (stdin, log, events), server)
        os._exit(1)
    for descriptor in (stdin, log, events):
        os.close(descriptor)
    pidfd = os.pidfd_open(pid)
    running[pidfd] = _Running(pid, socket.socket(fileno=answers))
    with suppress(OSError):  # repogen no longer waits for it, and kills it
        socket.send_fds(running[pidfd].answers, [json.dumps({"pid": pid}).encode()], [pidfd])
    return pidfd


def _become(request: dict[str, object], files: tuple[int, int, int], server: int) -> NoReturn:
    """Become what ``python -m`` would have started."""
    stdin, log, events = files
    os.setsid()
    os.dup2(stdin, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(stdin)
    os.close(log)
    environment = request["environment"]
    os.environ.update(environment if isinstance(environment, dict) else {})
    tempfile.tempdir = None  # the worker's own directory is a different one
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # the random module does this itself
    sys.argv = ["", str(events), str(server)]
    runpy.run_module(str(request["module"]), run_name="__main__", alter_sys=True)
    os._exit(1)


def _report_end(pidfd: int, process: _Running) -> None:
    _, status = os.waitpid(process.pid, 0)
    os.close(pidfd)
    with process.answers, suppress(OSError):
        process.answers.send(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    main()
