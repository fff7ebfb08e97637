"""Executors: how one is found, and how a task runs in a process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from repogen.errors import SpecError
from repogen.executors import process
from repogen.executors.interface import Executor, Task, TaskLostError, Workplace
from repogen.executors.local import Local
from repogen.executors.process import run_task
from repogen.executors.ray import Cluster, Ray
from repogen.executors.select import find_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def test_local_executor_needs_no_entry_point(tmp_path: Path) -> None:
    """And has no address."""
    executor, address = find_executor("local")
    assert isinstance(executor, Executor)
    with executor.open(Workplace(tmp_path, ()), address) as running:
        assert running is None
    with (
        pytest.raises(SpecError, match="local does not accept an address") as caught,
        Local().open(Workplace(tmp_path, ()), "x"),
    ):
        pass
    assert caught.value.code == "executor.address"


def test_unknown_executor_is_rejected() -> None:
    """With the registered names."""
    with pytest.raises(SpecError, match="'kubernetes' is not an executor") as caught:
        find_executor("kubernetes=10.0.0.1")
    assert caught.value.code == "executor.unknown"


def _command(text: str) -> Callable[..., list[str]]:
    return lambda *_: [sys.executable, "-c", text]


def _directories(tmp_path: Path) -> tuple[Path, Path]:
    inputs, outputs = tmp_path / "inputs", tmp_path / "outputs"
    inputs.mkdir()
    outputs.mkdir()
    return inputs, outputs


def test_steps_of_a_process_are_yielded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own directory, which is not on Python's path."""
    inputs, outputs = _directories(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:/other")
    program = (
        "import json, os, pathlib\n"
        "for text in (os.getcwd(), os.environ['PYTHONPATH']): print(json.dumps({'step': text}), flush=True)\n"
        f"pathlib.Path({str(outputs / process.RESULT)!r}).touch()"
    )
    monkeypatch.setattr(process, "task_command", _command(program))
    assert list(run_task(tmp_path, inputs, outputs)) == [str(tmp_path), "/other"]


def test_process_without_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has what it printed."""
    inputs, outputs = _directories(tmp_path)
    monkeypatch.setattr(process, "task_command", _command("import sys; sys.exit('no space')"))
    with pytest.raises(TaskLostError, match="ended with status 1") as caught:
        list(run_task(tmp_path, inputs, outputs))
    assert "no space" in caught.value.details


def test_process_ends_with_the_iterator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a build is interrupted."""
    inputs, outputs = _directories(tmp_path)
    program = 'import time; print(\'{"step": "export"}\', flush=True); time.sleep(1000)'
    monkeypatch.setattr(process, "task_command", _command(program))
    steps: Any = run_task(tmp_path, inputs, outputs)
    assert next(steps) == "export"
    steps.close()


class _LostError(Exception):
    """A node was lost."""


class _FailedError(Exception):
    """Ray cannot run a task."""


class _Exceptions:
    """The module ``ray.exceptions``."""

    WorkerCrashedError = NodeDiedError = ObjectLostError = OutOfMemoryError = LocalRayletDiedError = _LostError
    RayError = _FailedError


class FakeRay:
    """The part of Ray that a connection uses; each attempt sends the next list.

    Args:
        attempts: What each attempt sends; an exception is raised instead.
    """

    exceptions = _Exceptions

    def __init__(self, *attempts: Sequence[object]) -> None:
        """Begin without a task."""
        self.attempts = list(attempts)
        self.options_: list[dict[str, object]] = []
        self.sent: list[Any] = []
        self.cancelled = 0

    def cluster_resources(self) -> dict[str, float]:
        """Return a cluster of three processors."""
        return {"CPU": 3.0}

    def remote(self, function: object) -> FakeRay:
        """Return what starts tasks, or a task's results."""
        if isinstance(function, list):
            self.sent.append(function)
            return iter(self.attempts.pop(0))  # type: ignore[return-value] # a generator of results
        return self

    def options(self, **options: object) -> FakeRay:
        """Keep the options of a task."""
        self.options_.append(options)
        return self

    def put(self, chunk: bytes) -> bytes:
        """Return the chunk."""
        return chunk

    def wait(self, results: list[Iterator[object]], timeout: float) -> tuple[list[object], list[object]]:
        """Return the results, which are ready."""
        assert timeout
        return list(results), []

    def get(self, value: object) -> object:
        """Return a value, or raise it."""
        if isinstance(value, Exception):
            raise value
        return value

    def cancel(self, results: object, *, force: bool) -> None:
        """Count the call."""
        assert force
        assert results
        self.cancelled += 1


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return a task with one input file."""
    inputs, outputs = _directories(tmp_path)
    (inputs / "a").mkdir()
    (inputs / "a" / "b").write_bytes(b"input")
    return Task("m", inputs, outputs, cpus=2, memory_mb=10, gpus=1)


def test_task_that_loses_its_node_runs_again(task: Task) -> None:
    """What the lost attempt sent is forgotten."""
    first = [("step", "export"), ("file", "x"), ("data", b"half"), _LostError()]
    second = [("file", "x"), ("data", b"wh"), ("data", b"ole"), ("file", "empty"), ("end", "")]
    ray = FakeRay(first, [("step", "export")], second)
    steps: list[str] = []
    cluster = Cluster(ray)
    cluster.run(task, steps.append, threading.Event())
    assert cluster.jobs == 6
    assert {path.name: path.read_bytes() for path in task.outputs.iterdir()} == {"x": b"whole", "empty": b""}
    lost = "its node was lost; waiting for another one"
    assert steps == ["waiting for a node", "export", lost, "waiting for a node", "export", lost, "waiting for a node"]
    assert ray.sent[0] == [("a/b", [b"input"])]
    assert ray.cancelled == 2
    options = ray.options_[0]
    assert (options["num_cpus"], options["num_gpus"], options["memory"]) == (2, 1, 10 * 2**20)


def test_task_that_always_loses_its_node_fails(task: Task) -> None:
    """After four attempts."""
    ray = FakeRay(*[[_LostError("node died")] for _ in range(9)])
    with pytest.raises(TaskLostError, match="lost 4 times: node died"):
        Cluster(ray).run(task, print, threading.Event())
    assert len(ray.sent) == 4


@pytest.mark.parametrize(
    ("sent", "error", "message"),
    [
        ([("failed", ("the process ended", "hint", "log"))], TaskLostError, "the process ended"),
        ([("file", "../x")], SpecError, r"returned a file named '\.\./x', which is not a plain name"),
        ([("file", "/x")], SpecError, "named '/x'"),
        ([("file", "..")], SpecError, r"named '\.\.'"),
        ([("file", ".."), ("data", b"x")], SpecError, r"named '\.\.'"),
        ([("file", "")], SpecError, "named ''"),
        ([("file", "a\0b")], SpecError, r"named 'a\\x00b'"),
        ([("file", "\ud800")], SpecError, "not a plain name"),
        ([("file", "a" * 256)], SpecError, "not a plain name"),
        ([("file", "x"), ("data", b"1"), ("file", "x")], SpecError, "named 'x', which is .* the name of another file"),
        ([("file", 5)], SpecError, "not the result of a task"),
        ([("data", b"x")], SpecError, "not the result of a task"),
        ([("file", "x"), ("data", "text")], SpecError, "not the result of a task"),
        ([("step", None)], SpecError, "not the result of a task"),
        ([("failed", "no")], SpecError, "not the result of a task"),
        ([None], SpecError, "not the result of a task"),
        ([_FailedError("no such resource")], SpecError, "Ray cannot run the task: no such resource"),
    ],
)
def test_task_that_fails_is_not_repeated(task: Task, sent: list[object], error: type[Exception], message: str) -> None:
    """A failure of the process, a node that sends a wrong name, or a task that Ray rejects."""
    ray = FakeRay(sent, [("end", "")])
    before = {path.name for path in task.outputs.parent.iterdir()}
    with pytest.raises(error, match=message):
        Cluster(ray).run(task, print, threading.Event())
    assert len(ray.sent) == 1
    assert {path.name for path in task.outputs.parent.iterdir()} == before


def test_cancelled_task_is_ended(task: Task) -> None:
    """Its worker is killed."""
    cancelled = threading.Event()
    cancelled.set()
    ray = FakeRay([("step", "export")])
    with pytest.raises(KeyboardInterrupt):
        Cluster(ray).run(task, print, cancelled)
    assert ray.cancelled == 1
    assert json.dumps(ray.options_[0])


def test_what_ray_prints_is_not_a_part_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints to standard output that a node was lost; `--json` prints one document there."""
    ray = ModuleType("ray")
    settings: list[dict[str, Any]] = []
    values: dict[str, Any] = {
        "init": lambda **options: settings.append(options["runtime_env"]),
        "is_initialized": lambda: False,
        "shutdown": lambda: None,
        "remote": lambda function: function,
        "cluster_resources": dict,
    }
    for name, value in values.items():
        setattr(ray, name, value)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for packages in ((), (tmp_path / "company",)):
        with Ray().open(Workplace(tmp_path, ("model_repository",), packages), "") as cluster:
            assert cluster.jobs == 2
            print("node 1 was lost")  # noqa: T201 - as Ray does
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "node 1 was lost\n" * 2)
    shared = {"working_dir": str(tmp_path), "excludes": ["/model_repository"]}
    assert settings == [shared, {**shared, "py_modules": [str(tmp_path / "company")]}]


