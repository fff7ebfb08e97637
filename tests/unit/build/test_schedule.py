"""Order, holding back and isolation of failures among the models of one build."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.build import plan, schedule
from repogen.build.costs import record_costs
from repogen.build.schedule import RETRIED, Room, build_models
from repogen.errors import ExportError, PublishError

from .conftest import PLAIN, RecordedProgress, ensemble_of, session_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.build.model_run import ModelRun
    from repogen.build.session import BuildSession
    from repogen.spec.models import Spec


class Builder:
    """A ``Verify`` that does nothing but record its calls.

    Args:
        verify_errors: What verifying a model raises, by name.
        publish_errors: What publishing one raises.
    """

    def __init__(
        self,
        verify_errors: dict[str, BaseException] | None = None,
        publish_errors: dict[str, BaseException] | None = None,
    ) -> None:
        """Begin without calls."""
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self._verify_errors = verify_errors or {}
        self._publish_errors = publish_errors or {}

    def __call__(self, session: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
        """Verify a model."""
        assert session.plan.pending
        self.calls.append(f"verify {run.name}")
        self.threads.add(threads)
        if run.name in self._verify_errors:
            raise self._verify_errors[run.name]
        return lambda: self._publish(run)

    def _publish(self, run: ModelRun) -> ModelReport:
        self.calls.append(f"publish {run.name}")
        if run.name in self._publish_errors:
            raise self._publish_errors[run.name]
        return run.report(Status.PUBLISHED)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return an ensemble of two models, and a model that is in none."""
    return write_spec(tmp_path, e=ensemble_of("a", "b"), a=PLAIN, b=PLAIN, other=PLAIN)


def test_steps_are_published_after_their_ensemble_was_verified(spec: Spec, tmp_path: Path) -> None:
    """Published before, a step could break the ensemble that is being served."""
    builder = Builder()
    reports = build_models(session_of(spec, tmp_path), builder)
    assert list(reports) == ["e", "a", "b", "other"]
    assert {report.status for report in reports.values()} == {Status.PUBLISHED}
    assert builder.calls == [
        "verify a", "verify b", "verify e", "verify other", "publish other", "publish a", "publish b", "publish e",
    ]  # fmt: skip


def test_steps_of_a_failed_ensemble_are_verified_but_not_published(spec: Spec, tmp_path: Path) -> None:
    """Each report says why, and how to publish the model alone."""
    builder = Builder({"e": ExportError("no")})
    reports = build_models(session_of(spec, tmp_path), builder)
    assert [call for call in builder.calls if call.startswith("publish")] == ["publish other"]
    error = reports["a"].error
    assert error is not None
    assert error.message == "verified but not published: the ensemble e, which uses it, failed"
    assert (error.code, error.hint, error.exit_code) == (
        "ensemble.held-back", "fix e, or build this model alone with `--model a`", 3,
    )  # fmt: skip


def test_full_disk_is_an_error_of_its_model(spec: Spec, tmp_path: Path) -> None:
    """Any step may be the first whose files do not fit; it is not a bug, and other models are built."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "stage/work/other")
    reports = build_models(session_of(spec, tmp_path), Builder({"other": full}))
    error = reports["other"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("stage.write", 7)
    assert "No space left on device (stage/work/other)" in error.message
    assert reports["a"].status is Status.PUBLISHED


def test_ensemble_of_a_failed_step_is_not_built(spec: Spec, tmp_path: Path) -> None:
    """Its error names the step; the other step is held back."""
    builder = Builder({"a": ExportError("no:\nmore")})
    reports = build_models(session_of(spec, tmp_path), builder)
    assert "verify e" not in builder.calls
    error = reports["e"].error
    assert error is not None
    assert (error.code, error.message, error.hint) == (
        "ensemble.step", "its step a was not built: no", "fix a first",
    )  # fmt: skip
    assert reports["b"].error is not None
    assert reports["other"].status is Status.PUBLISHED


def test_ensemble_is_not_published_if_a_step_could_not_be(spec: Spec, tmp_path: Path) -> None:
    """It would be served with the step's old version."""
    builder = Builder(publish_errors={"b": PublishError("disk full")})
    reports = build_models(session_of(spec, tmp_path), builder)
    assert "publish e" not in builder.calls
    assert [name for name, report in reports.items() if report.error is None] == ["a", "other"]


def test_dry_run_holds_nothing_back(spec: Spec, tmp_path: Path) -> None:
    """What "publishes" in a dry run only returns the report."""
    reports = build_models(session_of(spec, tmp_path, dry_run=True), Builder())
    assert all(report.error is None for report in reports.values())


def test_unexpected_exception_fails_one_model_only(spec: Spec, tmp_path: Path) -> None:
    """With a traceback in the details, and the model's place in the spec."""
    reports = build_models(session_of(spec, tmp_path), Builder({"other": ValueError("bug")}))
    error = reports["other"].error
    assert error is not None
    assert (error.code, error.message, error.exit_code) == ("bug", "unexpected ValueError('bug')", 70)
    assert "Traceback" in error.details
    assert reports["e"].status is Status.PUBLISHED


@pytest.mark.parametrize(
    ("where", "suffix"), [("", ":5"), ("models.other.inputs", ":5"), ("models.py:7", "models.py:7")]
)
def test_error_points_to_the_spec_unless_it_has_a_line(spec: Spec, tmp_path: Path, where: str, suffix: str) -> None:
    """A key path becomes the key's line; a line in the user's code stays."""
    reports = build_models(session_of(spec, tmp_path), Builder({"other": ExportError("no", where=where)}))
    error = reports["other"].error
    assert error is not None
    assert suffix in error.where


