"""Publishing a verified version: logged before, confirmed after, and never against a served ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from repogen.artifacts.built_model import BuildDiagnostics
from repogen.artifacts.report import Status
from repogen.artifacts.tracking import Tracking
from repogen.artifacts.versions import ModelConfig, Provenance
from repogen.build import steps
from repogen.build.model_run import ModelRun
from repogen.build.steps import publish_model, verify_model
from repogen.build.tracking import TrackingSession
from repogen.errors import ConfigError, ExportError, PublishError, RepogenError, SourceError, TrackingError
from repogen.repository.hold import hold_text
from repogen.repository.stage import stage_version
from repogen.triton_config.render.template import render
from repogen.worker.job import Job, Outcome

from .conftest import PLAIN, SIGNATURE, FakeTracker, built_model, session_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.versions import StagedVersion
    from repogen.build.session import BuildSession
    from repogen.spec.models import Spec

ENSEMBLE = """\
name: "e"
platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]
ensemble_scheduling {
  step [{ model_name: "m" model_version: -1 input_map { key: "%s" value: "IN" } output_map { key: "y" value: "OUT" } }]
}
"""
CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 2 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 2 ] }]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec with one model."""
    return write_spec(tmp_path, m=PLAIN)


def stage(spec: Spec, root: Path) -> StagedVersion:
    """Return a staged version of the model; its graph is a few bytes."""
    (root / "repository").mkdir(parents=True)
    for name in ("model.onnx", "golden.json", "golden.npz"):
        (root / name).write_bytes(name.encode())
    built = built_model(root)
    origin = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 9, 4, 3, 0, 0.0, 0.0)
    return stage_version(root, spec.repository, ModelConfig("m", CONFIG, 8, SIGNATURE), built.artifact, root, origin)


@pytest.fixture
def tracker() -> FakeTracker:
    """Return a tracker that works."""
    return FakeTracker()


@pytest.fixture
def tracking(spec: Spec, tracker: FakeTracker) -> Iterator[TrackingSession]:
    """Return a tracking session with a fake tracker."""
    server = Tracking("sqlite:///unused.db", "repogen", register=True, root=spec.root)
    with TrackingSession(server, spec.repository, spec.models, lambda: None, lambda _: tracker) as session:
        yield session


def run_of(session: BuildSession) -> ModelRun:
    """Return a run of the model."""
    return ModelRun("m", session.progress, session.cancelled)


def test_version_is_logged_published_and_confirmed_in_this_order(
    spec: Spec, tmp_path: Path, tracking: TrackingSession, tracker: FakeTracker
) -> None:
    """The report that is logged is that of a verified model."""
    session = session_of(spec, tmp_path / "stage", tracking=tracking)
    staged = stage(spec, session.staging)
    report = publish_model(session, run_of(session), staged, built_model(tmp_path))
    assert (report.status, report.version, report.registry_version) == (Status.PUBLISHED, 1, 7)
    assert tracker.calls == ["start m", "log m verified", "confirm m 1 7", "log_page m"]
    assert session.progress.steps == ["m: track", "m: publish", "m: confirm"]  # type: ignore[attr-defined]
    assert list(report.seconds) == ["track", "publish", "confirm"]
    assert (spec.repository / "m" / "1" / "model.onnx").exists()


def test_nothing_is_published_if_logging_fails(
    spec: Spec, tmp_path: Path, tracking: TrackingSession, tracker: FakeTracker
) -> None:
    """A version that the model registry does not have cannot be promoted."""
    tracker.failing = ("log",)
    session = session_of(spec, tmp_path / "stage", tracking=tracking)
    staged = stage(spec, session.staging)
    with pytest.raises(TrackingError, match="log failed"):
        publish_model(session, run_of(session), staged, built_model(tmp_path))
    assert not spec.repository.exists()


def ensemble_in_repository(spec: Spec, input_name: str) -> None:
    """Write an ensemble that repogen does not build, and that uses the model."""
    directory = spec.repository / "e" / "1"
    directory.mkdir(parents=True)
    (directory.parent / "config.pbtxt").write_text(ENSEMBLE % input_name)


