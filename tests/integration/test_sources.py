"""Builds of every kind of source with the real `repogen build`, also from malicious and damaged files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from torch import nn

from tests.support import graphs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

_LOG = """\
import mlflow, onnx
client = mlflow.MlflowClient()
for factor in (1, 2):
    graph = onnx.load("net.onnx")
    graph.graph.name = f"factor {factor}"
    mlflow.onnx.log_model(graph, name="model", registered_model_name="net")
client.set_registered_model_alias("net", "champion", "1")
"""
_TRACKED = "builds are tracked in mlflow.db next to repogen.yaml; remove `mlflow: {}` to turn that off"
_NETS = """\
import torch


def build():
    return torch.nn.Linear(4, 2)


def examples(batch):
    return torch.randn(batch, 4)
"""
_MOVE = 'import mlflow; mlflow.MlflowClient().set_registered_model_alias("net", "champion", "2")'


class Classifier(nn.Module):
    """Maps rows of floats to logits and probabilities."""

    def __init__(self) -> None:
        """Create a layer."""
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return both."""
        logits = self.head(x)
        return {"logits": logits, "probabilities": logits.softmax(-1)}


class Bomb(nn.Module):
    """Creates a file when unpickled."""

    def __init__(self, mark: Path) -> None:
        """Store the path."""
        super().__init__()
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        """Let unpickling run a command."""
        return os.system, (f"touch {self.mark}",)


@pytest.fixture
def project(tmp_path: Path, project_at: type[Project]) -> Project:
    """Return an empty project."""
    return project_at(tmp_path)


def write_spec(project: Project, models: dict[str, Any], **more: Any) -> None:
    """Write the spec."""
    project.spec.write_text(yaml.safe_dump({**more, "models": models}, sort_keys=False), encoding="utf-8")


def built(project: Project, *flags: str) -> dict[str, Any]:
    """Build, and return the report of each model by name."""
    run = project.run("build", "--json", *flags)
    document = json.loads(run.stdout)
    assert "models" in document, document
    return {model["name"]: model for model in document["models"]}


def save_program(path: Path, module: nn.Module) -> None:
    """Export and save a program with a batch of 1 to 8."""
    batch = torch.export.Dim("batch", min=1, max=8)
    torch.export.save(torch.export.export(module.eval(), (torch.randn(3, 4),), dynamic_shapes=({0: batch},)), path)


def mlflow(project: Project, code: str) -> None:
    """Run code with an MLflow database in the project."""
    environment = os.environ | {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(command, cwd=project.directory, env=environment, check=True, capture_output=True)


@pytest.mark.first
def test_file_sources_are_built_and_served(project: Project) -> None:
    """One build of four models, smoke-tested over gRPC."""
    torch.manual_seed(0)
    graphs.with_external(project.directory / "model.onnx")
    save_program(project.directory / "net.pt2", Classifier())
    torch.jit.save(torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU())), project.directory / "net.pt")
    x = np.ones((3, 4), np.float32)
    np.savez(project.directory / "answers.npz", x=x, y=x @ graphs.WEIGHT)
    onnx.save_model(graphs.matmul(opset=23, ir=10), project.directory / "new.onnx")
    write_spec(
        project,
        {
            "file": {"source": {"kind": "onnx", "path": "model.onnx"}},
            "newer": {"source": {"kind": "onnx", "path": "new.onnx", "reference": "answers.npz"}},
            "program": {"source": {"kind": "torch_export", "path": "net.pt2"}},
            "script": {
                "source": {"kind": "torchscript", "path": "net.pt"},
                "inputs": {"input": {"dtype": "float32", "shape": ["batch", 4]}},
                "dims": {"batch": {"max": 8}},
            },
        },
    )
    reports = built(project)
    results = {name: (r["status"], r["exporter"], r["opset"], r["max_batch_size"]) for name, r in reports.items()}
    assert results == {
        "file": ("published", "onnx", 17, 32),
        "newer": ("published", "onnx", 21, 32),
        "program": ("published", "dynamo", 20, 8),
        "script": ("published", "torchscript", 20, 8),
    }, reports
    assert all(check["passed"] for report in reports.values() for check in report["smoke"]["checks"])
    shapes = [tensor["shape"][0] for side in ("inputs", "outputs") for tensor in reports["program"][side]]
    assert set(shapes) == {"batch"}  # not a symbol that torch generated
    again = built(project)
    assert {report["status"] for report in again.values()} == {"unchanged"}


