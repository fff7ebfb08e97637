"""The processes that a process started, directly or not, and the memory that they use."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from repogen.machine import is_linux

_PAGE_KIB = os.sysconf("SC_PAGESIZE") // 1024


@dataclass(frozen=True)
class MemoryUse:
    """Resident memory of several processes, in KiB.

    Attributes:
        total: Memory of all of them; a page that several of them share counts once.
        largest: Memory of the one that has the most.
        processes: Their number.
    """

    total: int
    largest: int
    processes: int

    def __str__(self) -> str:
        """Return the numbers in MB, for messages."""
        total = f"{self.total / 1024:.0f} MB of memory"
        if self.processes == 1:
            return total
        return f"{total} in {self.processes} processes (the largest has {self.largest / 1024:.0f} MB)"


def children(parent: int) -> list[int]:
    """Return the IDs of the processes whose parent is ``parent``."""
    return [child for child, its_parent in _parents().items() if its_parent == parent]


def memory_above(ancestor: int, limit: int) -> MemoryUse | None:
    """Return the memory of the descendants of a process; None if it is not above a limit.

    Args:
        ancestor: ID of a process that is the subreaper of its descendants, so that no orphan is missing.
        limit: The limit in KiB.
    """
    descendants = _descendants(ancestor)
    sizes = _resident_sizes(descendants)
    if sum(sizes) <= limit:
        return None
    if not is_linux():
        return MemoryUse(sum(sizes), max(sizes), len(sizes))
    # Only now: it takes the kernel longer. Each of n processes that share a page counts 1/n of it.
    sizes = list(map(_proportional, descendants))
    # A worker shares pages with the server that forked it; alone it would use all of them.
    total = max(sum(sizes), *map(_resident, descendants))
    return MemoryUse(total, max(sizes), len(sizes)) if total > limit else None


def peak_memory(ancestor: int) -> int:
    """Return the sum of the largest resident memory that each descendant of a process has had, in bytes.

    A page that several of them share counts once for each.
    """
    return 1024 * sum(map(_peak, _descendants(ancestor)))


def _descendants(ancestor: int) -> list[int]:
    parents = _parents()
    descendants: list[int] = []
    generation = {ancestor}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        descendants += generation
    return descendants


def _parents() -> dict[int, int]:
    """Return the parent of every process."""
    if not is_linux():
        return {pid: parent for pid, (parent, _) in _listed().items()}
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # PID (NAME) STATE PPID …, where NAME may contain any character
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
    return parents


def _listed() -> dict[int, tuple[int, int]]:
    """Return the parent and the resident memory in KiB of every process, as `ps` lists them, except for `ps` itself."""
    command = ["ps", "-A", "-o", "pid=,ppid=,rss="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        lines = [line.split() for line in process.communicate()[0].splitlines()]
    rows = {int(pid): (int(parent), int(rss)) for pid, parent, rss in lines}
    return {pid: row for pid, row in rows.items() if pid != process.pid}


def _resident_sizes(pids: list[int]) -> list[int]:
    """Return the resident memory of processes, in KiB; 0 for one that has ended."""
    if is_linux():
        return list(map(_resident, pids))
    processes = _listed()
    return [processes.get(pid, (0, 0))[1] for pid in pids]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_KIB
    except (OSError, IndexError, ValueError):  # it has ended
        return 0


def _peak(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended, or belongs to another user
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return _resident(pid)
