"""An exporter and a pass of another package: installed by pip, named in a spec, and used by the real command."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import onnx
import pytest

from tests.integration.plugin_environment import make_plugin_environment

if TYPE_CHECKING:
    from pathlib import Path

PASSES = "fp16, fuse-gemm, int8-dynamic, int8-static, ir-cleanup, onnxruntime-offline, onnxsim or ort-fusions"
MODELS = """\
import torch

def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2)
"""
SPEC = """\
models:
  linear:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
    export: {exporter: linear, options: {fused: false}}
    optimize:
      - {name: fuse-gemm, options: {max_elements: 8}}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the example plug-in."""
    return make_plugin_environment(tmp_path_factory.mktemp("environment"))


def build(python: Path, directory: Path, spec: str) -> subprocess.CompletedProcess[str]:
    """Run ``repogen build`` without a smoke test."""
    (directory / "models.py").write_text(MODELS)
    (directory / "repogen.yaml").write_text(spec)
    command = [str(python), "-m", "repogen", "build", "--no-smoke", "--json"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_a_spec_uses_the_exporter_and_the_pass_of_a_plugin(python: Path, tmp_path: Path) -> None:
    """The exporter writes two nodes, and the pass fuses them into one; parity and batching are measured as usual."""
    result = build(python, tmp_path, SPEC)
    assert (result.returncode, result.stderr) == (0, "")
    (model,) = json.loads(result.stdout)["models"]
    assert (model["status"], model["exporter"], model["max_batch_size"]) == ("published", "linear", 8)
    assert model["parity"]["passed"]
    assert model["nodes"] == {"exported": 2, "optimized": 1}
    assert [(step["name"], step["applied"]) for step in model["passes"]] == [("fuse-gemm", True)]
    graph = onnx.load(tmp_path / "model_repository" / "linear" / "1" / "model.onnx").graph
    assert [node.op_type for node in graph.node] == ["Gemm"]


@pytest.mark.full
def test_options_change_the_build(python: Path, tmp_path: Path) -> None:
    """A pass whose option excludes the weight changes nothing."""
    result = build(python, tmp_path, SPEC.replace("max_elements: 8", "max_elements: 7"))
    (model,) = json.loads(result.stdout)["models"]
    assert model["nodes"] == {"exported": 2, "optimized": 2}
    assert [step["applied"] for step in model["passes"]] == [False]


@pytest.mark.full
def test_a_plugin_joins_the_fallback_chain(python: Path, tmp_path: Path) -> None:
    """After the built-in exporters, as its priority says."""
    source = "import sys; from repogen.artifacts.source import Eager; from repogen.spec.models import ExportSpec\n"
    source += "import torch; from repogen.export.fallback_chain import fallback_chain\n"
    source += "print(*[exporter.name for exporter in fallback_chain(Eager(torch.nn.Identity()), ExportSpec())])"
    result = subprocess.run([str(python), "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["dynamo", "torchscript", "linear"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("fused: false", "fuse: false", '6:42 models.linear.export.options.fuse: unknown key (did you mean "fused"?)'),
        ("fused: false", "fused: 3", "6:42 models.linear.export.options.fused: must be a valid boolean, not 3"),
        (
            "max_elements: 8",
            "max_elements: 0",
            "8:37 models.linear.optimize[0].options.max_elements: must be greater than 0, not 0",
        ),
        (
            "name: fuse-gemm",
            "name: fuse",
            f'8:10 models.linear.optimize[0].name: must be {PASSES}, not "fuse"',
        ),
    ],
)
def test_options_are_validated_by_the_plugins_model(
    python: Path, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """With line and column, before any model is loaded."""
    result = build(python, tmp_path, SPEC.replace(old, new))
    assert result.returncode == 2
    assert f"repogen.yaml:{problem}" in json.loads(result.stdout)["error"]["message"]
