"""Describes the machine that is measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from repogen.artifacts.bench import Machine
from repogen.machine import available_processors
from repogen.version import __version__

_PACKAGES = ("torch", "onnxruntime", "numpy")


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
        load=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.release()}",
        versions={"repogen": __version__, "python": platform.python_version(), **installed, **versions},
    )


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
