"""Small ONNX models, staged as in a build, and one real Triton for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx
import pytest
from onnx import helper

from repogen.artifacts.built_model import BatchReport, Golden, GoldenCase, GoldenTensor, OnnxArtifact
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode, RunningTriton
from repogen.artifacts.tensors import DTYPES, Arrays, Signature, TensorSpec
from repogen.artifacts.versions import ModelConfig, Provenance, StagedVersion
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, first_golden_inputs, golden_to_json
from repogen.repository.stage import stage_version
from repogen.repository.workspace import private_repository
from repogen.serving.control import VARIABLE
from repogen.serving.servers import find_server
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.sections.model import TritonSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

TARGET = targets()[DEFAULT_RELEASE]
PROVENANCE = Provenance({}, "", "0" * 64, {}, DEFAULT_RELEASE, "dynamo", 17, 8, 1, 1, 1, 0.0, 0.0)


class SharedTriton(Protocol):
    """The value of the fixture ``triton``."""

    @property
    def running(self) -> RunningTriton:
        """A live embedded Triton in explicit mode."""

    @property
    def repository(self) -> Path:
        """Its repository."""


@dataclass(frozen=True)
class Model:
    """A model to stage: a graph and one golden case.

    Attributes:
        signature: Full shapes.
        nodes: Nodes of the graph.
        inputs: Inputs of the case, in the graph's shapes.
        outputs: Outputs of the case, in the graph's shapes.
        max_batch_size: 0 when the model does not batch.
        triton: The section ``triton`` of the spec.
        weights: Initializers by name.
    """

    signature: Signature
    nodes: list[onnx.NodeProto]
    inputs: Arrays
    outputs: Arrays
    max_batch_size: int = 0
    triton: TritonSpec = field(default_factory=TritonSpec)
    weights: Arrays | None = None


def _write_onnx(model: Model, path: Path, *, external: bool) -> OnnxArtifact:
    def info(tensor: TensorSpec) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, DTYPES[tensor.dtype].onnx, list(tensor.shape))

    weights = [onnx.numpy_helper.from_array(array, name) for name, array in (model.weights or {}).items()]
    inputs, outputs = map(info, model.signature.inputs), map(info, model.signature.outputs)
    graph = helper.make_graph(model.nodes, "g", list(inputs), list(outputs), initializer=weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(
        proto,
        path,
        save_as_external_data=external,
        location=f"{path.name}.data" if external else None,
        size_threshold=0,
    )
    return OnnxArtifact(path, external, model.signature, 17, 8, len(model.nodes), "dynamo")


def _write_golden(model: Model, directory: Path, tolerance: tuple[float, float]) -> None:
    arrays = {f"in{i}": array for i, array in enumerate(model.inputs.values())}
    arrays |= {f"out{i}": array for i, array in enumerate(model.outputs.values())}
    np.savez(directory / GOLDEN_NPZ, allow_pickle=False, **arrays)
    batch = len(next(iter(model.inputs.values()))) if model.max_batch_size else 0
    case = GoldenCase(
        "seed=0",
        batch,
        tuple(GoldenTensor(name, f"in{i}") for i, name in enumerate(model.inputs)),
        tuple(GoldenTensor(name, f"out{i}") for i, name in enumerate(model.outputs)),
    )
    golden = Golden((case,), dict.fromkeys(model.outputs, tolerance))
    (directory / GOLDEN_JSON).write_text(golden_to_json(golden), encoding="utf-8")


@dataclass(frozen=True)
class Stage:
    """A stage root whose private repository one Triton serves."""

    root: Path
    scratch: Path

    @property
    def repository(self) -> Path:
        """The private repository."""
        return private_repository(self.root)

    def add(
        self,
        name: str,
        model: Model,
        *,
        config: str | None = None,
        content: bytes | None = None,
        external: bool = False,
        tolerance: tuple[float, float] = (1e-5, 1e-6),
    ) -> StagedVersion:
        """Stage ``model``; ``config`` and ``content`` replace config.pbtxt and model.onnx."""
        directory = self.scratch / name
        directory.mkdir()
        artifact = _write_onnx(model, directory / "model.onnx", external=external)
        if content is not None:
            artifact.path.write_bytes(content)
        _write_golden(model, directory, tolerance)
        spec = ModelSpec(source=TorchSource(factory="a.py:b"), triton=model.triton)
        verdict = BatchReport(model.max_batch_size > 0, model.max_batch_size)
        golden_inputs = partial(first_golden_inputs, directory)
        verified = VerifiedModel(artifact, verdict, golden_inputs=golden_inputs)
        rendered_config = configure(name, spec, verified, RenderOptions(TARGET))
        if config is not None:
            rendered_config = ModelConfig(name, config, rendered_config.max_batch_size, rendered_config.signature)
        return stage_version(self.root, self.scratch / "published", rendered_config, artifact, directory, PROVENANCE)


@pytest.fixture(scope="session")
def stage(triton: SharedTriton, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return the stage whose private repository the session's Triton serves; each test has its own model names."""
    root = triton.repository.parent
    assert triton.repository == private_repository(root)
    return Stage(root, tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def start() -> Callable[[Path, ControlMode], AbstractContextManager[RunningTriton]]:
    """Return a function that starts another Triton."""
    return find_server("embedded", TARGET, Silent()).running


@pytest.fixture
def remote(triton: SharedTriton, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningTriton]:
    """Return the session's Triton as a remote server, which does not read this machine's files."""
    header = triton.running.endpoint.control
    assert header is not None
    monkeypatch.setenv(VARIABLE, f"{header.key}={header.value}")
    address = triton.running.endpoint.grpc
    with find_server(address, TARGET, Silent()).running(triton.repository, ControlMode.EXPLICIT) as running:
        yield running


@pytest.fixture
def linear() -> Model:
    """Return ``y = x @ w`` over rows of 4, up to 8 of them."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4), np.float32), rng.standard_normal((4, 2), np.float32)
    return Model(
        Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 2)),)),
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": x},
        {"y": x @ w},
        max_batch_size=8,
        weights={"w": w},
    )
