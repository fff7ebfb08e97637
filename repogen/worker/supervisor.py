"""Sees to it that nothing a model started outlives its build: ``python -P -m repogen.worker.supervisor FD PARENT``.

It forks. The child becomes the worker; this process stays behind and waits for the worker's end, for SIGTERM, or for
the end of repogen (even by SIGKILL). Then it kills the worker and every process that came from it, also those that left
its process group, and ends as the worker did. As their subreaper it is the parent of all of them in the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from repogen.worker.child import work

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_HEARD = {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1}
_PATIENCE = 3.0


def main() -> None:
    """Build a model, under guard."""
    events = int(sys.argv[1])
    guard(events, int(sys.argv[2]))
    work(events)


def guard(events: int, parent: int) -> None:
    """Become a worker with a warden above it; return in the worker only.

    Args:
        events: File descriptor that only the worker keeps, as it alone keeps standard input.
        parent: Process that started this one.
    """
    # Blocked from the start, so that sigwait receives them and none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _end_with(parent, signal.SIGTERM)
    warden = os.getpid()
    worker = os.fork()
    if worker:
        # The worker's alone: with a second holder, its end would close neither.
        os.close(events)
        os.close(sys.stdin.fileno())
        status = _wait(worker)
        _kill_descendants()
        _end_as(status)
    _end_with(warden, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _end_with(parent: int, number: signal.Signals) -> None:
    """Ask Linux to signal this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def _wait(worker: int) -> int:
    """Return the worker's wait status, once it ended or is to be ended; pass on the wish to know where it is."""
    while True:
        heard = signal.sigwait(_HEARD)
        if heard == signal.SIGTERM:
            return signal.SIGTERM
        if heard == signal.SIGUSR1:
            os.kill(worker, signal.SIGUSR1)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # orphans of the worker come to this process, too
            if ended[0] == worker:
                return ended[1]


def _kill_descendants() -> None:
    """Kill children until there are none: those of a killed child become this process's own."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:  # one that changed its user can't be killed, and must not hold repogen
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # PID (NAME) STATE PPID …, and a name may hold anything
            fields = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(place.parent.name))
    return found


def _end_as(status: int) -> NoReturn:
    """End with the exit status, or by the signal, of a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        faulthandler.disable()  # the worker's stack is in the log, this one is of no interest
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


if __name__ == "__main__":
    code = 1
    try:
        main()
        code = 0
    except BaseException:  # noqa: BLE001 - goes to the log
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError, AttributeError):  # whatever the model's code did to it
        sys.stderr.flush()
    # Skip interpreter teardown: extension modules with threads of their own can hang or crash in it.
    os._exit(code)