def test_ensemble_that_still_loads_is_noted(spec: Spec, tmp_path: Path) -> None:
    """It was not tested with the new version."""
    ensemble_in_repository(spec, "x")
    session = session_of(spec, tmp_path / "stage")
    report = publish_model(session, run_of(session), stage(spec, session.staging), built_model(tmp_path))
    assert report.notes == ("e uses it and was not built again",)


def test_version_under_a_hold(spec: Spec, tmp_path: Path) -> None:
    """It is published and not served, so no ensemble breaks; a note says so, and config.pbtxt is unchanged."""
    first = session_of(spec, tmp_path / "first")
    publish_model(first, run_of(first), stage(spec, first.staging), built_model(tmp_path))
    ensemble_in_repository(spec, "renamed")
    config = spec.repository / "m" / "config.pbtxt"
    config.write_text(hold_text(config.read_text(), 1))
    held = config.read_bytes()
    session = session_of(spec, tmp_path / "second")
    report = publish_model(session, run_of(session), stage(spec, session.staging), built_model(tmp_path))
    note = (
        "the new version is not served: version 1 is held and served; `--release` of `repogen rollback` ends the hold"
    )
    assert (report.version, report.notes, config.read_bytes() == held) == (2, (note,), True)


def test_version_that_breaks_an_ensemble_is_rejected(spec: Spec, tmp_path: Path) -> None:
    """Triton would no longer load the ensemble; the hint names the option that allows it."""
    ensemble_in_repository(spec, "renamed")
    session = session_of(spec, tmp_path / "stage")
    staged = stage(spec, session.staging)
    with pytest.raises(PublishError, match="e, an ensemble in the repository, would no longer load") as caught:
        publish_model(session, run_of(session), staged, built_model(tmp_path))
    assert "--allow-breaking" in caught.value.hint
    assert not (spec.repository / "m").exists()

    allowed = session_of(spec, tmp_path / "stage", allow_breaking=True)
    report = publish_model(allowed, run_of(allowed), staged, built_model(tmp_path))
    assert (report.version, len(report.notes)) == (1, 1)
    assert "it no longer loads" in report.notes[0]


