"""Supervisor: runs tritonserver and cleans up after it when repogen ends. A program, never imported.

``python -I -S supervisor.py OWNER_PID RUN_DIR SHM_PREFIX GRACE_SECONDS COMMAND...`` runs COMMAND in its own process
group until it exits, SIGTERM arrives, or the owner has ended (even by SIGKILL). Then it sends SIGTERM to the server
and, after the grace period, SIGKILL to the server and its Python stubs, and removes their shared memory and the run
directory. It exits with the server's code. If the supervisor itself is killed, the kernel kills the server
(PR_SET_PDEATHSIG), and the stubs, which watch their server, exit.

It is a separate process because PR_SET_PDEATHSIG is tied to the thread that starts a child, and repogen starts Triton
from a thread that may end before repogen does.
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
    """Run the server, clean up after it, and return its exit code."""
    owner, run_dir, shm_prefix, grace = int(arguments[0]), Path(arguments[1]), arguments[2], float(arguments[3])
    # Blocked so that sigtimedwait receives them, and before the server starts so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    start_time = time.time()
    server = subprocess.Popen(arguments[4:], process_group=0, preexec_fn=_before_exec)  # noqa: PLW1509 - one thread
    try:
        _wait(server, owner)
    finally:
        _end(server, grace)
        for region in Path("/dev/shm").glob(f"{shm_prefix}*"):  # noqa: S108 - POSIX shared memory, which the Python backend uses
            region.unlink(missing_ok=True)
        _remove_stray_directories(start_time)
        if os.getppid() != owner:
            shutil.rmtree(run_dir, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _before_exec() -> None:
    """Run in the child: end with the supervisor, and unblock signals."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)


def _wait(server: subprocess.Popen[bytes], owner: int) -> None:
    """Return when the server has exited, a stop signal arrives, or the owner has ended."""
    while server.poll() is None and os.getppid() == owner:
        received = signal.sigtimedwait(_WATCHED, _OWNER_POLL_SECONDS)
        if received is not None and received.si_signo in _STOP_SIGNALS:
            return


def _end(server: subprocess.Popen[bytes], grace: float) -> None:
    """Stop the server, kill the rest of its process group, and reap its children."""
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


def _remove_stray_directories(start_time: float) -> None:
    """Remove the empty directory for Python environments that a killed server leaves in /tmp.

    Its name is random, so this removes empty directories of this user that were created while the server ran.
    """
    for path in Path("/tmp").glob("python_env_??????"):  # noqa: S108 - Triton always uses /tmp
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_uid == os.getuid() and status.st_ctime >= start_time - 1:
                path.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
