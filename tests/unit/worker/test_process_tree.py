"""The processes that a process started, as Linux lists them in /proc, and as ``ps`` lists them on other systems."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from repogen import machine
from repogen.worker.process_tree import children, memory_above

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY = "import sys; data = bytearray(64 * 2**20); print(flush=True); sys.stdin.read()"


@pytest.fixture
def child() -> Iterator[int]:
    """Return a process that uses more than 64 MB."""
    command = [sys.executable, "-c", _BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_children_and_their_memory(child: int, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    """With the child's own memory only; nothing is returned below the limit."""
    monkeypatch.setattr(machine, "system_and_processor", lambda: (system, "arm64"))
    assert child in children(os.getpid())
    assert os.getpid() not in children(os.getpid())
    assert children(child) == []
    use = memory_above(os.getpid(), 64 * 1024)
    assert use is not None
    assert use.total >= use.largest > 64 * 1024
    assert memory_above(os.getpid(), 10**9) is None
