"""Python code and ensembles with the real `repogen build` and a real Triton server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Project

SPEC = """\
models:
  verdict:
    source:
      kind: ensemble
      steps:
        - {model: lengths, inputs: {text: text}, outputs: {lengths: lengths}}
        - {model: scorer, inputs: {x: lengths}, outputs: {y: score}}
        - {model: namer, inputs: {score: score}, outputs: {name: name}}
    outputs: [name, score]
  lengths:
    source: {kind: python, path: lengths.py, data: [words.txt]}
    inputs: {text: {dtype: string, shape: [batch, 1]}}
    outputs: {lengths: {dtype: float32, shape: [batch, 2]}}
    examples: examples.py:texts
    dims: {batch: {max: 8}}
    triton: {max_batch_size: 8, dynamic_batching: {max_queue_delay_microseconds: 1000}}
  scorer:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 2]}}
    outputs: [y]
    dims: {batch: {max: 8}}
    export: {exporter: torchscript}
  namer:
    source: {kind: python, path: namer.py}
    inputs: {score: {dtype: float32, shape: [batch, 1]}}
    outputs: {name: {dtype: string, shape: [batch, 1]}}
    dims: {batch: {max: 8}}
"""
MODELS = """\
import torch


class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 10.0]))

    def forward(self, x):
        return (x * self.weight).sum(1)


def build() -> torch.nn.Module:
    return Scorer().eval()
"""
LENGTHS = """\
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.known = set(Path(__file__).with_name("words.txt").read_bytes().split())

    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(request, "text").as_numpy()) for request in requests]

    def answer(self, texts):
        rows = [(len(text), sum(word in self.known for word in text.split())) for text in texts[:, 0]]
        return pb.InferenceResponse([pb.Tensor("lengths", np.array(rows, np.float32))])
"""
NAMER = """\
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(request, "score").as_numpy()) for request in requests]

    def answer(self, score):
        return pb.InferenceResponse([pb.Tensor("name", np.where(score > 20, "high", "löw").astype(object))])
"""
EXAMPLES = """\
TEXTS = ["", "good", "a good word", "nothing here", "good good good", "é"]


def texts(batch, seed):
    return {"text": [[TEXTS[(seed + row) % len(TEXTS)]] for row in range(batch)]}
"""


@pytest.fixture
def project(tmp_path: Path, project_at: type[Project]) -> Project:
    """Return a project with three models and their ensemble."""
    files = {
        "repogen.yaml": SPEC,
        "models.py": MODELS,
        "lengths.py": LENGTHS,
        "namer.py": NAMER,
        "examples.py": EXAMPLES,
        "words.txt": "good\nword\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return project_at(tmp_path)


def built(project: Project, *flags: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Build, and return the exit code and the report of each model by name."""
    run = project.run("build", "--json", *flags)
    assert "Traceback" not in run.stderr
    document = json.loads(run.stdout)
    assert "models" in document, document
    return run.returncode, {model["name"]: model for model in document["models"]}


def statuses(reports: dict[str, dict[str, Any]]) -> dict[str, tuple[str, int | None]]:
    """Return the status and version of each model."""
    return {name: (report["status"], report["version"]) for name, report in reports.items()}


