"""A model that an executor builds: what it receives, what comes back, and what is published."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from pydantic_core import to_json

from repogen.artifacts.built_model import BuildDiagnostics, OnnxArtifact
from repogen.artifacts.report import Status
from repogen.artifacts.serving import SmokeReport
from repogen.build import node, steps
from repogen.build.fingerprint import block_digest
from repogen.build.model_run import ModelRun
from repogen.build.node import build_order
from repogen.build.order import ORDER, ORDER_FILE, Order, Result
from repogen.build.steps import verify_model
from repogen.errors import ExportError, SpecError
from repogen.executors import process
from repogen.executors.interface import Task, TaskLostError
from repogen.spec.models import ResourcesSpec
from repogen.worker.job import Job, Outcome
from tests.support.graphs import model, value

from .conftest import PLAIN, RecordedProgress, built_model, ensemble_of, session_of, write_spec

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from repogen.build.session import BuildSession
    from repogen.spec.models import Spec


class InThisProcess:
    """An executor that builds an order here.

    Attributes:
        orders: The orders that it received.
        change: Changes a result, as a test needs it.
    """

    jobs = 3

    def __init__(self, root: Path, change: Callable[[Result], Result] = lambda result: result) -> None:
        """Run tasks in ``root``."""
        self.orders: list[Order] = []
        self.tasks: list[Task] = []
        self.change = change
        self._root = root

    def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
        """Build the order, and write the result as the process of a task does."""
        assert not cancelled.is_set()
        order = ORDER.validate_json((task.inputs / ORDER_FILE).read_bytes())
        self.orders.append(order)
        self.tasks.append(task)
        progress("export (here)")
        result = self.change(build_order(order, self._root, task.inputs, task.outputs, RecordedProgress()))  # type: ignore[arg-type] # steps only
        (task.outputs / process.RESULT).write_bytes(to_json(result, by_alias=True, inf_nan_mode="constants"))


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec with one model."""
    return write_spec(tmp_path / "project", m=PLAIN.replace("}}}", "}}, resources: {cpus: 4, memory_mb: 900}}"))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Replace the worker process: it writes a small graph. Returns the jobs that it received."""
    received: list[Job] = []

    def run_worker(job: Job, *_: object) -> Outcome:
        received.append(job)
        graph = model(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            [value("x", ["batch", 2])],
            [value("y", ["batch", 2])],
            opset=20,
            ir=9,
        )
        onnx.save_model(graph, job.work_dir / "model.onnx")
        for name in ("golden.json", "golden.npz"):
            (job.work_dir / name).write_text("golden")
        return Outcome(BuildDiagnostics(notes=("note",), seconds={"export": 2.0}), built_model(job.work_dir))

    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    monkeypatch.setattr(steps, "run_worker", run_worker)
    return received


def session_with(spec: Spec, staging: Path, executor: InThisProcess, **options: Any) -> BuildSession:
    """Return a session that builds elsewhere, without a Triton here."""
    session = replace(session_of(spec, staging, **options), executor=executor)
    session.private_repository.mkdir(parents=True)
    return session


def test_model_that_was_built_elsewhere_is_published_here(spec: Spec, tmp_path: Path, jobs: list[Job]) -> None:
    """The same files as of a local build; the repository is not written by the other machine."""
    executor = InThisProcess(spec.root)
    session = session_with(spec, tmp_path / "stage", executor, server=None)
    run = ModelRun("m", session.progress, session.cancelled)
    publish = verify_model(session, run, threads=1)
    assert not spec.repository.exists()
    report = publish()
    assert (report.status, report.notes, report.from_cache) == (Status.PUBLISHED, ("note",), False)
    assert {"worker", "export", "configure", "stage", "publish"} <= report.seconds.keys()
    (job,), (task,), (order,) = jobs, executor.tasks, executor.orders
    assert (job.threads, task.cpus, task.memory_mb, task.gpus) == (4, 4, 900, 0)
    assert job.root == spec.root
    assert task.inputs.is_relative_to(session.private_directory)
    assert task.outputs.is_relative_to(session.private_directory)
    assert (order.release, order.server, order.use_cache) == (spec.release, None, True)
    assert "m: export (here)" in session.progress.steps  # type: ignore[attr-defined] # the test's own

    local = session_of(replace(spec, repository=tmp_path / "local"), tmp_path / "local-stage", server=None)
    local.private_repository.mkdir(parents=True)
    verify_model(local, ModelRun("m", local.progress, local.cancelled), threads=4)()
    for path in ("config.pbtxt", "1/manifest.json", "1/model.onnx", "1/golden.npz"):
        assert (spec.repository / "m" / path).read_bytes() == (tmp_path / "local" / "m" / path).read_bytes()


class NoTriton:
    """A Triton that must not be started."""

    def wait(self) -> Any:
        """Fail."""
        raise ExportError("tested here")

    def stop(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.usefixtures("jobs")
def test_only_what_was_tested_elsewhere_is_not_tested_here(spec: Spec, tmp_path: Path, *, same: bool) -> None:
    """Other bytes are tested again."""
    smoke = SmokeReport("m", 1, "embedded", "2.51.0", "", (), (), None)

    def tested(result: Result) -> Result:
        return replace(result, smoke=smoke, content=result.content if same else "0" * 64)

    session = session_with(spec, tmp_path / "stage", InThisProcess(spec.root, tested), server=None)
    session = replace(session, triton=NoTriton())
    run = ModelRun("m", session.progress, session.cancelled)
    if same:
        assert verify_model(session, run, threads=1)().smoke == smoke
    else:
        with pytest.raises(ExportError, match="tested here"):
            verify_model(session, run, threads=1)


def test_failure_elsewhere_keeps_its_code(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the diagnostics."""
    failure = ExportError("no exporter", "hint", code="export.failed", where="models.py:5")
    outcome = Outcome(BuildDiagnostics(notes=("tried",)), failure)
    monkeypatch.setattr(steps, "run_worker", lambda *_: outcome)
    session = session_with(spec, tmp_path / "stage", InThisProcess(spec.root), server=None)
    run = ModelRun("m", session.progress, session.cancelled)
    with pytest.raises(ExportError, match="no exporter") as caught:
        verify_model(session, run, threads=1)
    assert (caught.value.code, caught.value.hint, caught.value.where) == ("export.failed", "hint", "models.py:5")
    assert run.report(Status.FAILED).notes == ("tried",)


