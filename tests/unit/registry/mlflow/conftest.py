"""Versions with a real graph, and a real MLflow store in sqlite."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.built_model import BatchReport, BuiltModel, ImportedCode, OnnxArtifact, ParityCase, ParityReport
from repogen.artifacts.report import ModelReport, Status
from repogen.artifacts.serving import Latency, SmokeCheck, SmokeReport
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.tracking import Tracking
from repogen.artifacts.versions import ModelConfig, Provenance, StagedVersion
from repogen.registry.mlflow.client import Connection, connect, set_servers
from repogen.registry.mlflow.runs import MlflowTracker
from repogen.repository.stage import stage_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIGNATURE = Signature(
    (TensorSpec("x", "float32", ("batch", 2)), TensorSpec("n", "int64", ("batch", 1))),
    (TensorSpec("y", "float32", ("batch", 2)),),
)


class Stage(Protocol):
    """Stages a version of a model that computes ``x * factor + n``."""

    def __call__(self, name: str, factor: float = 2.0, *, external: bool = False) -> StagedVersion:
        """Return the staged version."""


def _graph(path: Path, factor: float, *, external: bool) -> None:
    factors = numpy_helper.from_array(np.full(2, factor, np.float32), "factor")
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["scaled", "number"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2]),
        helper.make_tensor_value_info("n", TensorProto.INT64, ["batch", 1]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
    graph = helper.make_graph(nodes, "g", inputs, [output], [factors])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save_model(model, path, save_as_external_data=external, location="model.onnx.data", size_threshold=0)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a function that stages versions, each in its own directory."""
    roots = (tmp_path / f"stage-{n}" for n in count())

    def make(name: str, factor: float = 2.0, *, external: bool = False) -> StagedVersion:
        root = next(roots)
        root.mkdir()
        _graph(root / "model.onnx", factor, external=external)
        x, n = np.arange(4, dtype=np.float32).reshape(2, 2), np.array([[1], [2]], np.int64)
        np.savez(root / "golden.npz", a=x, b=n, c=x * factor + n)
        case = {
            "name": "c",
            "batch": 2,
            "inputs": [{"name": "x", "key": "a"}, {"name": "n", "key": "b"}],
            "outputs": [{"name": "y", "key": "c"}],
        }
        golden = {"schema": 1, "cases": [case], "tolerances": {"y": {"rtol": 1e-3, "atol": 1e-5}}}
        (root / "golden.json").write_text(json.dumps(golden))
        tools = {"python": "3.11.7", "onnx": onnx.__version__, "onnxruntime": "1.20.0", "numpy": np.__version__}
        origin = Provenance(tools, "c0ffee", "5bec", {}, "24.10", "dynamo", 20, 9, 4, 3, 2, 1e-6, 1e-5)
        artifact = OnnxArtifact(root / "model.onnx", external_data=external, signature=SIGNATURE, opset=20,
                                ir_version=9, nodes=3, exporter="dynamo")  # fmt: skip
        config = ModelConfig(name, f'name: "{name}"\nmax_batch_size: 8\n', 8, SIGNATURE)
        return stage_version(root, tmp_path / "repository", config, artifact, root, origin)

    return make


def built(staged: StagedVersion, cases: int = 2) -> BuiltModel:
    """Return the worker's result for a staged version."""
    artifact = OnnxArtifact(staged.version_dir / "model.onnx", external_data=False, signature=SIGNATURE, opset=20,
                            ir_version=9, nodes=3, exporter="dynamo")  # fmt: skip
    parity = ParityReport(
        tuple(ParityCase(f"batch={n} seed=0", n * 1e-6, n * 1e-5, 1.0 - n * 1e-7, passed=True) for n in range(cases))
    )
    imported = ImportedCode({}, {})
    batch = BatchReport(batchable=True, max_batch_size=8)
    return BuiltModel(artifact, staged.repository, 4, parity, batch, imported)


def report(staged: StagedVersion) -> ModelReport:
    """Return the report of a staged version before it is published."""
    smoke = SmokeReport(
        staged.name, 1, "embedded", "2.51.0", "ONNX Runtime 1.19.2", (SmokeCheck("golden", passed=True),),
        latency=Latency(1.0, 2.0, 3.0, 30),
    )  # fmt: skip
    return ModelReport(
        staged.name, Status.FAILED, sha256=staged.manifest.sha256, exporter="dynamo", opset=20, ir_version=9,
        max_batch_size=8, parity_cases=2, max_abs_diff=1e-6, nodes_exported=4, nodes_optimized=3, smoke=smoke,
        seconds={"export": 1.5, "smoke": 0.5}, size=1234,
    )  # fmt: skip


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Connection:
    """Connect to a sqlite store that all tests share."""
    root = tmp_path_factory.mktemp("mlflow")
    return connect(Tracking(f"sqlite:///{root}/mlflow.db", "repogen", register=True, root=root))


@pytest.fixture(scope="module")
def store(shared_store: Connection) -> Connection:
    """Return a connection to the store that all tests share; each test uses its own models."""
    set_servers(shared_store.tracking.uri)
    return shared_store


@pytest.fixture
def track(store: Connection) -> Callable[..., MlflowTracker]:
    """Return a function that begins to track a build of models."""

    def begin(*names: str) -> MlflowTracker:
        tracker = MlflowTracker(store)
        if names:
            tracker.start({name: {"repogen.source": "torch"} for name in names})
        return tracker

    return begin