@pytest.mark.full
def test_generated_spec_builds_unchanged(project: Project) -> None:
    """`repogen init --from` for each kind whose inputs can be derived."""
    onnx.save_model(graphs.lookup(), project.directory / "lookup.onnx")
    save_program(project.directory / "net.pt2", Classifier())
    (project.directory / "nets.py").write_text(_NETS, encoding="utf-8")
    for path, name in (("lookup.onnx", "lookup"), ("net.pt2", "net"), ("nets.py:build", "nets")):
        run = project.run("init", "--force", "--from", path)
        assert (run.returncode, run.stdout) == (0, f"wrote repogen.yaml\n{_TRACKED}\nnext: repogen build\n")
        report = built(project, "--no-smoke")[name]
        assert (report["status"], report["max_batch_size"] > 0) == ("published", True), report


@pytest.mark.full
def test_mlflow_alias_is_resolved_at_every_build(project: Project) -> None:
    """The model is unchanged until the alias moves to another version."""
    onnx.save_model(graphs.matmul(), project.directory / "net.onnx")
    mlflow(project, _LOG)
    models = {"net": {"source": {"kind": "mlflow", "uri": "models:/net@champion"}}}
    write_spec(project, models, mlflow={"tracking_uri": "sqlite:///mlflow.db"})
    first = built(project, "--no-smoke", "--no-track")["net"]
    assert (first["status"], first["exporter"]) == ("published", "onnx"), first
    assert "downloaded from MLflow: models:/net/1" in first["notes"]
    assert built(project, "--no-smoke", "--no-track")["net"]["status"] == "unchanged"
    mlflow(project, _MOVE)
    second = built(project, "--no-smoke")["net"]
    assert (second["status"], second["version"]) == ("published", 2), second
    assert "downloaded from MLflow: models:/net/2" in second["notes"]


@pytest.mark.full
def test_malicious_and_damaged_files_are_rejected(project: Project) -> None:
    """Each has its own error, no code runs, and the other models are built."""
    directory, mark = project.directory, project.directory / "ran"
    graphs.with_external(directory / "escape.onnx", "../../etc/passwd")
    (directory / "empty.onnx").touch()
    (directory / "cut.onnx").write_bytes(graphs.matmul().SerializeToString()[:90])
    onnx.save_model(graphs.endless(), directory / "endless.onnx")
    torch.save(Bomb(mark), directory / "bomb.pt")
    torch.save(Bomb(mark), directory / "bomb.pt2")
    (directory / "number.py").write_text("def build():\n    return 7\n", encoding="utf-8")
    inputs = {"inputs": {"x": {"dtype": "float32", "shape": [2, 4]}}}
    write_spec(
        project,
        {
            "escape": {"source": {"kind": "onnx", "path": "escape.onnx"}},
            "empty": {"source": {"kind": "onnx", "path": "empty.onnx"}},
            "cut": {"source": {"kind": "onnx", "path": "cut.onnx"}},
            "endless": {"source": {"kind": "onnx", "path": "endless.onnx"}, "limits": {"timeout_seconds": 15.0}},
            "script": {"source": {"kind": "torchscript", "path": "bomb.pt"}, **inputs},
            "program": {"source": {"kind": "torch_export", "path": "bomb.pt2"}},
            "number": {"source": {"factory": "number.py:build"}, **inputs},
        },
    )
    reports = built(project, "--no-smoke", "--jobs", "2")
    assert {name: report["error"]["code"] for name, report in reports.items()} == {
        "escape": "source.onnx-external-data",
        "empty": "source.onnx",
        "cut": "source.onnx",
        "endless": "worker.timeout",
        "script": "source.archive",
        "program": "source.archive",
        "number": "source.return-type",
    }
    assert "the step 'source' was still running after 15 s" in reports["endless"]["error"]["message"]
    assert all(report["error"]["hint"] for report in reports.values())
    assert not mark.exists()


@pytest.mark.full
def test_pickle_in_mlflow_requires_trust_pickle(project: Project) -> None:
    """With trust_pickle, a note mentions it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = (
            "import mlflow, torch, numpy as np\n"
            "mlflow.pytorch.log_model(torch.nn.Linear(4, 2), name='model', registered_model_name='net', "
            "serialization_format='pickle', input_example=np.ones((2, 4), 'float32'))\n"
        )
        mlflow(project, code)
    models = {
        "plain": {"source": {"kind": "mlflow", "uri": "models:/net/1"}},
        "trusted": {"source": {"kind": "mlflow", "uri": "models:/net/1", "trust_pickle": True}},
        "absent": {"source": {"kind": "mlflow", "uri": "models:/net/2"}},
    }
    write_spec(project, models, mlflow={"tracking_uri": "sqlite:///mlflow.db"})
    reports = built(project, "--no-smoke", "--no-track")
    assert reports["plain"]["error"]["code"] == "source.weights-unsafe"
    assert reports["absent"]["error"]["code"] == "source.mlflow"
    assert reports["trusted"]["status"] == "published", reports["trusted"]
    assert any("trust_pickle" in note for note in reports["trusted"]["notes"])