def test_failed_worker_fails_the_model(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has the options of the build, and a working directory in the staging directory."""
    jobs = []

    def run_worker(job: Job, *_: object) -> Outcome:
        jobs.append(job)
        return Outcome(BuildDiagnostics(), ExportError("no exporter"))

    monkeypatch.setattr(steps, "run_worker", run_worker)
    session = session_of(spec, tmp_path / "stage", try_all_exporters=True)
    session.private_repository.mkdir(parents=True)
    with pytest.raises(ExportError, match="no exporter"):
        verify_model(session, run_of(session), threads=3)
    (job,) = jobs
    assert (job.name, job.threads, job.try_all_exporters, job.work_dir.parent.parent) == (
        "m",
        3,
        True,
        session.private_directory,
    )


@pytest.mark.parametrize("is_replaced", [True, False])
def test_error_of_a_worker_that_read_a_replaced_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    """Its message and its notes may quote a private file; the report is stored where others can read it."""
    weights = tmp_path / "shared" / "w.safetensors"
    weights.parent.mkdir()
    weights.touch()
    spec = write_spec(tmp_path, m=PLAIN.replace("build}", "build, weights: shared/w.safetensors}"))
    weights.parent.chmod(0o777)

    def run_worker(*_: object) -> Outcome:
        if is_replaced:
            weights.rename(weights.with_name("moved"))
            weights.with_name("moved").rename(weights)
        error = SourceError("could not convert string 'SECRET'", code="source.user-code")
        return Outcome(BuildDiagnostics(notes=("SECRET",)), error)

    monkeypatch.setattr(steps, "run_worker", run_worker)
    session = session_of(spec, tmp_path / "stage")
    session.private_repository.mkdir(parents=True)
    run = run_of(session)
    with pytest.raises(RepogenError) as caught:
        verify_model(session, run, threads=1)
    assert caught.value.code == ("source.replaced" if is_replaced else "source.user-code")
    report = run.report(Status.FAILED, caught.value.record)
    assert ("SECRET" in str(report)) is not is_replaced


@pytest.mark.parametrize("step", ["run_worker", "stage_version"])
def test_input_that_is_replaced_during_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Nothing of the build is kept in the cache or published if another user replaced a file before or at a step."""
    weights = tmp_path / "shared" / "w.safetensors"
    weights.parent.mkdir()
    weights.touch()
    spec = write_spec(tmp_path, m=PLAIN.replace("build}", "build, weights: shared/w.safetensors}"))
    weights.parent.chmod(0o777)
    staged = stage(spec, tmp_path / "staged")
    results = {"run_worker": Outcome(BuildDiagnostics(), built_model(tmp_path)), "stage_version": staged}

    def after_replacing(name: str) -> Any:
        if name == step:
            weights.rename(weights.with_name("moved"))
            weights.with_name("moved").rename(weights)
        return results[name]

    for name in results:
        monkeypatch.setattr(steps, name, lambda *_, name=name, **__: after_replacing(name))
    cache_writes = Mock()
    for name, stub in {
        "provenance": Mock(),
        "attest": Mock(),
        "store_verified": cache_writes,
        "require_admitted": Mock(),
    }.items():
        monkeypatch.setattr(steps, name, stub)
    session = replace(session_of(spec, tmp_path / "stage"), cache=Mock(entries=Mock(return_value=())))
    session.private_repository.mkdir(parents=True)
    with pytest.raises(SourceError) as caught:
        verify_model(session, run_of(session), threads=1)
    assert caught.value.code == "source.replaced"
    assert cache_writes.called is (step == "stage_version")


@pytest.mark.parametrize("overrides", [True, False])
def test_only_templates_of_a_spec_render_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, overrides: bool
) -> None:
    """A template of the spec cannot use up the time and memory of the build; a build without one starts no process."""
    started: list[str] = []

    def render_template(_work: Path, _cancelled: object, *args: Any) -> str:
        started.append(args[-1])
        return render(*args)

    def stage_version(_root: Path, _repository: Path, config: ModelConfig, *_: object, **__: object) -> None:
        raise PublishError(config.text)

    monkeypatch.setattr(steps, "render_template", render_template)
    monkeypatch.setattr(steps, "stage_version", stage_version)
    monkeypatch.setattr(steps, "provenance", lambda *_: None)
    monkeypatch.setattr(steps, "run_worker", lambda *_: Outcome(BuildDiagnostics(), built_model(tmp_path)))
    session = session_of(write_spec(tmp_path, m=PLAIN), tmp_path / "stage")
    session.private_repository.mkdir(parents=True)
    if overrides:
        (tmp_path / "templates").mkdir()
        spec = replace(session.spec, templates=tmp_path / "templates")
        session = replace(session, plan=replace(session.plan, spec=spec))
    with pytest.raises(PublishError, match='name: "m"'):
        verify_model(session, run_of(session), threads=1)
    assert started == (["config.pbtxt.j2"] if overrides else [])


def test_version_is_not_moved_next_to_code(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would run a library in the published directory instead of the model, for example after ``--adopt``."""
    (spec.repository / "m" / "1").mkdir(parents=True)
    (spec.repository / "m" / "1" / "libtriton_onnxruntime.so").touch()
    monkeypatch.setattr(steps, "provenance", lambda *_: None)
    monkeypatch.setattr(steps, "attest", lambda *_: None)
    monkeypatch.setattr(steps, "stage_version", lambda *_, **__: stage(spec, tmp_path / "stage"))
    monkeypatch.setattr(steps, "run_worker", lambda *_: Outcome(BuildDiagnostics(), built_model(tmp_path)))
    session = session_of(spec, tmp_path / "work")
    session.private_repository.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"libtriton_onnxruntime\.so is a file that Triton would run as code"):
        verify_model(session, run_of(session), threads=1)
