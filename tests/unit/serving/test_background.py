"""A server that starts behind the scenes: waited for, stopped, and its failure heard."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.serving.background import BackgroundTriton

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Running:
    """A Triton that does nothing."""

    @property
    def endpoint(self) -> Endpoint:
        """Nowhere."""
        return Endpoint("", "", "", "simulated", "", "", sees_files=True, has_gpu=False)

    def alive(self) -> bool:
        """Say yes."""
        return True

    def log_tail(self, lines: int = 40) -> str:
        """Say nothing."""
        return "" * lines

    def provide(self, requirements: Sequence[str]) -> None:
        """Need nothing."""


class Simulated:
    """A server that starts at once, or not at all."""

    def __init__(self, failure: Exception | None = None) -> None:
        """Keep what to do."""
        self.failure = failure
        self.seen: list[str] = []

    def preflight(self) -> None:
        """Need nothing."""

    def install(self) -> None:
        """Need nothing."""

    @contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[Running]:
        """Note starts and stops."""
        if self.failure is not None:
            raise self.failure
        del strict
        self.seen.append(f"start {repository.name} {mode.value}")
        yield Running()
        self.seen.append("stop")


def test_the_server_lives_as_long_as_the_block(tmp_path: Path) -> None:
    """Started in explicit mode on the repository, stopped on leaving."""
    server = Simulated()
    with BackgroundTriton(server, tmp_path / "repository") as background:
        assert background.wait().alive()
        assert server.seen == ["start repository explicit"]
    assert server.seen == ["start repository explicit", "stop"]


def test_a_failed_start_is_heard_by_everyone_who_waits(tmp_path: Path) -> None:
    """Not at the start, which nobody waits for, but where it matters."""
    with BackgroundTriton(Simulated(ServerError("no port")), tmp_path) as background:
        for _ in range(2):
            with pytest.raises(ServerError, match="no port"):
                background.wait()


def test_the_server_is_stopped_when_the_block_fails(tmp_path: Path) -> None:
    """An error of the build leaves no server behind."""
    server = Simulated()

    def build() -> None:
        with BackgroundTriton(server, tmp_path) as background:
            background.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build()
    assert server.seen[-1] == "stop"
