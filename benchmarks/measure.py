"""Runs a command and measures its wall time and the resident memory of its process tree."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PAGE = os.sysconf("SC_PAGESIZE")
_EVERY = 0.05


@dataclass(frozen=True)
class Run:
    """One run of a command.

    Attributes:
        wall: Seconds.
        rss: Largest sum of the resident memory of the process and all its descendants, in MB, sampled every 50 ms.
        stdout: Its standard output.
    """

    wall: float
    rss: float
    stdout: str


def measure(command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> Run:
    """Run ``command`` until it exits, with ``environment`` added to that of this process.

    Raises:
        RuntimeError: It failed.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peaks = [0.0]
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_EVERY):
            peaks.append(_tree_rss(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    out, err = process.communicate()
    wall = time.monotonic() - start
    ended.set()
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{err}\n{out}")
    return Run(wall, max(peaks), out)


def _tree_rss(root: int) -> float:
    total, pending = 0, [root]
    while pending:
        pid = pending.pop()
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text(encoding="ascii").split())
        except (OSError, IndexError):
            continue
    return total * _PAGE / 2**20


def middle(values: Sequence[float]) -> str:
    """Return the median, followed by the range.

    >>> middle([1.0, 2.0, 4.0])
    '2.0 (1.0-4.0)'
    """
    return f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})"
