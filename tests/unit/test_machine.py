"""What control groups leave of the processors and the memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen import machine
from repogen.machine import available_memory, available_processors

if TYPE_CHECKING:
    from pathlib import Path

_PROCESSORS = 16
_GROUP = "sys/fs/cgroup/pod/container"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine with 16 processors and 8 MiB that are free."""
    monkeypatch.setattr(machine, "is_linux", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(_PROCESSORS)))
    write(tmp_path, "proc/meminfo", "MemTotal: 16384 kB\nMemFree: 1 kB\nMemAvailable: 8192 kB\n")
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    """Write a file."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="ascii")


def test_machine_without_control_groups(root: Path, tmp_path: Path) -> None:
    """What Linux says is available, and None on other systems."""
    assert (available_processors(root), available_memory(root)) == (_PROCESSORS, 8 * 2**20)
    assert available_memory(tmp_path / "none") is None


def test_version_2(root: Path) -> None:
    """Each group that contains the process may have a limit; cached pages can be used."""
    write(root, "proc/self/cgroup", "0::/pod/container\n")
    write(root, f"{_GROUP}/memory.max", "max\n")
    write(root, f"{_GROUP}/cpu.max", "max 100000\n")
    write(root, f"{_GROUP}/memory.current", "1000\n")
    assert (available_processors(root), available_memory(root)) == (_PROCESSORS, 8 * 2**20)
    write(root, f"{_GROUP}/../memory.max", "6000000\n")
    write(root, f"{_GROUP}/../memory.current", "3000000\n")
    write(root, f"{_GROUP}/../memory.stat", "anon 5\ninactive_file 1000000\n")
    write(root, f"{_GROUP}/cpu.max", "250000 100000\n")
    assert (available_processors(root), available_memory(root)) == (3, 4_000_000)
    write(root, f"{_GROUP}/memory.max", "500\n")
    assert available_memory(root) == 0


def test_version_1(root: Path) -> None:
    """With a directory for each controller; the largest number does not limit anything."""
    write(root, "proc/self/cgroup", "4:memory:/pod/container\n3:cpu,cpuacct:/pod\n0::/\n")
    group = "sys/fs/cgroup/memory/pod/container"
    write(root, f"{group}/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    write(root, f"{group}/memory.usage_in_bytes", "3000\n")
    write(root, "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n")
    write(root, "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n")
    assert (available_processors(root), available_memory(root)) == (_PROCESSORS, 8 * 2**20)
    write(root, f"{group}/memory.limit_in_bytes", "10000\n")
    write(root, f"{group}/memory.stat", "inactive_file 7\ntotal_inactive_file 1000\n")
    write(root, "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "50000\n")
    assert (available_processors(root), available_memory(root)) == (1, 8000)


def test_files_that_cannot_be_read_do_not_limit(root: Path) -> None:
    """A container may hide or replace them."""
    write(root, "proc/self/cgroup", "0::/pod/container\n")
    write(root, f"{_GROUP}/memory.max", "a lot\n")
    write(root, f"{_GROUP}/memory.current", "\n")
    write(root, f"{_GROUP}/cpu.max", "\n")
    assert (available_processors(root), available_memory(root)) == (_PROCESSORS, 8 * 2**20)
