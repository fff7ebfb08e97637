"""Runs a command and measures its wall time, its CPU time, and the resident memory of its process tree."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_EVERY = 0.1


@dataclass(frozen=True)
class Run:
    """One run of a command.

    Attributes:
        wall: Seconds.
        rss: Largest resident memory of the process and all its descendants in MB, sampled every 100 ms; a page that
            several of them share counts once.
        stdout: Its standard output.
        cpu: Seconds of CPU time, user and system, of the process and its descendants. Unlike the wall time, it depends
            little on what else the machine does.
    """

    wall: float
    rss: float
    stdout: str
    cpu: float = 0.0


def measure(command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> Run:
    """Run ``command`` until it exits, with ``environment`` added to that of this process.

    Raises:
        RuntimeError: It failed.
    """
    start, before = time.monotonic(), _cpu_of_children()
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
            peaks.append(_tree_memory(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    out, err = process.communicate()
    wall = time.monotonic() - start
    ended.set()
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{err}\n{out}")
    return Run(wall, max(peaks), out, _cpu_of_children() - before)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary git worktree, which is removed at the end of the block."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as scratch:
        directory = Path(scratch) / "checkout"
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(directory), commit], check=True)
        try:
            yield directory
        finally:
            subprocess.run([*git, "remove", "--force", str(directory)], check=True)


def repogen(checkout: Path, *arguments: str, **environment: str) -> Run:
    """Run the `repogen` command of a checkout, with variables added to the environment."""
    variables = {"PYTHONPATH": str(checkout), **environment}
    return measure([sys.executable, "-P", "-m", "repogen", *arguments], environment=variables)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _tree_memory(root: int) -> float:
    """Return the memory of a process and its descendants in MB; each of n processes that share a page counts 1/n of it.

    A sum of resident memory would count a process twice that is about to start another one, and shared pages of forks.
    """
    total, pending = 0, [root]
    while pending:
        pid = pending.pop()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            total += int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0])
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text(encoding="ascii").split())
        except (OSError, IndexError):
            continue
    return total / 1024


def middle(values: Sequence[float]) -> str:
    """Return the median, followed by the range.

    >>> middle([1.0, 2.0, 4.0])
    '2.0 (1.0-4.0)'
    """
    return f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})"
