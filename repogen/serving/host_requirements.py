"""The requirements of the embedded Triton on this machine, and the remedy for each unmet one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.environment import Check
from repogen.errors import ServerError
from repogen.machine import LINUX, system_and_processor
from repogen.serving import install, interpreter
from repogen.serving.wheels import shipped_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.targets import Target

NEEDED_GLIBC = (2, 35)
_ALTERNATIVES = "use another --server, such as docker, or HOST:PORT of a running Triton server"


def check_host(target: Target) -> list[Check]:
    """Return a check of every requirement of the embedded Triton for ``target``; installs nothing."""
    root = install.cache_root()
    return [
        _processor(*system_and_processor()),
        _glibc(_libc_version()),
        _interpreter(target),
        _program("bash", shutil.which),
        _shared_memory(Path("/dev/shm")),  # noqa: S108 - POSIX shared memory, which the Python backend uses
        _paths(root, Path(tempfile.gettempdir())),
        _disk(root, target),
    ]


def _check(name: str, value: str, *, ok: bool, remedy: str) -> Check:
    return Check(name, value, ok, remedy="" if ok else remedy)


def _processor(system: str, machine: str) -> Check:
    ok = (system, machine) == (LINUX, "x86_64")
    description = f"{system} on {machine}{'' if ok else ', needs Linux on x86_64'}"
    return _check("processor", description, ok=ok, remedy=_ALTERNATIVES)


def _libc_version() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _glibc(version: str) -> Check:
    name, _, number = version.partition(" ")
    try:
        ok = name == "glibc" and tuple(map(int, number.split(".")[:2])) >= NEEDED_GLIBC
    except ValueError:
        ok = False
    description = version or "no glibc"
    if not ok:
        description += ", needs glibc 2.35 (Debian 12, Ubuntu 22.04)"
    return _check("glibc", description, ok=ok, remedy=_ALTERNATIVES)


def _interpreter(target: Target) -> Check:
    try:
        python = interpreter.choose(shipped_lock().tags_for(target.onnxruntime))
    except ServerError as error:
        return Check("interpreter", error.message, ok=False, remedy=error.hint)
    return Check("interpreter", f"{python.executable} with {python.libpython}", ok=True)


def _program(name: str, which: Callable[[str], str | None]) -> Check:
    path = which(name)
    return _check(name, path or f"no {name} on PATH", ok=path is not None, remedy=f"apt-get install {name}")


def _shared_memory(path: Path) -> Check:
    ok = os.access(path, os.W_OK)
    return _check(
        "shared memory", f"{path} is {'' if ok else 'not '}writable", ok=ok, remedy=f"mount a tmpfs on {path}"
    )


def _paths(*paths: Path) -> Check:
    unsafe = " and ".join(str(path) for path in paths if not install.shell_safe(path))
    description = f"{unsafe}: Triton's Python backend does not support spaces or special characters"
    return _check(
        "paths",
        description if unsafe else "no special characters",
        ok=not unsafe,
        remedy=f"set {install.CACHE_VARIABLE} and TMPDIR to paths without special characters",
    )


def _disk(root: Path, target: Target) -> Check:
    existing = next(parent for parent in (root, *root.parents) if parent.exists())
    free_bytes, writable = shutil.disk_usage(existing).free, os.access(existing, os.W_OK)
    try:
        required_bytes = 0 if install.locate(target.onnxruntime).complete else install.NEEDED_BYTES
    except ServerError:
        required_bytes = install.NEEDED_BYTES
    free, required = (f"{size >> 20} MB" for size in (free_bytes, required_bytes))
    if not writable:
        description = f"{existing} is not writable"
    elif free_bytes < required_bytes:
        description = f"{existing} has {free} of free space, and the embedded Triton needs {required}"
    else:
        description = f"{existing} is writable, {free} free" + (f", needs {required}" if required_bytes else "")
    return _check(
        "disk",
        description,
        ok=writable and free_bytes >= required_bytes,
        remedy=f"free some space, or set {install.CACHE_VARIABLE}",
    )