@pytest.mark.first
def test_ensemble_is_built_served_and_rebuilt(project: Project) -> None:
    """A change of a step also rebuilds the ensemble; a failure of a step is reported for both."""
    code, reports = built(project, "--jobs", "2")
    assert code == 0
    assert statuses(reports) == dict.fromkeys(("verdict", "lengths", "scorer", "namer"), ("published", 1))
    assert {name: (r["exporter"], r["max_batch_size"]) for name, r in reports.items()} == {
        "verdict": ("ensemble", 8),
        "lengths": ("python", 8),
        "scorer": ("torchscript", 8),
        "namer": ("python", 8),
    }
    for report in reports.values():
        assert report["smoke"]["passed"]
        assert report["parity"]["cases"] >= 5
    assert sorted(path.name for path in (project.repository / "lengths" / "1").iterdir()) == [
        *("attestation.json", "config.pbtxt", "golden.json", "golden.npz", "manifest.json", "model.py"),
        *("sbom.cdx.json", "words.txt"),
    ]
    assert project.run("check", "model_repository", "--strict").returncode == 0
    assert project.run("smoke", "model_repository").returncode == 0
    assert _query(project.repository) == [[b"l\xc3\xb6w", 14.0], [b"high", 31.0]]

    assert statuses(built(project)[1]) == dict.fromkeys(("verdict", "lengths", "scorer", "namer"), ("unchanged", 1))

    (project.directory / "words.txt").write_text("good\nword\nhere\n", encoding="utf-8")
    code, reports = built(project)
    assert statuses(reports) == {
        "verdict": ("published", 2),
        "lengths": ("published", 2),
        "scorer": ("unchanged", 1),
        "namer": ("unchanged", 1),
    }

    project.edit("shape: [batch, 2]}}\n    examples", "shape: [batch, 3]}}\n    examples")
    code, reports = built(project)
    assert code == 3
    assert statuses(reports)["verdict"] == ("failed", None)
    assert "output 'lengths' is float32" in reports["lengths"]["error"]["message"]
    assert reports["verdict"]["error"]["message"].startswith("its step lengths was not built: lengths.py: output")
    assert sorted(path.name for path in (project.repository / "verdict").iterdir()) == ["1", "2", "config.pbtxt"]
    assert not project.temporary()


@pytest.mark.full
def test_building_an_ensemble_alone_requires_built_steps(project: Project) -> None:
    """Without built steps the build fails; a dry run tests all of them and publishes nothing."""
    code, reports = built(project, "--model", "verdict")
    assert code == 7
    assert "lengths is a step of an ensemble" in reports["verdict"]["error"]["message"]

    code, reports = built(project, "--dry-run")
    assert code == 0
    assert {report["status"] for report in reports.values()} == {"verified"}
    assert reports["verdict"]["smoke"]["passed"]
    assert not project.repository.exists() or not list(project.repository.glob("*/1"))


@pytest.mark.full
def test_mismatched_steps_are_rejected(project: Project) -> None:
    """One step produces numbers where another expects strings; none of the steps is published."""
    project.edit("outputs: [name, score]", "outputs: [name]")
    project.edit("{model: scorer, inputs: {x: lengths}", "{model: scorer, inputs: {x: text}")
    project.edit("outputs: {lengths: lengths}}", "outputs: {lengths: unused}}")

    code, reports = built(project)

    assert code == 3
    message = "tensor 'text' is string [batch, 1], but step scorer accepts float32 [batch, 2]"
    assert reports["verdict"]["error"]["message"] == message
    assert reports["scorer"]["error"]["code"] == "ensemble.held-back"
    assert reports["scorer"]["parity"]["passed"]
    assert not list(project.repository.glob("*/1"))


@pytest.mark.full
def test_building_a_step_alone_reports_its_ensembles(project: Project) -> None:
    """A step that would break the ensemble is rejected."""
    assert built(project)[0] == 0
    project.edit("  scorer:\n", "  scorer:\n    limits: {memory_mb: 9000}\n")

    code, reports = built(project, "--model", "scorer")

    assert code == 0
    assert "verdict uses it and was not built again" in reports["scorer"]["notes"]

    project.edit("    export: {exporter: torchscript}\n", "    triton: {max_batch_size: 4}\n")
    code, reports = built(project, "--model", "scorer")

    assert code == 7
    assert reports["scorer"]["error"]["code"] == "publish.ensemble"
    assert "accepts batches up to 8, and 'scorer' up to 4" in reports["scorer"]["error"]["message"]
    assert project.run("check", "model_repository").returncode == 0


def _query(repository: Path) -> list[list[object]]:
    """Serve the repository, and return the name and score of two texts."""
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with (
        embedded.running(repository, ControlMode.NONE) as triton,
        InferenceServerClient(triton.endpoint.grpc) as client,
    ):
        text = InferInput("text", [2, 1], "BYTES")
        text.set_data_from_numpy(np.array([[b"good"], [b"a good word"]], dtype=object))
        answer = client.infer("verdict", [text])
        names, scores = answer.as_numpy("name"), answer.as_numpy("score")
        return [[name, score] for name, score in zip(names[:, 0].tolist(), scores[:, 0].tolist(), strict=True)]
