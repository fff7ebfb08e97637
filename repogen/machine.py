"""The operating system, the processors and the memory of this machine, which decide what repogen can do here.

Source of the control group files: the kernel's cgroup-v2.rst, and cgroup-v1/memory.rst and sched-bwc.rst.
"""

from __future__ import annotations

import math
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LINUX = "Linux"
_ROOT = Path("/")
_KIB = 1024
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""The limit, the use, and the key of unused cached pages in memory.stat, of versions 2 and 1."""
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"
# 127.0.0.1, the address of all interfaces, and both of IPv6
_LOCAL_ADDRESSES = frozenset({"0100007F", "0" * 8, "0" * 32, "0000000000000000FFFF00000100007F"})
_LOOPBACK = re.compile(r"(0{16}FFFF0000)?[0-9A-F]{6}7F|0{24}01000000")
"""Any address of 127.0.0.0/8, also of IPv6, and ``::1``."""


def system_and_processor() -> tuple[str, str]:
    """Return, for example, ``("Linux", "x86_64")`` or ``("Darwin", "arm64")``."""
    return platform.system(), platform.machine()


def is_linux() -> bool:
    """Return whether this machine runs Linux; otherwise there is neither ``/proc`` nor ``prctl``."""
    return system_and_processor()[0] == LINUX


def available_processors(root: Path = _ROOT) -> int:
    """Return the number of processors that this process may use: ``taskset`` and a container's quota limit them.

    Args:
        root: Directory that contains ``proc`` and ``sys``.
    """
    if not is_linux():
        return os.cpu_count() or 1
    return min((len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in _quotas(root))))


def available_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes of memory that can be allocated without swapping; None on a system that does not report them.

    The limits of control groups, such as that of a container, count as well. Cached file pages are not in use.

    Args:
        root: Directory that contains ``proc`` and ``sys``.
    """
    fields = (line.split() for line in _lines(root / "proc" / "meminfo"))
    free = [int(words[1]) * _KIB for words in fields if words[:1] == ["MemAvailable:"]]
    return max(0, min((*free, *_headrooms(root)))) if free else None


def has_own_listeners(*ports: int, loopback: bool = False) -> bool:
    """Return whether processes of this user or of root, and no others, listen on each port; True without ``/proc``.

    Args:
        ports: Ports that a client of 127.0.0.1 connects to.
        loopback: The client may connect to any address of this machine, such as ``::1`` for ``localhost``.
    """
    tables = [table for table in _TCP_TABLES if table.exists()]
    listeners = [each for table in tables for each in _listeners(table.read_text(encoding="ascii"), loopback=loopback)]
    trusted_users = {os.geteuid(), 0}
    own_ports = {port for port, user in listeners if user in trusted_users}
    is_own = all(user in trusted_users for port, user in listeners if port in ports)
    return not tables or (own_ports.issuperset(ports) and is_own)


def _listeners(table: str, *, loopback: bool) -> Iterator[tuple[int, int]]:
    """Yield the port and the user of each listener that a client on this machine can reach; see proc(5)."""
    for row in table.splitlines()[1:]:
        # number, local address, remote address, state, queues, timer, retransmissions, user
        _, local, _, state, _, _, _, user, *_ = row.split()
        address, _, port = local.partition(":")
        if state == _LISTEN and (address in _LOCAL_ADDRESSES or (loopback and _LOOPBACK.fullmatch(address))):
            yield int(port, 16), int(user)


def _headrooms(root: Path) -> Iterator[int]:
    """Yield what each control group with a limit leaves."""
    for group in _control_groups(root, "memory"):
        for limit_file, usage_file, cached in _MEMORY_FILES:
            limit, usage = _numbers(group / limit_file), _numbers(group / usage_file)
            if limit and usage:
                fields = (line.split() for line in _lines(group / "memory.stat"))
                inactive = sum(int(words[1]) for words in fields if words[:1] == [cached])
                yield limit[0] - max(0, usage[0] - inactive)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the number of processors that each control group with a quota may use."""
    for group in _control_groups(root, "cpu"):
        quota = _numbers(group / "cpu.max") or (
            *_numbers(group / "cpu.cfs_quota_us"),
            *_numbers(group / "cpu.cfs_period_us"),
        )
        if len(quota) == 2 and min(quota) > 0:  # noqa: PLR2004 - quota and period
            yield quota[0] / quota[1]


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control group, and of those that contain it, for a controller."""
    mount = root / "sys" / "fs" / "cgroup"
    for line in _lines(root / "proc" / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount
        group = top / path.strip("/")
        yield from (directory for directory in (group, *group.parents) if directory.is_relative_to(top))


def _numbers(path: Path) -> tuple[int, ...]:
    """Return the integers in a file; none if it does not exist, or says that there is no limit."""
    words = " ".join(_lines(path)).split()
    return tuple(map(int, words)) if words and all(word.lstrip("-").isdecimal() for word in words) else ()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
