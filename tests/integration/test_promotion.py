"""Promotion with gates that are measured on a real Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from repogen.artifacts.built_model import BatchReport, Golden, GoldenCase, GoldenTensor, OnnxArtifact
from repogen.artifacts.progress import Silent
from repogen.artifacts.promotion import Outcome, PromotionReport, Verdict
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Provenance
from repogen.registry.gates.ab_timing import Schedule
from repogen.registry.gates.flags import with_flags
from repogen.registry.promotion.promote import history, promote, rollback
from repogen.registry.promotion.request import PromotionRequest
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json
from repogen.repository.stage import stage_version
from repogen.spec.gates import GatesSpec
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from tests.integration.conftest import Project

    Weights = npt.NDArray[np.float32]

GATES = """\
import numpy as np


def accuracy(predict, data):
    with np.load(data) as stored:
        x, labels = stored["x"], stored["labels"]
    return {"accuracy": float((predict({"x": x})["y"].argmax(axis=1) == labels).mean()), "rows": len(x)}


def crash(predict, data):
    import os
    print("about to crash", flush=True)
    os.abort()
"""
PROVENANCE = Provenance({}, "", "0" * 64, {}, DEFAULT_RELEASE, "dynamo", 17, 8, 1, 1, 1, 1e-7, 1e-7)
SHORT = Schedule(blocks=8, round_seconds=0.01)
ROWS = 20
"""Rows of the evaluation data: more than max_batch_size."""


@dataclass(frozen=True)
class Release:
    """A registry of versions of model ``m``, and a directory with the files of the evaluation gate."""

    registry: SimulatedRegistry
    directory: Path

    def register(self, weights: Weights, *, slow: bool = False) -> int:
        """Register ``y = x @ weights``; a slow one also multiplies large matrices."""
        root = self.directory / f"stage-{len(self.registry.entries('m'))}"
        root.mkdir()
        artifact = _write_onnx(root / "model.onnx", weights, slow=slow)
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        np.savez(root / GOLDEN_NPZ, allow_pickle=False, x=x, y=x @ weights)
        case = GoldenCase("seed=0", 3, (GoldenTensor("x", "x"),), (GoldenTensor("y", "y"),))
        (root / GOLDEN_JSON).write_text(golden_to_json(Golden((case,), {"y": (1e-4, 1e-4)})), encoding="utf-8")
        spec = ModelSpec(source=TorchSource(factory="a.py:b"))
        verified = VerifiedModel(artifact, BatchReport(True, 8))  # noqa: FBT003
        config = configure("m", spec, verified, RenderOptions(targets()[DEFAULT_RELEASE]))
        staged = stage_version(root, root / "none", config, artifact, root, PROVENANCE)
        return self.registry.register(staged.version_dir).version

    def promote(self, version: int, *gates: str) -> PromotionReport:
        """Promote a version as champion."""
        active = with_flags(GatesSpec(), gates)
        request = PromotionRequest("m", version, "champion", active, self.directory, schedule=SHORT)
        return promote(self.registry, request, Silent())

    def champion(self) -> int | None:
        """Return the version that the alias points to."""
        return next((entry.version for entry in self.registry.entries("m") if "champion" in entry.aliases), None)


def _write_onnx(path: Path, weights: Weights, *, slow: bool) -> OnnxArtifact:
    signature = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 2)),))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    constants = {"w": weights}
    if slow:
        constants |= {"large": np.full((512, 512), 1 / 512, np.float32), "zero": np.zeros(1, np.float32)}
        nodes = [
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Mul", ["large", "sum"], ["p0"]),
            *(helper.make_node("MatMul", [f"p{i}", "large"], [f"p{i + 1}"]) for i in range(16)),
            helper.make_node("ReduceMean", ["p16"], ["mean"], keepdims=0),
            helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "nothing"], ["y"]),
        ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    ends = [
        [helper.make_tensor_value_info(t.name, onnx.TensorProto.FLOAT, list(t.shape)) for t in side]
        for side in (signature.inputs, signature.outputs)
    ]
    graph = helper.make_graph(nodes, "g", ends[0], ends[1], initializer=tensors)
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return OnnxArtifact(path, external_data=False, signature=signature, opset=17, ir_version=8, nodes=len(nodes),
                        exporter="dynamo")  # fmt: skip


@pytest.fixture(scope="module")
def right() -> Weights:
    """Return the weights from which the labels of the evaluation data are computed."""
    return np.random.default_rng(0).standard_normal((4, 2), np.float32)


@pytest.fixture
def release(tmp_path: Path, right: Weights) -> Release:
    """Return a registry, and evaluation data for which ``right`` has an accuracy of 1."""
    (tmp_path / "gates.py").write_text(GATES, encoding="utf-8")
    x = np.random.default_rng(1).standard_normal((ROWS, 4), np.float32)
    np.savez(tmp_path / "evaluation.npz", allow_pickle=False, x=x, labels=(x @ right).argmax(axis=1))
    return Release(SimulatedRegistry(tmp_path / "registry"), tmp_path)


EVALUATION = (
    "evaluation=gates.py:accuracy",
    "evaluation.data=evaluation.npz",
    "evaluation.metric=accuracy",
    "evaluation.min=0.95",
)


def test_slow_and_inaccurate_version_is_rejected_and_a_good_one_promoted(release: Release, right: Weights) -> None:
    """The first is promoted without a champion, the second fails its gates, the third is promoted and rolled back."""
    first, worse, good = release.register(right), release.register(-right, slow=True), release.register(2 * right)
    alone = release.promote(first, "smoke=off", "size.max_ratio=9")  # without serving
    assert (Outcome.PROMOTED, 0, first, "") == (alone.outcome, alone.exit_code, release.champion(), alone.server)
    assert [gate.note for gate in alone.gates if gate.measured == "-"] == ["no champion to compare with"]
    gates = (*EVALUATION, "evaluation.max_drop=0.005", "latency.max_ratio=3", "size.max_ratio=9")

    rejected = release.promote(worse, *gates)
    assert (Outcome.REFUSED, 1, first) == (rejected.outcome, rejected.exit_code, release.champion())
    failed = [gate.gate for gate in rejected.gates if gate.verdict is Verdict.FAILED]
    assert failed == ["size.max_ratio", "latency.max_ratio", "evaluation.min", "evaluation.max_drop"]

    moved = release.promote(good, *gates, "throughput")
    assert (Outcome.PROMOTED, good) == (moved.outcome, release.champion())
    assert moved.indicative
    measured = {gate.gate: gate.value for gate in moved.gates}
    assert (measured["evaluation.min"], measured["evaluation.max_drop"], measured["evaluation[rows]"]) == (
        1.0,
        0.0,
        ROWS,
    )

    assert (Outcome.ROLLED_BACK, first) == (rollback(release.registry, "m", "champion").outcome, release.champion())
    all_periods = history(release.registry, "m").periods
    assert [(period.version, period.why) for period in all_periods] == [
        (first, "promote"), (good, "promote"), (first, "rollback")]  # fmt: skip
    assert set(all_periods[1].figures) >= {
        "smoke",
        "parity.max_abs_diff",
        "latency.max_ratio",
        "evaluation.min",
        "server",
    }


def test_crash_of_evaluation_code_is_a_failed_gate(release: Release, right: Weights) -> None:
    """The note has the signal and the last output; the alias is not set."""
    report = release.promote(release.register(right), "smoke=off", "evaluation=gates.py:crash", "evaluation.min=1")
    (failed,) = (gate for gate in report.gates if gate.verdict is Verdict.FAILED)
    assert (failed.gate, report.exit_code, release.champion()) == ("evaluation.min", 1, None)
    assert "was killed by SIGABRT" in failed.note
    assert "about to crash" in failed.note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gate", "speed=1"), "error: --gate speed=1: there is no gate 'speed'"),
        ((), "error: no MLflow tracking server is configured"),
    ],
)
def test_invalid_arguments(
    new_project: Callable[[Path], Project],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """Exit 2, before a server is contacted."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = new_project(tmp_path / "project").run("promote", "tiny", *arguments)
    assert (2, message) == (
        run.returncode,
        next(line for line in run.stderr.splitlines() if "error:" in line)[: len(message)],
    )