@pytest.mark.usefixtures("jobs")
def test_machine_with_other_versions_is_rejected(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest would state the versions of this one."""
    monkeypatch.setattr(node, "build_environment", lambda: {"torch": "1.0", "repogen's code": "x"})
    session = session_with(spec, tmp_path / "stage", InThisProcess(spec.root), server=None)
    with pytest.raises(ExportError, match=r"has .*torch 1\.0 instead of") as caught:
        verify_model(session, ModelRun("m", session.progress, session.cancelled), threads=1)
    assert caught.value.code == "executor.environment"


@pytest.mark.usefixtures("jobs")
def test_file_outside_of_the_spec_s_directory_is_rejected(tmp_path: Path) -> None:
    """Before a task starts."""
    (tmp_path / "x.npz").write_bytes(b"")
    spec = write_spec(tmp_path / "project", m=PLAIN.replace("inputs", "examples: ../x.npz, inputs"))
    session = session_with(spec, tmp_path / "stage", InThisProcess(spec.root), server=None)
    with pytest.raises(SpecError, match="is not in the directory of the spec") as caught:
        verify_model(session, ModelRun("m", session.progress, session.cancelled), threads=1)
    assert caught.value.code == "executor.outside"


@pytest.mark.parametrize("content", [b"", b"{", b"{}"])
def test_result_that_cannot_be_read(spec: Spec, tmp_path: Path, content: bytes) -> None:
    """A machine may send anything."""

    class Broken(InThisProcess):
        def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
            assert not cancelled.is_set()
            progress("export")
            (task.outputs / process.RESULT).write_bytes(content)

    session = session_with(spec, tmp_path / "stage", Broken(spec.root), server=None)
    with pytest.raises(TaskLostError):
        verify_model(session, ModelRun("m", session.progress, session.cancelled), threads=1)


def _replace_result(outputs: Path, plant: Callable[[Path], object]) -> None:
    (outputs / process.RESULT).unlink()
    plant(outputs / process.RESULT)


@pytest.mark.parametrize(
    ("plant", "error", "message"),
    [
        (lambda o: (o / "artifact-..").touch(), SpecError, "named 'artifact-..'"),
        (lambda o: (o / "golden-").touch(), SpecError, "named 'golden-'"),
        (lambda o: (o / "golden-model.onnx").touch(), SpecError, r"named '(golden|artifact)-model\.onnx'"),
        (lambda o: (o / "artifact-golden-golden.json").touch(), SpecError, "golden-golden.json'"),
        (lambda o: (o / "link").symlink_to("/etc/passwd"), SpecError, "named 'link', which is not a regular file"),
        (lambda o: os.mkfifo(o / "fifo"), SpecError, "named 'fifo', which is not a regular file"),
        (lambda o: (o / "directory").mkdir(), SpecError, "named 'directory', which is not a regular file"),
        (lambda o: (o / "artifact-model.onnx").unlink(), TaskLostError, r"did not return the file 'model\.onnx'"),
        (lambda o: (o / "golden-golden.json").unlink(), TaskLostError, r"did not return the file 'golden\.json'"),
        (lambda o: _replace_result(o, Path.mkdir), TaskLostError, "cannot be read"),
        (lambda o: _replace_result(o, os.mkfifo), TaskLostError, "cannot be read: .*not a regular file"),
        (lambda o: _replace_result(o, lambda path: path.symlink_to("/dev/zero")), TaskLostError, "not a regular file"),
        (lambda o: _replace_result(o, lambda path: path.write_bytes(b'{"content": "\\u0000"}')), TaskLostError, "NUL"),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_hostile_files(
    spec: Spec, tmp_path: Path, plant: Callable[[Path], object], error: type[Exception], message: str
) -> None:
    """Whatever an executor leaves in the output directory, nothing outside of it is read, written or published."""

    class Hostile(InThisProcess):
        def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
            super().run(task, progress, cancelled)
            plant(task.outputs)

    executor = Hostile(spec.root)
    session = session_with(spec, tmp_path / "stage", executor, server=None)
    with pytest.raises(error, match=message) as caught:
        verify_model(session, ModelRun("m", session.progress, session.cancelled), threads=1)
    assert getattr(caught.value, "code", "") in {"executor.file", "executor.lost"}
    assert {path.name for path in executor.tasks[0].outputs.parent.iterdir()} == {"inputs", "outputs"}


@pytest.mark.usefixtures("jobs")
def test_paths_in_a_result_are_names(spec: Spec, tmp_path: Path) -> None:
    """A machine cannot name a file of this one."""
    (tmp_path / "model.onnx").write_bytes(b"secret")

    def elsewhere(result: Result) -> Result:
        assert result.built is not None
        assert isinstance(result.built.artifact, OnnxArtifact)
        artifact = replace(result.built.artifact, path=tmp_path / "model.onnx")
        return replace(result, built=replace(result.built, artifact=artifact, golden_dir=tmp_path))

    session = session_with(spec, tmp_path / "stage", InThisProcess(spec.root, elsewhere), server=None)
    verify_model(session, ModelRun("m", session.progress, session.cancelled), threads=1)()
    assert (spec.repository / "m" / "1" / "model.onnx").read_bytes() != b"secret"


def test_number_of_tasks_at_a_time_is_the_executor_s(tmp_path: Path) -> None:
    """Unless --jobs says less."""
    spec = write_spec(tmp_path / "project", **{f"m{number}": PLAIN for number in range(5)}, e=ensemble_of("m0"))
    executor = InThisProcess(spec.root)
    assert [session_with(spec, tmp_path / str(jobs), executor, jobs=jobs).jobs for jobs in (None, "auto", 2, 100)] == [
        3,
        3,
        2,
        6,
    ]


def test_resources_do_not_change_what_is_published(spec: Spec) -> None:
    """An edit of them builds nothing."""
    entry = spec.models["m"]
    assert block_digest(entry) == block_digest(entry.model_copy(update={"resources": ResourcesSpec()}))
