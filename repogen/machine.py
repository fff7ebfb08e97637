"""The operating system and processor of this machine, which decide what repogen can do here."""

from __future__ import annotations

import os
import platform

LINUX = "Linux"


def system_and_processor() -> tuple[str, str]:
    """Return, for example, ``("Linux", "x86_64")`` or ``("Darwin", "arm64")``."""
    return platform.system(), platform.machine()


def is_linux() -> bool:
    """Return whether this machine runs Linux; otherwise there is neither ``/proc`` nor ``prctl``."""
    return system_and_processor()[0] == LINUX


def available_processors() -> int:
    """Return the number of processors that this process may use; ``taskset`` limits them."""
    return len(os.sched_getaffinity(0)) if is_linux() else os.cpu_count() or 1
