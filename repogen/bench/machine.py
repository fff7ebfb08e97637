"""Describes the machine that is measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path

from repogen.artifacts.bench import Machine
from repogen.machine import available_processors
from repogen.version import __version__

_PACKAGES = ("torch", "onnxruntime", "numpy")
_SECONDS = 0.25


def describe_machine(**versions: str) -> Machine:
    """Return the machine's description.

    Args:
        versions: Versions of other tools by name.
    """
    installed = {name: version for name in _PACKAGES if (version := _installed_version(name))}
    return Machine(
        cpu=_cpu_name(),
        cores=available_processors(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load=round(_used_cores(), 2),
        system=f"{platform.system()} {platform.release()}",
        versions={"repogen": __version__, "python": platform.python_version(), **installed, **versions},
    )


def _used_cores() -> float:
    """Return how many cores are in use now; the load average also counts what ended in the last minutes."""
    before = _busy_ticks()
    time.sleep(_SECONDS)
    after = _busy_ticks()
    if before is None or after is None:
        return os.getloadavg()[0]
    return (after - before) / os.sysconf("SC_CLK_TCK") / _SECONDS


def _busy_ticks() -> int | None:
    """Return the time that all cores have spent in programs and in the kernel; None if it is unknown."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, interrupts, soft_interrupts, stolen = map(int, line.split()[1:9])
    return user + nice + system + interrupts + soft_interrupts + stolen


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()


def _installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
