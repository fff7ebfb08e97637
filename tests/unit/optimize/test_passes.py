"""A pass whose result fails a check is dropped, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from repogen.artifacts.built_model import UNCHANGED
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.onnx_graph.normalize import NormalizeOptions, normalize
from repogen.optimize.interface import Pass, PassRequest
from repogen.optimize.passes import SelectedPass, Workspace, optimize, select_passes
from repogen.spec.models import PassSpec
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact, PassOutcome

OPTIONS = NormalizeOptions(
    Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 4)),)),
    targets()["24.10"],
    external_data=False,
    exporter="dynamo",
)


def proto(*kinds: str, batch: int | str = "batch", rows: int = 4) -> onnx.ModelProto:
    """Return a chain of one-input nodes from x to y, whose last dim is ``rows``."""
    names = ["x", *(f"v{i}" for i in range(1, len(kinds))), "y"]
    nodes = [helper.make_node(kind, [names[i]], [names[i + 1]]) for i, kind in enumerate(kinds)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, rows]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


class Fake(Pass):
    """A pass whose result is that of a function."""

    name = "fake"

    def __init__(self, make: Callable[[], onnx.ModelProto], reason: str = "", problem: str = "") -> None:
        """Keep the function, the reason why the pass does not apply, and what is wrong with its result."""
        self._make = make
        self._reason = reason
        self._problem = problem

    def requires(self, request: PassRequest) -> str:
        """Return the reason."""
        assert request.artifact.path.exists()
        assert request.directory.is_dir()
        assert request.target is OPTIONS.target
        return self._reason

    def __call__(self, request: PassRequest) -> ir.Model:
        """Call the function."""
        del request
        return ir.from_proto(self._make())

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Return the problem."""
        assert len(result.graph) != request.artifact.nodes
        return self._problem


class GatedFake(Fake):
    """A pass whose gain is measured."""

    gated = True


def run(
    artifact: OnnxArtifact, directory: Path, fake: Fake, times: int = 1
) -> tuple[OnnxArtifact, tuple[PassOutcome, ...]]:
    """Run a fake pass, once or several times."""
    # model_construct: the fake is not registered.
    selected = SelectedPass(PassSpec.model_construct(name="fake", options={}), fake)
    return optimize(artifact, [selected] * times, Workspace(OPTIONS, directory, directory))


@pytest.fixture
def exported(tmp_path: Path) -> OnnxArtifact:
    """Return a model of three nodes."""
    return normalize(ir.from_proto(proto("Sin", "Identity", "Cos")), tmp_path / "model.onnx", OPTIONS)


def fails() -> onnx.ModelProto:
    """Fail with a message of several lines."""
    raise RuntimeError("no luck\nand a long story")


def casting() -> onnx.ModelProto:
    """Return a graph with another dtype of its output."""
    model = proto("Sin", "Cast")
    model.graph.node[1].attribute.append(helper.make_attribute("to", TensorProto.FLOAT16))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        (Fake(fails), "RuntimeError: no luck"),
        (Fake(lambda: proto("Sin", "Cos"), reason="the model has external data"), "the model has external data"),
        (Fake(lambda: proto("Cos", "Sin", "Identity")), UNCHANGED),
        (Fake(lambda: proto("Sin", "Nonsense")), "its result fails onnx.checker: "),
        (
            Fake(lambda: proto("Sin", "Cos", batch=2)),
            "it changed the dims of input 'x' from ['batch', 4] to [2, 4]",
        ),
        (Fake(lambda: proto("Sin", "Cos"), problem="it forgot something"), "it forgot something"),
        (
            Fake(lambda: proto("Sin", "Cos", rows=5)),
            "it changed the dims of input 'x' from ['batch', 4] to ['batch', 5]",
        ),
        (Fake(casting), "it changed 'y' from float32 ['batch', 4] to float16 ['batch', 4]"),
        (
            Fake(lambda: proto("Sin", "Cos", "Sin", "Cos")),
            "ONNX Runtime's own optimized graph would have more nodes (2 -> 4)",
        ),
    ],
)
def test_pass_with_an_invalid_result_is_dropped(
    exported: OnnxArtifact, tmp_path: Path, fake: Fake, reason: str
) -> None:
    """The exported model is used unchanged."""
    before = exported.path.read_bytes()
    artifact, (outcome,) = run(exported, tmp_path, fake)
    assert artifact is exported
    assert (outcome.applied, outcome.nodes_before, outcome.nodes_after) == (False, 3, 3)
    assert outcome.reason.startswith(reason)
    assert str(tmp_path) not in outcome.reason
    assert exported.path.read_bytes() == before


def test_result_that_onnx_runtime_cannot_load_is_dropped(exported: OnnxArtifact, tmp_path: Path) -> None:
    """Even if onnx.checker accepts it: it does not check unknown domains."""

    def foreign() -> onnx.ModelProto:
        model = proto("Sin", "Cos")
        model.graph.node[0].domain = "com.nobody"
        model.opset_import.append(helper.make_opsetid("com.nobody", 1))
        return model

    artifact, (outcome,) = run(exported, tmp_path, Fake(foreign))
    assert artifact is exported
    assert not outcome.applied
    assert outcome.reason
    assert str(tmp_path) not in outcome.reason


def test_next_pass_starts_from_the_previous_result(exported: OnnxArtifact, tmp_path: Path) -> None:
    """Results are normalized like an export, and a pass may run twice."""
    helps = Fake(lambda: proto("Sin", "Cos"))
    artifact, (first, second) = run(exported, tmp_path, helps, times=2)
    assert (first.applied, first.nodes_before, first.nodes_after, first.reason) == (True, 3, 2, "")
    assert (second.applied, second.nodes_before, second.reason) == (False, 2, UNCHANGED)
    assert artifact.nodes == 2
    assert onnx.load(artifact.path).producer_name == "repogen"


def test_graph_of_a_gated_pass_may_have_more_nodes(exported: OnnxArtifact, tmp_path: Path) -> None:
    """Its latency is measured instead; files of the tool do not stay."""
    artifact, (outcome,) = run(exported, tmp_path, GatedFake(lambda: proto("Sin", "Cos", "Sin", "Cos")))
    assert (outcome.applied, artifact.nodes) == (True, 4)
    assert sorted(path.name for path in artifact.path.parent.iterdir()) == ["model.onnx"]


def test_files_of_a_result_that_is_dropped_are_removed(exported: OnnxArtifact, tmp_path: Path) -> None:
    """Each is as large as the model."""
    run(exported, tmp_path, Fake(casting))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["model.onnx"]


def test_onnxsim_removes_an_identity(exported: OnnxArtifact, tmp_path: Path) -> None:
    """With the registered pass."""
    passes = select_passes([PassSpec(name="onnxsim")])
    artifact, (outcome,) = optimize(exported, passes, Workspace(OPTIONS, tmp_path, tmp_path))
    assert (outcome.name, outcome.applied, artifact.nodes) == ("onnxsim", True, 2)
