"""What a build records in MLflow, and what its reports say when MLflow fails."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.tracking import Tracking
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.build.tracking import TrackingSession, confirm_published, open_tracking
from repogen.errors import ErrorRecord, TrackingError
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource

from .conftest import PLAIN, SIGNATURE, FakeTracker, RecordedProgress, built_model, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.tracking import BuildTracker

VERIFIED = ModelReport("m", Status.VERIFIED)
FAILED = ModelReport("m", Status.FAILED, error=ErrorRecord("x", "failed", exit_code=3))


MODEL = ModelSpec(source=TorchSource(factory="models.py:build"))


def session_with(tracker: FakeTracker, repository: Path, *, register: bool = True) -> TrackingSession:
    """Return a session that connects to a fake tracker."""
    server = Tracking("sqlite:///unused.db", "repogen", register=register, root=repository)
    return TrackingSession(server, repository, {"m": MODEL}, lambda: None, lambda _: tracker)


def staged(private: Path) -> StagedVersion:
    """Return a staged version without files."""
    origin = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 9, 4, 3, 0, 0.0, 0.0)
    version = StagedVersion(
        "m", private, 1, ModelConfig("m", "", 8, SIGNATURE), Manifest("m", 8, SIGNATURE, (), origin)
    )
    version.version_dir.mkdir(parents=True)
    return version


@pytest.mark.parametrize("register", [True, False])
def test_registered_version_is_marked_until_it_is_confirmed(tmp_path: Path, *, register: bool) -> None:
    """The mark travels with the version directory into the repository."""
    tracker, version = FakeTracker(), staged(tmp_path / "private")
    with session_with(tracker, tmp_path, register=register) as session:
        assert session.log(version, built_model(tmp_path), VERIFIED).registry_version == 7
    assert (version.version_dir / UNCONFIRMED_FILE).exists() is register
    assert tracker.calls == ["start m", "log m verified"]


def test_confirming_removes_the_mark(tmp_path: Path) -> None:
    """It does not matter if a concurrent build removed it."""
    tracker, mark = FakeTracker(), tmp_path / "m" / "3" / UNCONFIRMED_FILE
    mark.parent.mkdir(parents=True)
    mark.touch()
    with session_with(tracker, tmp_path) as session:
        session.confirm("m", 3, "content", 7)
        session.confirm("m", 3, "content")
    assert not mark.exists()
    assert tracker.calls[1:] == ["confirm m 3 7", "confirm m 3 None"]


def test_failed_confirmation_keeps_the_mark(tmp_path: Path) -> None:
    """The version is published, and the next build confirms it."""
    mark = tmp_path / "m" / "3" / UNCONFIRMED_FILE
    mark.parent.mkdir(parents=True)
    mark.touch()
    with (
        session_with(FakeTracker(("confirm",)), tmp_path) as session,
        pytest.raises(TrackingError, match="published as version 3, but not confirmed in MLflow") as caught,
    ):
        session.confirm("m", 3, "content")
    assert (caught.value.code, mark.exists()) == ("tracking.unconfirmed", True)
    assert caught.value.hint == "start the server; the next `repogen build` confirms it"


def test_failure_that_cannot_be_recorded_is_noted(tmp_path: Path) -> None:
    """The model's own error stays."""
    with session_with(FakeTracker(("log_failed",)), tmp_path) as session:
        report = session.log_failed(FAILED)
    assert report.error == FAILED.error
    assert report.notes == ("this failure could not be recorded in MLflow: log_failed failed",)


def test_run_that_cannot_be_ended_is_an_error_of_the_build(tmp_path: Path) -> None:
    """The models' own reports stay."""
    with session_with(FakeTracker(("finish",)), tmp_path) as session:
        report = session.finish(BuildReport(tmp_path, (VERIFIED,)))
    assert report.error is not None
    assert (report.error.message, report.models, report.exit_code) == ("finish failed", (VERIFIED,), 8)


def test_runs_of_an_interrupted_build_are_ended(tmp_path: Path) -> None:
    """As interrupted, even if MLflow fails."""
    tracker = FakeTracker(("finish",))
    with pytest.raises(KeyboardInterrupt), session_with(tracker, tmp_path):
        raise KeyboardInterrupt
    assert tracker.calls == ["start m", "finish interrupted"]


def plan_of(tmp_path: Path) -> BuildPlan:
    """Return a tracked plan for one model."""
    spec = write_spec(tmp_path, m=PLAIN)
    server = Tracking(f"sqlite:///{tmp_path}/mlflow.db", "repogen", register=True, root=tmp_path)
    return BuildPlan(spec, BuildOptions(), spec.repository, ("m",), ("m",), {}, server)


def failing_connection(_: Tracking) -> BuildTracker:
    """Raise the error of a server that stopped responding."""
    message = "the server went away"
    raise TrackingError(message)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (PLAIN, "correct the tracking URI; --no-track builds without MLflow"),
        ("{source: {kind: mlflow, uri: models:/net/1}}", "correct the tracking URI"),
    ],
    ids=["torch", "mlflow"],
)
def test_build_without_tracking_is_suggested_where_it_works(tmp_path: Path, source: str, hint: str) -> None:
    """Not for a model that is downloaded from the same server."""
    spec = write_spec(tmp_path, m=source)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = Tracking(f"http://127.0.0.1:{bound.getsockname()[1]}", "repogen", register=True, root=tmp_path)
        plan = BuildPlan(spec, BuildOptions(), spec.repository, ("m",), ("m",), {}, server)
        opened = open_tracking(plan, RecordedProgress(), threading.Event())
        with pytest.raises(TrackingError) as caught, opened:
            pass
    assert caught.value.hint.endswith(hint)


def test_failed_connection_cancels_the_build_and_is_its_error(tmp_path: Path) -> None:
    """Not the KeyboardInterrupt with which the cancelled steps end."""
    cancelled = threading.Event()

    def build() -> None:
        with open_tracking(plan_of(tmp_path), RecordedProgress(), cancelled, failing_connection):
            assert cancelled.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(TrackingError, match="went away"):
        build()


def test_interrupt_with_a_connection_is_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C of the user."""
    opened = open_tracking(plan_of(tmp_path), RecordedProgress(), threading.Event(), lambda _: FakeTracker())
    with pytest.raises(KeyboardInterrupt), opened:
        raise KeyboardInterrupt


def test_untracked_build_has_no_session(tmp_path: Path) -> None:
    """And no preflight."""
    spec, progress = write_spec(tmp_path, m=PLAIN), RecordedProgress()
    plan = BuildPlan(spec, BuildOptions(), spec.repository, ("m",), ("m",), {})
    with open_tracking(plan, progress, threading.Event()) as session:
        assert session is None
    assert progress.steps == []


def test_version_of_an_earlier_build_is_confirmed(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """Its report gets a note; if that fails, the report gets the error."""
    spec = write_spec(tmp_path, m=PLAIN)
    publish_version(spec, "m", 2)
    current = ModelReport("m", Status.UNCHANGED, version=2)
    with session_with(FakeTracker(), spec.repository) as session:
        report = confirm_published(session, spec.repository, current, 2)
    assert report.notes == ("version 2 is now confirmed in MLflow's registry",)
    with session_with(FakeTracker(("confirm",)), spec.repository) as session:
        report = confirm_published(session, spec.repository, current, 2)
    assert report.error is not None
    assert report.error.code == "tracking.unconfirmed"