def test_several_models_are_built_at_a_time(spec: Spec, tmp_path: Path) -> None:
    """Two models wait for each other here, so one at a time would not end."""
    barrier = threading.Barrier(2, timeout=30)

    def verify(_: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
        assert threads >= 1
        if run.name in {"a", "b"}:
            barrier.wait()
        return lambda: run.report(Status.PUBLISHED)

    reports = build_models(session_of(spec, tmp_path, jobs=2), verify)
    assert all(report.error is None for report in reports.values())


KILLED = ExportError("the worker was killed by SIGKILL in the step 'export'", code="worker.killed")


@pytest.mark.parametrize(("jobs", "attempts"), [(4, 2), (1, 1)])
def test_model_whose_worker_was_killed_is_built_again_alone(
    spec: Spec, tmp_path: Path, jobs: int, attempts: int
) -> None:
    """Once, and only if other models were built at the same time: Linux kills the process that has the most memory."""
    started: list[str] = []
    running: set[str] = set()
    alone: list[bool] = []
    meeting = threading.Barrier(min(jobs, 3), timeout=60)

    def verify(_: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
        assert threads >= 1
        started.append(run.name)
        running.add(run.name)
        try:
            if run.name == "e":
                return lambda: run.report(Status.PUBLISHED)
            if started.count(run.name) == 1:
                meeting.wait()
            if run.name == "other":
                alone.append(running == {"other"})
                raise KILLED
            return lambda: run.report(Status.PUBLISHED)
        finally:
            running.remove(run.name)

    reports = build_models(session_of(spec, tmp_path, jobs=jobs), verify)
    assert started.count("other") == attempts
    assert alone[-1]
    error = reports["other"].error
    assert error is not None
    assert error.code == "worker.killed"
    assert reports["other"].notes == ((RETRIED,) if attempts == 2 else ())
    assert {reports[name].status for name in "abe"} == {Status.PUBLISHED}


class StoppableTriton:
    """A server that records that it was stopped."""

    stopped = False

    def wait(self) -> object:
        """Not used."""
        raise NotImplementedError

    def stop(self) -> None:
        """Record it."""
        self.stopped = True


def test_interrupt_cancels_the_session(spec: Spec, tmp_path: Path) -> None:
    """No further step begins, and the server is stopped."""
    triton = StoppableTriton()
    base = session_of(spec, tmp_path)
    session = type(base)(base.plan, RecordedProgress(), tmp_path, triton, None, base.cancelled)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        build_models(session, Builder({"a": KeyboardInterrupt()}))
    assert session.cancelled.is_set()
    assert triton.stopped
    assert isinstance(session.progress, RecordedProgress)
    assert ": finished 0 of 4 models" in session.progress.steps
    assert ": finished 4 of 4 models" not in session.progress.steps  # `a` is not finished


def test_progress_counts_models_and_names_how_each_ended(spec: Spec, tmp_path: Path) -> None:
    """A model is done once it is published, and a failed one says so."""
    session = session_of(spec, tmp_path)
    build_models(session, Builder({"other": ExportError("no")}))
    assert isinstance(session.progress, RecordedProgress)
    steps = session.progress.steps
    assert [step for step in steps if step.startswith(": ")] == [
        f": finished {number} of 4 models" for number in range(5)
    ]
    assert {"other: failed", "a: done", "b: done", "e: done"} <= set(steps)
    assert steps.index(": finished 4 of 4 models") < steps.index("e: done")


def test_models_wait_for_memory() -> None:
    """What is free is not assigned twice; a model that is alone does not wait, and neither does one without a need."""
    free = [100]
    room = Room(lambda: free[0])
    entered: list[str] = []

    def build(name: str, memory: int) -> None:
        with room.shared(memory):
            entered.append(name)

    with room.shared(500), room.shared(0):  # the first one is alone
        thread = threading.Thread(target=build, args=("waits", 1), daemon=True)
        thread.start()
        thread.join(0.2)
        assert entered == []
    thread.join(60)
    assert entered == ["waits"]
    with room.shared(60):
        with room.shared(40):
            pass
        free[0] = 30  # another program uses memory
        thread = threading.Thread(target=build, args=("later", 40), daemon=True)
        thread.start()
        thread.join(0.2)
        assert entered == ["waits"]
        free[0] = 40
        thread.join(60)
    assert entered == ["waits", "later"]


def test_automatic_jobs_use_recorded_memory(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models that fit are verified together, and the third one alone."""
    monkeypatch.setattr(plan, "available_processors", lambda: 4)
    monkeypatch.setattr(schedule, "available_memory", lambda: 25 * 10**8)
    records = [
        ModelReport(name, Status.PUBLISHED, seconds={"export": 1.0}, peak_rss_bytes=memory * 10**9)
        for name, memory in (("a", 1), ("b", 1), ("e", 1), ("other", 3))
    ]
    record_costs(BuildReport(spec.repository, tuple(records)), spec.root)
    running: list[str] = []
    together: list[set[str]] = []
    lock = threading.Lock()

    def verify(session: BuildSession, run: ModelRun, threads: int) -> Callable[[], ModelReport]:
        assert threads == 1
        with lock:
            running.append(run.name)
            together.append(set(running))
        threading.Event().wait(0.1)
        with lock:
            running.remove(run.name)
        assert session.options.jobs == "auto"
        return lambda: run.report(Status.PUBLISHED)

    reports = build_models(session_of(spec, tmp_path / "staging", jobs="auto"), verify)
    assert all(report.error is None for report in reports.values())
    assert {"other"} in together
    assert all(len(names) == 1 for names in together if "other" in names)
    assert all(len(names) <= 2 for names in together)
