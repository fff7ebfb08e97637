"""Tests of the description of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.bench import machine

if TYPE_CHECKING:
    import pytest


def test_cores_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that ended a moment ago does not count as another program, as it does in the load average."""
    ticks = iter([1_000, 1_040])
    monkeypatch.setattr(machine, "_busy_ticks", lambda: next(ticks))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 9.0, 9.0))
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_CLK_TCK": 100}.get(name, 1))
    assert machine.describe_machine().load == 1.6


def test_ticks_of_this_machine() -> None:
    """The counter of the kernel does not decrease."""
    before, after = machine._busy_ticks(), machine._busy_ticks()  # noqa: SLF001 - the parser of /proc/stat
    assert before is not None
    assert after is not None
    assert 0 < before <= after
