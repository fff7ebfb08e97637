"""The child's half of a supervised process, which ``repogen.worker.supervisor`` starts or a fork server forks.

The started process forks. The child becomes the worker and runs the task. The parent stays as its supervisor and waits
for the end of the worker, for SIGTERM, or for the end of repogen (even by SIGKILL). Then it kills the worker and every
process that the worker started, including those that left its process group, and ends as the worker did. It is their
subreaper, so that Linux makes it the parent of every orphan.

Other systems have neither subreapers nor a signal at the end of the parent. There, the supervisor looks once a second
whether repogen has ended, and orphans that left the process group of the worker are not killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from repogen.files import is_public
from repogen.machine import is_linux
from repogen.worker.process_tree import children

if TYPE_CHECKING:
    from collections.abc import Callable

    Send: TypeAlias = Callable[[bytes], None]
    RunTask: TypeAlias = Callable[[bytes, Send], None]

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM}
_KILL_SECONDS = 3.0
_PARENT_SECONDS = 1.0


def run_supervised(run_task: RunTask) -> NoReturn:
    """Run a task under a supervisor, and end the process.

    The command line is ``python -P -m MODULE FD PARENT``: the file descriptor to write events to, and the ID of the
    process that started this one.

    Args:
        run_task: Receives the job, which was read from standard input, and a function that sends one event. What the
            task prints goes to standard error.
    """
    status = 1
    try:
        events = int(sys.argv[1])
        _supervise(events, int(sys.argv[2]))
        _run(run_task, events)
        status = 0
    except BaseException:  # noqa: BLE001 - the traceback goes to the log
        with contextlib.suppress(Exception):  # user code may have closed or replaced standard error
            traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    # Skip interpreter teardown: extension modules with threads of their own can hang or crash in it.
    os._exit(status)


def _run(run_task: RunTask, events: int) -> None:
    # The parent requests a stack dump before it ends a worker at its time limit.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    job = sys.stdin.buffer.read()
    if is_public(Path()):
        # torch.compile runs `python -c`, which would import modules of other users from the working directory.
        os.environ["PYTHONSAFEPATH"] = "1"
    os.dup2(2, 1)  # output of user code must not reach repogen's standard output
    worker = os.getpid()
    pipe = _identity(events)

    def send(event: bytes) -> None:
        if os.getpid() != worker:
            os._exit(1)  # user code forked, and its child returned into repogen's code
        if _identity(events) != pipe:  # user code closed it, and a file of its own has got the number
            raise OSError(errno.EBADF, "Bad file descriptor: user code closed the pipe of the worker's events")
        rest = event + b"\n"
        while rest:  # a signal can end a write early
            rest = rest[os.write(events, rest) :]

    run_task(job, send)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _supervise(events: int, parent: int) -> None:
    """Fork a worker and supervise it; return in the worker only.

    Args:
        events: File descriptor that only the worker keeps, like standard input.
        parent: Process that started this one.
    """
    # Blocked from the start: sigwait receives them, and none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if is_linux():
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    end_with(parent, signal.SIGTERM)
    supervisor = os.getpid()
    worker = os.fork()
    if worker:
        # Only the worker may hold these: otherwise its end would not close them.
        os.close(events)
        os.close(sys.stdin.fileno())
        if not is_linux():
            signal.setitimer(signal.ITIMER_REAL, _PARENT_SECONDS, _PARENT_SECONDS)
        status = _wait(worker, parent)
        _kill_descendants()
        _end_as(status)
    end_with(supervisor, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def end_with(parent: int, number: signal.Signals) -> None:
    """Make Linux send a signal to this process when the thread that started it ends.

    Args:
        parent: The process that started this one; if it has ended already, this process ends.
        number: The signal.
    """
    if is_linux():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def _wait(worker: int, parent: int) -> int:
    """Return the worker's wait status when it ends, or SIGTERM when it is to be ended; forward SIGUSR1 to it."""
    while True:
        received = signal.sigwait(_SIGNALS)
        if received == signal.SIGTERM:
            return signal.SIGTERM
        if received == signal.SIGUSR1:
            os.kill(worker, signal.SIGUSR1)
            continue
        if received == signal.SIGALRM and os.getppid() != parent:
            return signal.SIGTERM
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # also reaps orphans of the worker
            if ended[0] == worker:
                return ended[1]


def _kill_descendants() -> None:
    """Kill children until none are left: children of a killed process become children of this one."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:  # a process that changed its user can't be killed, and must not block repogen
        for child in children(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _end_as(status: int) -> NoReturn:
    """End with the exit status, or by the signal, of a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        faulthandler.disable()  # the log already has the worker's stack
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)
