"""After `kill -9` during a publish, a newly started Triton serves the repository."""

from __future__ import annotations

import http.client
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode, RunningTriton
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import ModelConfig, Provenance, StagedVersion
from repogen.repository.publish import publish
from repogen.repository.recovery import recover
from repogen.repository.stage import stage_version
from repogen.serving.embedded import EmbeddedTriton
from repogen.targets import DEFAULT_RELEASE, targets

PROGRAM = Path(__file__).parents[1] / "unit" / "repository" / "publish" / "killed_publish.py"
PROVENANCE = Provenance({}, "", "", {}, DEFAULT_RELEASE, "dynamo", 17, 8, 1, 1, 1, 0.0, 0.0)


@dataclass(frozen=True)
class Version:
    """A version of a model that applies Relu to rows of ``size`` numbers."""

    batch: int = 8
    size: int = 4
    policy: str = ""


# name -> the version after `Version()`, and the filesystem operation at which its publish is killed
KILLS = {
    "raise_before_version": (Version(batch=32), 1),
    "raise_between": (Version(batch=32), 2),
    "raise_before_end": (Version(batch=32), 3),
    "lower_between": (Version(batch=0), 2),
    "pinned_between": (Version(policy="version_policy { specific { versions: 2 } }"), 2),
    "latest_between": (Version(policy="version_policy { latest { num_versions: 2 } }"), 2),
    "breaking_before_swap": (Version(size=5), 0),
    "breaking_after_swap": (Version(size=5), 1),
    "pinned_and_lower": (Version(batch=0, policy="version_policy { specific { versions: 2 } }"), 1),
}


@pytest.fixture(scope="module")
def server() -> EmbeddedTriton:
    """Return the embedded Triton."""
    triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
    triton.preflight()
    return triton


def _stage(root: Path, repository: Path, name: str, version: Version) -> StagedVersion:
    root.mkdir()
    tensors = [helper.make_tensor_value_info(t, TensorProto.FLOAT, ["batch", version.size]) for t in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), root / "model.onnx")
    (root / "golden.json").touch()
    (root / "golden.npz").touch()
    shape = ("batch", version.size)
    signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
    dims = f"[{version.size}]" if version.batch else f"[-1, {version.size}]"
    text = (
        f'name: "{name}"\nbackend: "onnxruntime"\nmax_batch_size: {version.batch}\n{version.policy}\n'
        f'input {{ name: "x" data_type: TYPE_FP32 dims: {dims} }}\n'
        f'output {{ name: "y" data_type: TYPE_FP32 dims: {dims} }}\n'
    )
    artifact = OnnxArtifact(
        root / "model.onnx",
        external_data=False,
        signature=signature,
        opset=17,
        ir_version=8,
        nodes=1,
        exporter="dynamo",
    )
    return stage_version(
        root, repository, ModelConfig(name, text, version.batch, signature), artifact, root, PROVENANCE
    )


def _ready(triton: RunningTriton) -> list[str]:
    """Return the models of ``KILLS`` that are ready."""
    host, _, port = triton.endpoint.http.rpartition(":")
    ready = []
    for name in KILLS:
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", f"/v2/models/{name}/ready")
        if connection.getresponse().status == http.HTTPStatus.OK:
            ready.append(name)
        connection.close()
    return ready


@pytest.mark.full
def test_fresh_triton_serves(server: EmbeddedTriton, tmp_path: Path) -> None:
    """Each model's second publish is killed at a different operation: all are served, also after they are rebuilt."""
    repository = tmp_path / "repo"
    for name, (version, at) in KILLS.items():
        publish(_stage(tmp_path / f"{name}-1", repository, name, Version()), repository, breaking=False)
        staged = tmp_path / f"{name}.pickle"
        staged.write_bytes(pickle.dumps(_stage(tmp_path / f"{name}-2", repository, name, version)))
        process = subprocess.run([sys.executable, str(PROGRAM), str(staged), str(repository), str(at)], check=False)
        survives = {"breaking_after_swap", "pinned_and_lower"}  # a swap is a single operation
        assert process.returncode == (0 if name in survives else -signal.SIGKILL)
    with server.running(repository, ControlMode.NONE) as triton:
        assert _ready(triton) == list(KILLS)
    for name, (version, _) in KILLS.items():
        assert recover(repository, name)
        publish(_stage(tmp_path / f"{name}-3", repository, name, version), repository, breaking=True)
    with server.running(repository, ControlMode.NONE) as triton:
        assert _ready(triton) == list(KILLS)
