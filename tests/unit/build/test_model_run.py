"""The report of one model is assembled from what its steps returned, also if one of them failed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from repogen.artifacts.built_model import BuildDiagnostics, ExportAttempt
from repogen.artifacts.report import ModelReport, Status
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.artifacts.tracking import Tracked
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, PublishedVersion, StagedVersion
from repogen.build.model_run import ModelRun, Notes
from repogen.errors import ErrorRecord, ExportError
from repogen.worker.job import Outcome

from .conftest import SIGNATURE, RecordedProgress, built_model

ATTEMPT = ExportAttempt("dynamo", ok=True, reason="", seconds=1.0)
DIAGNOSTICS = BuildDiagnostics(
    notes=("a note",), attempts=(ATTEMPT,), seconds={"source": 0.25, "export": 0.5}, peak_rss_bytes=99
)
ERROR = ErrorRecord("x", "failed", exit_code=3)


def new_run() -> ModelRun:
    """Return a run without results."""
    return ModelRun("m", RecordedProgress(), threading.Event())


def staged() -> StagedVersion:
    """Return a staged version; its files do not exist."""
    origin = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 9, 4, 3, 0, 0.0, 0.0)
    return StagedVersion("m", Path(), 1, ModelConfig("m", "", 8, SIGNATURE), Manifest("m", 8, SIGNATURE, (), origin))


def test_report_without_results_has_only_defaults() -> None:
    """A model that failed before its first step."""
    assert new_run().report(Status.FAILED, ERROR) == ModelReport("m", Status.FAILED, error=ERROR)


def test_report_of_a_failed_worker_has_its_diagnostics() -> None:
    """What the worker learned before its error is in the report."""
    run = new_run()
    with pytest.raises(ExportError, match="no exporter"):
        run.work(lambda: Outcome(DIAGNOSTICS, ExportError("no exporter")))
    report = run.report(Status.FAILED, ERROR)
    assert (report.notes, report.attempts, report.peak_rss_bytes) == (("a note",), (ATTEMPT,), 99)
    assert list(report.seconds) == ["worker", "source", "export"]
    assert report.exporter == ""


def test_time_of_the_worker_excludes_its_steps() -> None:
    """The steps that the worker times itself are listed next to the time of its process."""
    run = new_run()
    run.work(lambda: Outcome(DIAGNOSTICS, built_model(Path())))
    seconds = run.report(Status.VERIFIED).seconds
    assert seconds["worker"] < 0  # the fake worker took no time
    assert sum(seconds.values()) == pytest.approx(0, abs=0.2)


def test_report_has_the_results_of_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker, staging, smoke test, tracking and publishing."""
    monkeypatch.setattr(Manifest, "sha256", "digest")
    run, smoke = new_run(), SmokeReport("m", 1, "embedded", "2.51.0", "", (SmokeCheck("golden", passed=True),))
    run.work(lambda: Outcome(DIAGNOSTICS, built_model(Path())))
    run.step("stage", staged)
    run.step("smoke", lambda: smoke)
    run.record(Notes(("e uses it",)))
    run.step("track", lambda: Tracked("run", 7))
    run.step("publish", lambda: PublishedVersion("m", 3, Path(), ""))
    report = run.report(Status.PUBLISHED)
    assert (report.version, report.registry_version, report.max_batch_size, report.smoke) == (3, 7, 8, smoke)
    assert (report.exporter, report.opset, report.nodes_exported, report.nodes_optimized) == ("dynamo", 20, 4, 3)
    assert (report.sha256, report.notes) == ("digest", ("a note", "e uses it"))
    assert list(report.seconds) == ["worker", "source", "export", "stage", "smoke", "track", "publish"]


def test_failed_step_is_timed_and_has_no_result() -> None:
    """Its time tells which step failed."""
    run = new_run()
    with pytest.raises(ZeroDivisionError):
        run.step("stage", lambda: 1 // 0)
    report = run.report(Status.FAILED, ERROR)
    assert list(report.seconds) == ["stage"]
    assert report.max_batch_size is None


def test_no_step_begins_after_the_build_was_cancelled() -> None:
    """Publishing least of all."""
    progress, cancelled = RecordedProgress(), threading.Event()
    run = ModelRun("m", progress, cancelled)
    run.step("stage", str)
    cancelled.set()
    with pytest.raises(KeyboardInterrupt):
        run.step("publish", str)
    assert progress.steps == ["m: stage"]
