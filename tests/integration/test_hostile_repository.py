"""Repositories that try to run code in Triton: no code of theirs runs, and each such model is named with the reason."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from tritonclient.grpc import InferenceServerClient

from repogen.artifacts.serving import ControlMode
from repogen.serving import commands
from repogen.serving.servers import open_triton, prepare_server
from repogen.smoke.repository import smoke_repository
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support import graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
GOOD = "good"
ENVIRONMENT = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }\n'
# Triton loads the model of each step with an ensemble.
PIPELINE = """\
platform: "ensemble"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
ensemble_scheduling {
  step {
    model_name: "environment"
    model_version: -1
    input_map { key: "x" value: "x" }
    output_map { key: "y" value: "y" }
  }
}
"""
# $RUN is a command without special characters, so that it fits into a file name.
HOSTILE = ("x$($RUN)y", "environment", "stub", "group", "file", "backend", "pipeline", "renamed")
CLASS = "import os\nos.system(os.environ['RUN'])\nclass TritonPythonModel: pass\n"


class Notes:
    """A Progress that stores the notes."""

    def __init__(self) -> None:
        """Start without notes."""
        self.notes: dict[str, str] = {}

    def step(self, model: str, step: str) -> None:
        """Ignore the event."""

    def note(self, model: str, text: str) -> None:
        """Store the note."""
        self.notes[model] = text

    def download(self, what: str, done: int, total: int) -> None:
        """Ignore the event."""


def add(repository: Path, name: str, config: str = CONFIG) -> Path:
    """Add a model whose graph is ``matmul``; return its directory."""
    model = repository / name
    (model / "1").mkdir(parents=True)
    onnx.save_model(graphs.matmul(), model / "1" / "model.onnx")
    (model / "config.pbtxt").write_text(config, encoding="utf-8")
    return model


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that exists when the repository's code ran."""
    monkeypatch.setenv("RUN", f"touch {tmp_path / 'marker'}")
    return tmp_path / "marker"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one good model and one of each kind that runs code."""
    path = tmp_path / "repository"
    add(path, GOOD)
    add(path, "x$($RUN)y")
    script(add(path, "environment", CONFIG + ENVIRONMENT) / "env" / "bin" / "activate")
    script(add(path, "stub") / "triton_python_backend_stub")
    add(path, "group", CONFIG + 'instance_group { name: "a$($RUN)" kind: KIND_CPU }\n')
    add(path, "file", CONFIG + 'default_model_filename: "$($RUN)model.onnx"\n')
    add(path, "renamed", CONFIG + 'name: "environment"\n')
    (path / "pipeline" / "1").mkdir(parents=True)
    (path / "pipeline" / "config.pbtxt").write_text(PIPELINE, encoding="utf-8")
    model = add(path, "backend", CONFIG.replace("onnxruntime", f"{'../' * 20}{str(path)[1:]}/backend"))
    (model / "model.py").write_text(CLASS, encoding="utf-8")
    return path


def script(path: Path) -> None:
    """Write a script that creates the marker."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n$RUN\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)


def eventually(condition: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true."""
    deadline = time.monotonic() + 120
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds


@contextmanager
def client(triton: Any) -> Iterator[InferenceServerClient]:
    """Yield a client of a server."""
    with InferenceServerClient(triton.endpoint.grpc) as connected:
        yield connected


def test_smoke_runs_nothing(repository: Path, marker: Path) -> None:
    """Each model is in the report with the reason, and the others are tested."""
    target, mode = targets()[DEFAULT_RELEASE], ControlMode.EXPLICIT
    with open_triton(prepare_server("embedded", target, Notes()), repository, mode, Notes()) as triton:
        reports = smoke_repository(triton, repository)
    loads = {report.model: check.detail for report in reports for check in report.checks if check.name == "loads"}
    assert not marker.exists()
    assert sorted(loads) == sorted(HOSTILE)
    assert "to a shell" in loads["x$($RUN)y"]
    assert {report.model for report in reports} == {GOOD, *HOSTILE}


@pytest.mark.parametrize("poll", [False, True])
def test_serve_runs_nothing(repository: Path, marker: Path, *, poll: bool) -> None:
    """Each model is named with the reason, and the others are served."""
    progress = Notes()
    with commands.serve(repository, "embedded", poll=poll, progress=progress) as triton, client(triton) as connected:
        assert connected.is_model_ready(GOOD)
    assert not marker.exists()
    assert sorted(progress.notes) == sorted(HOSTILE)


def test_polling_server_runs_nothing_that_appears_later(tmp_path: Path, marker: Path) -> None:
    """Good models that appear are served; a model whose new config runs code is unloaded."""
    repository, progress = tmp_path / "repository", Notes()
    add(repository, GOOD)
    changed = add(repository, "changed")
    with commands.serve(repository, "embedded", poll=True, progress=progress) as triton, client(triton) as connected:
        assert connected.is_model_ready("changed")
        script(changed / "env" / "bin" / "activate")
        (changed / "config.pbtxt").write_text(CONFIG + ENVIRONMENT, encoding="utf-8")
        add(tmp_path / "later", "later").rename(repository / "later")
        assert eventually(lambda: connected.is_model_ready("later"))
        assert eventually(lambda: not connected.is_model_ready("changed"))
    assert not marker.exists()
    assert list(progress.notes) == ["changed"]


def test_every_ensemble_without_a_loaded_step_is_named(tmp_path: Path) -> None:
    """With the reason, in the notes and in the list of models, however many steps are between.

    An ensemble that uses a cycle of others crashes tritonserver 2.51.
    """
    repository, progress = tmp_path / "repository", Notes()
    add(repository, GOOD)
    add(repository, "environment", CONFIG + ENVIRONMENT)
    (add(repository, "broken") / "1" / "model.onnx").write_bytes(b"no graph")
    steps = {
        "works": GOOD,
        "refused": "environment",
        "refused_2": "refused",
        "refused_3": "refused_2",
        "unloaded": "broken",
        "unloaded_2": "unloaded",
        "missing": "nothing",
        "missing_2": "missing",
        "cycle": "cycle_2",
        "cycle_2": "cycle_3",
        "cycle_3": "cycle",
        "cycle_user": "cycle",
        "outside": "..",
        "outside_2": "outside",
    }
    for name, step in steps.items():
        (repository / name / "1").mkdir(parents=True)
        config = PIPELINE.replace('"environment"', f'"{step}"')
        (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    with commands.serve(repository, "embedded", poll=False, progress=progress) as triton:
        models = commands.states(triton, repository, ())
    served = {model.name for model in models if model.versions}
    assert served == {GOOD, "works"}
    assert {model.name for model in models if not model.reason} == served
    noted = {name.partition(" version ")[0] for name in progress.notes}
    assert noted == {"environment", "broken", *steps} - {"works"}
    reasons = {model.name: model.reason for model in models}
    assert "EXECUTION_ENV_PATH" in reasons["environment"]
    unnamed = [name for name, step in steps.items() if name not in served and step not in reasons[name]]
    assert all(f"lead back to '{name}'" in reasons[name] for name in unnamed)
