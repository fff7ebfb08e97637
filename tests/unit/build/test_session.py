"""What the models of one build share, and how it is opened and closed."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from repogen.build import session
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.build.session import open_session
from repogen.errors import PublishError, ServerError, SpecError
from repogen.serving import servers
from repogen.spec.load import load_spec

from .conftest import PLAIN, RecordedProgress, write_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.serving import ControlMode
    from repogen.serving.interface import TritonServer


def plan_of(tmp_path: Path, options: BuildOptions) -> BuildPlan:
    """Return a plan for one model."""
    spec = write_spec(tmp_path, m=PLAIN)
    return BuildPlan(spec, options, spec.repository, ("m",), ("m",), {})


def test_spec_in_a_directory_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of the spec may begin with two dots, and that of the repository may be absolute."""
    write_spec(tmp_path, m=PLAIN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    spec = load_spec(Path("../repogen.yaml"))
    options = BuildOptions(server=None)
    plan = BuildPlan(spec, options, tmp_path / "repository", ("m",), ("m",), {})
    with open_session(plan, RecordedProgress(), None, threading.Event()) as session:
        assert session.staging.is_dir()


def test_executor_does_not_copy_files_of_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build ends before the executor is opened."""
    executor = Mock()
    executor.name = "ray"
    monkeypatch.setattr(session, "find_executor", lambda _: (executor, ""))
    plan = plan_of(tmp_path, BuildOptions(server=None, executor="ray"))
    tmp_path.chmod(0o1777)
    with (
        pytest.raises(SpecError) as caught,
        open_session(plan, RecordedProgress(), None, threading.Event()),
    ):
        pytest.fail("the session was opened")
    assert caught.value.code == "working-directory.foreign"
    executor.open.assert_not_called()


class FakeServer:
    """A TritonServer that records what is called.

    Args:
        error: Raised by the preflight.
    """

    def __init__(self, error: ServerError | None = None) -> None:
        """Begin without calls."""
        self.calls: list[str] = []
        self._error = error

    def preflight(self) -> None:
        """Record the call."""
        self.calls.append("preflight")
        if self._error is not None:
            raise self._error

    def install(self) -> None:
        """Record the call."""
        self.calls.append("install")

    @contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[str]:
        """Record start and stop."""
        assert (repository.is_dir(), mode.value, strict) == (True, "explicit", True)
        self.calls.append("start")
        yield "triton"
        self.calls.append("stop")


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    """Let a session use a fake server for any ``--server``."""

    def server(*_: object) -> TritonServer:
        return fake  # type: ignore[return-value] # its Triton is a string

    monkeypatch.setattr(servers, "find_server", server)


def test_session_without_smoke_test_has_a_staging_directory_only(tmp_path: Path) -> None:
    """It is removed at the end, and the repository is not created."""
    plan, progress = plan_of(tmp_path, BuildOptions(server=None)), RecordedProgress()
    with open_session(plan, progress, None, threading.Event()) as session:
        assert session.private_repository.is_dir()
        assert session.private_repository.is_relative_to(session.staging)
        assert (session.triton, session.tracking, session.spec) == (None, None, plan.spec)
    assert not session.staging.exists()
    assert not plan.repository.exists()
    assert progress.steps == [": preflight"]


def test_server_starts_in_the_background_and_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves the private repository."""
    server = FakeServer()
    use(monkeypatch, server)
    with open_session(plan_of(tmp_path, BuildOptions()), RecordedProgress(), None, threading.Event()) as session:
        assert session.triton is not None
        session.triton.wait()
    assert server.calls == ["preflight", "install", "start", "stop"]


def test_missing_server_ends_the_build_before_anything_is_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is the build's."""
    use(monkeypatch, FakeServer(ServerError("no docker")))
    plan = plan_of(tmp_path, BuildOptions())
    with pytest.raises(ServerError, match="no docker"), open_session(plan, RecordedProgress(), None, threading.Event()):
        pytest.fail("the session was opened")
    assert list(tmp_path.glob(".*.repogen-stage")) == []


def test_unusable_staging_directory_is_rejected(tmp_path: Path) -> None:
    """Before a server is looked for."""
    plan = plan_of(tmp_path, BuildOptions(stage_dir=tmp_path / "model_repository" / "stage"))
    with pytest.raises(PublishError) as caught, open_session(plan, RecordedProgress(), None, threading.Event()):
        pytest.fail("the session was opened")
    assert caught.value.code == "stage.inside-repository"


def test_cancelling_stops_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are in progress then fail, so that an interrupt does not wait for a smoke test."""
    server = FakeServer()
    use(monkeypatch, server)
    cancelled = threading.Event()
    with open_session(plan_of(tmp_path, BuildOptions()), RecordedProgress(), None, cancelled) as session:
        assert session.triton is not None
        session.triton.wait()
        session.cancel()
        assert cancelled.is_set()
    assert server.calls[-1] == "stop"
