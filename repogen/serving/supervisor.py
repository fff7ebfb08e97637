"""Supervisor: runs tritonserver and cleans up after it when repogen ends. A program, never imported.

``python -I -S supervisor.py OWNER_PID RUN_DIR SHM_PREFIX GRACE_SECONDS DATA_BYTES COMMAND...`` runs COMMAND in its own
process group until it exits, SIGTERM arrives, or the owner has ended (even by SIGKILL). Then it sends SIGTERM to the
server and, after the grace period, SIGKILL to the server and its Python stubs, and removes their shared memory and the
run directory. It exits with the server's code. If the supervisor itself is killed, the kernel kills the server
(PR_SET_PDEATHSIG), and the stubs, which watch their server, exit. COMMAND may use DATA_BYTES of private memory; 0 for
no limit.

An argument of COMMAND that is ``REPOGEN_HIDDEN_<n>`` stands for the value of that environment variable. Any user can
read the command line of a process, but not its environment. So the server is started with the variable's name, and
stopped before its first instruction (ptrace(2)); then the pointer to that argument is set to the variable's value in
the server's memory, and the variable is removed from its environment, which Python models inherit. /proc/PID/cmdline
still shows the name.

Files that COMMAND creates are readable only by its user (umask 077), and so is its shared memory, which contains the
requests and responses of the Python backend. Boost sets the mode of shared memory to 0644 after it creates it, whatever
the umask is, so a filter of seccomp(2) lets this call of fchmod(2) have no effect.

It is a separate process because PR_SET_PDEATHSIG is tied to the thread that starts a child, and repogen starts Triton
from a thread that may end before repogen does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_WATCHED = {*_STOP_SIGNALS, signal.SIGCHLD}
_PTRACE_TRACEME, _PTRACE_CONT, _PTRACE_DETACH = 0, 7, 17  # <sys/ptrace.h>
_ARG_START, _ENV_START, _ENV_END = 48, 50, 51  # fields of /proc/PID/stat, counted from 1 as in proc(5)
_PR_SET_NO_NEW_PRIVS = 38  # required for a filter
_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_SPEC_ALLOW = 317, 1, 4  # <asm/unistd_64.h>, <linux/seccomp.h>
# Instructions of <linux/bpf_common.h>: code, jumps if true and if false, operand. Offsets are in struct seccomp_data.
_FILTER = (
    (0x20, 0, 0, 4),  # load the architecture
    (0x15, 0, 5, 0xC000003E),  # x86_64, or allow
    (0x20, 0, 0, 0),  # load the number of the call
    (0x15, 0, 3, 91),  # fchmod, or allow
    (0x20, 0, 0, 24),  # load its second argument
    (0x15, 0, 1, 0o644),  # the mode of Boost's shared_memory_object, or allow
    (0x06, 0, 0, 0x50000),  # return 0 without a call
    (0x06, 0, 0, 0x7FFF0000),  # allow
)
_OWNER_POLL_SECONDS = 0.2
_HIDDEN = re.compile(rb"REPOGEN_HIDDEN_[0-9]+")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def main(arguments: list[str]) -> int:
    """Run the server, clean up after it, and return its exit code."""
    owner, run_dir, shm_prefix, grace = int(arguments[0]), Path(arguments[1]), arguments[2], float(arguments[3])
    data_bytes, command = int(arguments[4]), arguments[5:]
    # Blocked so that sigtimedwait receives them, and before the server starts so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    start_time = time.time()
    hides = any(_HIDDEN.fullmatch(part.encode()) for part in command)
    server = subprocess.Popen(
        command,
        process_group=0,
        preexec_fn=partial(_before_traced_exec if hides else _before_exec, data_bytes),  # noqa: PLW1509 - one thread
    )
    try:
        if hides:
            _pass_hidden(server.pid)
        _wait(server, owner)
    finally:
        _end(server, grace)
        for region in Path("/dev/shm").glob(f"{shm_prefix}*"):  # noqa: S108 - POSIX shared memory, which the Python backend uses
            with contextlib.suppress(OSError):  # another user can create files there with this prefix
                region.unlink()
        _remove_stray_directories(start_time)
        if os.getppid() != owner:
            shutil.rmtree(run_dir, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _before_exec(data_bytes: int) -> None:
    """Run in the child: end with the supervisor, unblock signals, keep files private, limit memory; 0 for no limit."""
    _keep_files_private()
    if data_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)


def _keep_files_private() -> None:
    """Let new files and shared memory have mode 0600 at most; a kernel without seccomp(2) keeps Boost's 0644."""
    os.umask(0o077)
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in _FILTER))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(_FILTER), ctypes.addressof(program)))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    arguments = map(ctypes.c_ulong, (_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_SPEC_ALLOW))
    _libc.syscall(*arguments, header)


def _before_traced_exec(data_bytes: int) -> None:
    """Run in the child: the same, and stop after each exec.

    Raises:
        PermissionError: The kernel does not permit it.
    """
    _before_exec(data_bytes)
    if _libc.ptrace(_PTRACE_TRACEME, 0, None, None) != 0:
        raise PermissionError("ptrace is not permitted here, so the control header cannot be hidden")


def _pass_hidden(pid: int) -> None:
    """Let ``env`` start the server, and set the server's hidden arguments before its first instruction."""
    while _stopped_program(pid) == b"env":
        _libc.ptrace(_PTRACE_CONT, pid, None, None)
    _set_hidden_arguments(pid)
    _libc.ptrace(_PTRACE_DETACH, pid, None, None)


def _stopped_program(pid: int) -> bytes:
    """Wait until the process is stopped; return its ``argv[0]``.

    Raises:
        ChildProcessError: It ended.
    """
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise ChildProcessError(f"the server exited before it could be started: status {status}")
    return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]


def _set_hidden_arguments(pid: int) -> None:
    """Let each argument that is the name of a hidden variable be the variable's value, and remove the variable."""
    # the name of the program, in parentheses, may contain spaces
    fields = [b"", b"", *Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()]
    arguments, environment, end = (int(fields[index - 1]) for index in (_ARG_START, _ENV_START, _ENV_END))
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:

        def read(start: int, stop: int) -> bytes:
            memory.seek(start)
            return memory.read(stop - start)

        def set_pointer(offset: int, address: int) -> None:
            memory.seek(bottom + offset)
            memory.write(struct.pack("=Q", address))

        parts, variables = read(arguments, environment), b"\0" + read(environment, end)
        stack = next(
            line
            for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
            if line.endswith("[stack]")
        )
        bottom = int(stack.partition("-")[0], 16)
        pointers = read(bottom, arguments)
        for match in re.finditer(rb"(?<![^\0])REPOGEN_HIDDEN_[0-9]+(?=\0)", parts):
            # `variables` begins with one byte that is not in the environment
            variable = environment + variables.index(b"\0" + match[0] + b"=")
            pointer = pointers.index(struct.pack("=Q", arguments + match.start()))
            set_pointer(pointer, variable + len(match[0]) + 1)
            # An empty string instead, which no program takes for a variable: the list must not become shorter.
            set_pointer(pointers.index(struct.pack("=Q", variable)), variable - 1)


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
            status = path.lstat()  # other users can plant links here
            if status.st_uid == os.getuid() and status.st_ctime >= start_time - 1:
                path.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
