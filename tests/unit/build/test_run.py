"""A plan is executed: a session is opened, pending models are built, all reports are returned."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.report import ModelReport, Status
from repogen.build import run as build_run
from repogen.build.pipeline import BuildOptions, build, plan_build
from repogen.build.tracking import TrackingSession
from repogen.errors import ExportError

from .conftest import PLAIN, FakeTracker, RecordedProgress, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from repogen.build.model_run import ModelRun
    from repogen.build.session import BuildSession


def verify(session: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
    """Verify a model; one named ``bad`` fails."""
    assert threads
    assert session.staging.is_dir()
    if run.name == "bad":
        message = "no exporter"
        raise ExportError(message)
    return lambda: run.report(Status.PUBLISHED)


def test_reports_of_built_and_current_models_are_in_the_order_of_the_spec(
    tmp_path: Path, publish_version: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed model does not stop the others, and decides the exit code."""
    monkeypatch.setattr(build_run, "verify_model", verify)
    spec = write_spec(tmp_path, bad=PLAIN, current=PLAIN, new=PLAIN)
    publish_version(spec, "current")
    progress = RecordedProgress()
    report = build(spec, BuildOptions(server=None), progress)
    assert [(model.name, model.status) for model in report.models] == [
        ("bad", Status.FAILED),
        ("current", Status.UNCHANGED),
        ("new", Status.PUBLISHED),
    ]
    assert report.exit_code == 3
    assert progress.steps[-1] == ": failed"  # the build's own line does not end as done
    assert {"bad: failed", "new: done"} <= set(progress.steps)
    assert list(tmp_path.glob(".*.repogen-stage")) == []


def test_build_with_nothing_pending_confirms_versions_only(
    tmp_path: Path, publish_version: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No staging directory and no server; the tracking session is finished with the whole report."""
    tracker = FakeTracker()
    spec = write_spec(tmp_path, m=PLAIN)
    publish_version(spec, "m", in_registry=True)
    plan = plan_build(spec, BuildOptions(tracking_uri="sqlite:///mlflow.db"))

    @contextmanager
    def open_tracking(*_: object) -> Iterator[TrackingSession]:
        assert plan.tracking is not None
        with TrackingSession(plan.tracking, plan.repository, {}, lambda: None, lambda _: tracker) as session:
            yield session

    monkeypatch.setattr(build_run, "open_tracking", open_tracking)
    report = build_run.run_plan(replace(plan, unconfirmed=(("m", 1),)), RecordedProgress())
    assert report.models[0].notes == ("version 1 is now confirmed in MLflow's registry",)
    assert tracker.calls == ["confirm m 1 None", "finish complete"]