def test_ray_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray 2.60 raises `Exception` itself if a node does not start within 30 seconds (`ray._private.node`)."""

    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    ray = ModuleType("ray")
    values = {"init": init, "is_initialized": lambda: False, "shutdown": lambda: None}
    for name, value in values.items():
        setattr(ray, name, value)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with (
        pytest.raises(SpecError, match=r"Ray cannot be used: The current node timed out during startup"),
        Ray().open(Workplace(tmp_path, ()), ""),
    ):
        pass


@pytest.mark.parametrize(("address", "variable"), [("10.0.0.1:6379", ""), ("", "10.0.0.1:6379")])
def test_cluster_that_the_user_names(address: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument, or else RAY_ADDRESS."""
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with Ray().connection(address) as options:
        assert options == {"address": "10.0.0.1:6379"}


@pytest.mark.parametrize(("user", "is_used"), [(0, True), (65534, False)])
def test_cluster_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, *, is_used: bool) -> None:
    """With `auto`, Ray would connect to any user's cluster, and upload the spec's directory."""
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    script = f"import os, time; os.setuid({user}); print(flush=True); time.sleep(600)"
    command = ["/any/raylet", "-c", script, "--gcs-address=192.0.2.1:6379"]
    with subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")  # no clusters of other tests
        monkeypatch.setattr("repogen.executors.ray._PROCESSES", tmp_path)
        try:
            if is_used:
                with Ray().connection("") as options:
                    assert options == {"address": "192.0.2.1:6379"}
            else:
                with (
                    pytest.raises(
                        SpecError, match=r"^no Ray cluster of yours or of root was found on this machine"
                    ) as caught,
                    Ray().open(Workplace(tmp_path, ()), ""),
                ):
                    pass
                assert caught.value.hint.startswith("set RAY_ADDRESS to the HOST:PORT of the cluster")
        finally:
            process.kill()


@pytest.mark.parametrize("address", ["", "local"])
def test_own_cluster_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Ray would use the cluster that a file in /tmp/ray names, and a directory that any user can write to."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    (tmp_path / ("x" * 100)).mkdir()
    with Ray().connection("") as options:
        directory = Path(options["_temp_dir"]).parent
        assert options["address"] == "local"
        assert (directory.stat().st_mode & 0o777, directory.parent) == (0o700, Path("/tmp"))  # noqa: S108 - private
    assert not directory.exists()
