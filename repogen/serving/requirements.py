"""What the embedded Triton needs of this machine, and the command that mends each lack."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.serving import Requirement
from repogen.errors import ServerError
from repogen.serving import install, interpreter
from repogen.serving import wheel_lock as lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.targets import Target

NEEDED_GLIBC = (2, 35)
_ELSEWHERE = "use --server docker, --server HOST:PORT or --no-smoke"


def embedded(target: Target) -> list[Requirement]:
    """Return every requirement of the embedded Triton for ``target``, met or not; installs nothing."""
    root = install.cache_root()
    return [
        _processor(platform.system(), platform.machine()),
        _glibc(_libc_version()),
        _interpreter(target),
        _program("bash", shutil.which),
        _shared_memory(Path("/dev/shm")),  # noqa: S108 - POSIX shared memory, which the Python backend uses
        _paths(root, Path(tempfile.gettempdir())),
        _disk(root, target),
    ]


def _processor(system: str, machine: str) -> Requirement:
    met = (system, machine) == ("Linux", "x86_64")
    return Requirement("processor", met, f"{system} on {machine}, needs Linux on x86_64", _ELSEWHERE)


def _libc_version() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _glibc(version: str) -> Requirement:
    name, _, number = version.partition(" ")
    try:
        met = name == "glibc" and tuple(map(int, number.split(".")[:2])) >= NEEDED_GLIBC
    except ValueError:
        met = False
    return Requirement("glibc", met, f"{version or 'no glibc'}, needs glibc 2.35 (Debian 12, Ubuntu 22.04)", _ELSEWHERE)


def _interpreter(target: Target) -> Requirement:
    try:
        chosen = interpreter.choose(lock.shipped().tags_for(target.onnxruntime))
    except ServerError as error:
        return Requirement("interpreter", met=False, found=error.message, remedy=error.hint)
    return Requirement("interpreter", met=True, found=f"{chosen.executable} with {chosen.libpython}", remedy="")


def _program(name: str, which: Callable[[str], str | None]) -> Requirement:
    found = which(name)
    return Requirement(name, found is not None, found or f"no {name} on PATH", f"apt-get install {name}")


def _shared_memory(path: Path) -> Requirement:
    met = os.access(path, os.W_OK)
    return Requirement("shared memory", met, f"{path} is {'' if met else 'not '}writable", f"mount a tmpfs on {path}")


def _paths(*paths: Path) -> Requirement:
    unsafe = [str(path) for path in paths if not install.shell_safe(path)]
    return Requirement(
        "paths",
        not unsafe,
        f"{' and '.join(unsafe)}: Triton's Python backend takes no spaces or special characters"
        if unsafe
        else "no special characters",
        f"set {install.CACHE_VARIABLE} and TMPDIR to plain paths",
    )


def _disk(root: Path, target: Target) -> Requirement:
    existing = next(parent for parent in (root, *root.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    try:
        installed = install.locate(target.onnxruntime).complete
    except ServerError:
        installed = False
    needed = 0 if installed else install.NEEDED_BYTES
    return Requirement(
        "disk",
        free >= needed and os.access(existing, os.W_OK),
        f"{free >> 20} MB free in {existing}, needs {needed >> 20} MB and to be writable",
        f"free some space, or set {install.CACHE_VARIABLE}",
    )
