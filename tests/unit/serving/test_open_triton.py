"""Opening a server, in the foreground and in the background."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.serving import servers
from repogen.serving.servers import BackgroundTriton
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Running:
    """A Triton that does nothing."""

    @property
    def endpoint(self) -> Endpoint:
        """An endpoint without addresses."""
        return Endpoint("", "", "", "simulated", "", "", sees_files=True, has_gpu=False)

    def alive(self) -> bool:
        """Return True."""
        return True

    def log_tail(self, lines: int = 40) -> str:
        """Return an empty text."""
        return "" * lines

    def provide(self, requirements: Sequence[str]) -> None:
        """Do nothing."""


class Simulated:
    """A server that starts at once, or fails to start."""

    def __init__(self, failure: Exception | None = None) -> None:
        """Store the failure."""
        self.failure = failure
        self.events: list[str] = []

    def preflight(self) -> None:
        """Record the call."""
        self.events.append("preflight")

    def install(self) -> None:
        """Record the call."""
        self.events.append("install")

    @contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[Running]:
        """Record starts and stops."""
        if self.failure is not None:
            raise self.failure
        self.events.append(f"start {repository.name} {mode.value}{' strict' if strict else ''}")
        yield Running()
        self.events.append("stop")


@pytest.mark.parametrize(("strict", "suffix"), [(False, ""), (True, " strict")])
def test_open_triton_checks_installs_starts_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, strict: bool, suffix: str
) -> None:
    """The steps have this order, and the server stops at the end of the block."""
    server = Simulated()
    monkeypatch.setattr(servers, "find_server", lambda *_: server)
    target = targets()[DEFAULT_RELEASE]
    prepared = servers.prepare_server("any", target, Silent())
    with servers.open_triton(prepared, tmp_path, ControlMode.POLL, Silent(), strict=strict) as triton:
        assert triton.alive()
        assert server.events == ["preflight", "install", f"start {tmp_path.name} poll{suffix}"]
    assert server.events[-1] == "stop"


def test_server_runs_while_the_block_runs(tmp_path: Path) -> None:
    """It starts in explicit mode on the repository, and stops on exit."""
    server = Simulated()
    with BackgroundTriton(server, tmp_path / "repository") as background:
        assert background.wait().alive()
        assert server.events == ["start repository explicit strict"]
    assert server.events == ["start repository explicit strict", "stop"]


def test_failed_start_is_raised_by_every_wait(tmp_path: Path) -> None:
    """The error is raised by ``wait``, not on entry."""
    with BackgroundTriton(Simulated(ServerError("no port")), tmp_path) as background:
        for _ in range(2):
            with pytest.raises(ServerError, match="no port"):
                background.wait()


def test_server_stops_when_the_block_fails(tmp_path: Path) -> None:
    """An error in the block stops the server."""
    server = Simulated()

    def build() -> None:
        with BackgroundTriton(server, tmp_path) as background:
            background.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build()
    assert server.events[-1] == "stop"
