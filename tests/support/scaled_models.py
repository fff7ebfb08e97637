"""Published versions of tiny models that multiply their input by a factor, so that each version answers differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor, OnnxArtifact
from repogen.artifacts.steps import EnsembleArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import ModelConfig, Provenance
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json
from repogen.repository.publish import publish
from repogen.repository.stage import stage_version
from repogen.repository.workspace import prepare_stage_root
from repogen.targets import DEFAULT_RELEASE
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import Artifact

_BATCH = 8


@dataclass(frozen=True)
class Scaled:
    """A version to publish.

    Attributes:
        factor: What the served model multiplies by.
        golden: What the golden tensors say; None for the same. Another factor makes the smoke test fail.
        size: Numbers per row; another size is a breaking change.
        content: Bytes of model.onnx in place of the graph.
    """

    factor: float
    golden: float | None = None
    size: int = 4
    content: bytes | None = None


def publish_scaled(repository: Path, name: str, scaled: Scaled) -> int:
    """Publish a version of a model ``y = x * factor``; return its number."""
    graph = graphs.model(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [graphs.value("x", ["batch", scaled.size])],
        [graphs.value("y", ["batch", scaled.size])],
        factor=np.array([scaled.factor], np.float32),
    )
    body = "instance_group { count: 1 kind: KIND_CPU }\n"
    return _publish(repository, name, scaled, graph, f'backend: "onnxruntime"\n{body}')


def publish_ensemble(repository: Path, name: str, step: str, scaled: Scaled) -> int:
    """Publish a version of an ensemble of one step; ``scaled`` has the factor of the step."""
    body = (
        'platform: "ensemble"\nensemble_scheduling { step { model_name: "%s" model_version: -1\n'
        '  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }\n'
    )
    return _publish(repository, name, scaled, None, body % step)


def _publish(repository: Path, name: str, scaled: Scaled, graph: onnx.ModelProto | None, body: str) -> int:
    shape = ("batch", scaled.size)
    signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
    tensors = "".join(
        f'{kind} {{ name: "{tensor}" data_type: TYPE_FP32 dims: [ {scaled.size} ] }}\n'
        for kind, tensor in (("input", "x"), ("output", "y"))
    )
    config = ModelConfig(name, f'name: "{name}"\nmax_batch_size: {_BATCH}\n{tensors}{body}', _BATCH, signature)
    exporter = "ensemble" if graph is None else "dynamo"
    provenance = Provenance({}, "", "0" * 64, {}, DEFAULT_RELEASE, exporter, 17, 8, 1, 1, 1, 0.0, 0.0)
    with prepare_stage_root(repository, None) as root:
        scratch = root / "golden"
        scratch.mkdir()
        artifact: Artifact
        if graph is None:
            artifact = EnsembleArtifact((), signature)
        else:
            (scratch / "model.onnx").write_bytes(scaled.content or graph.SerializeToString())
            artifact = OnnxArtifact(
                scratch / "model.onnx",
                external_data=False,
                signature=signature,
                opset=17,
                ir_version=8,
                nodes=1,
                exporter="dynamo",
            )
        _write_golden(scratch, scaled)
        staged = stage_version(root, repository, config, artifact, scratch, provenance)
        return publish(staged, repository, breaking=True).version


def _write_golden(directory: Path, scaled: Scaled) -> None:
    x = np.random.default_rng(0).standard_normal((3, scaled.size), np.float32)
    factor = np.float32(scaled.factor if scaled.golden is None else scaled.golden)
    np.savez(directory / GOLDEN_NPZ, allow_pickle=False, x=x, y=x * factor)
    case = GoldenCase("seed=0", 3, (GoldenTensor("x", "x"),), (GoldenTensor("y", "y"),))
    (directory / GOLDEN_JSON).write_text(golden_to_json(Golden((case,), {"y": (1e-5, 1e-6)})), encoding="utf-8")
