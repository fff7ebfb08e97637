"""Runs tritonserver, and sees to it that nothing of it outlives repogen: a program of its own, never imported.

``python -I -S supervisor.py OWNER_PID RUN_DIR SHM_PREFIX GRACE_SECONDS COMMAND...`` runs COMMAND in its own process
group until it exits, SIGTERM arrives, or the owner is gone (even by SIGKILL). Then the server gets SIGTERM, after the
grace SIGKILL, with it the Python stubs; their shared memory and the run directory are removed. It exits with the
server's code. Should this very process be killed, the kernel kills the server (PR_SET_PDEATHSIG), and the stubs, which
watch their server, end by themselves.

A process apart, because PR_SET_PDEATHSIG is tied to the thread that starts a child, and repogen starts Triton from a
thread that may end long before repogen does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_WATCHED = {*_STOP_SIGNALS, signal.SIGCHLD}
_OWNER_POLL_SECONDS = 0.2

_libc = ctypes.CDLL(None)


def main(arguments: list[str]) -> int:
    """Run the server to its end and clean up after it; return its exit code."""
    owner, run_dir, shm_prefix, grace = int(arguments[0]), Path(arguments[1]), arguments[2], float(arguments[3])
    # Blocked here, so that sigtimedwait receives them; and from the start, so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began = time.time()
    server = subprocess.Popen(arguments[4:], process_group=0, preexec_fn=_before_exec)  # noqa: PLW1509 - one thread
    try:
        _wait(server, owner)
    finally:
        _end(server, grace)
        for region in Path("/dev/shm").glob(f"{shm_prefix}*"):  # noqa: S108 - where the Python backend keeps its own
            region.unlink(missing_ok=True)
        _remove_stray_directories(began)
        if os.getppid() != owner:
            shutil.rmtree(run_dir, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _before_exec() -> None:
    """In the child: die with the supervisor, and receive signals again."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)


def _wait(server: subprocess.Popen[bytes], owner: int) -> None:
    """Return when the server has ended, a signal asks to stop, or the owner is gone."""
    while server.poll() is None and os.getppid() == owner:
        received = signal.sigtimedwait(_WATCHED, _OWNER_POLL_SECONDS)
        if received is not None and received.si_signo in _STOP_SIGNALS:
            return


def _end(server: subprocess.Popen[bytes], grace: float) -> None:
    """Stop the server, kill what is left of its process group, and reap it."""
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    deadline = time.monotonic() + 1
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) is not None and time.monotonic() < deadline:
            time.sleep(0.005)


def _remove_stray_directories(began: float) -> None:
    """Remove what a killed server leaves in /tmp: its empty place for Python environments, which repogen uses none of.

    Its name is not known, so only empty ones of this user that came into being during the server's life are removed.
    """
    for path in Path("/tmp").glob("python_env_??????"):  # noqa: S108 - the name is Triton's, and fixed
        with contextlib.suppress(OSError):
            found = path.stat()
            if found.st_uid == os.getuid() and found.st_ctime >= began - 1:
                path.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
