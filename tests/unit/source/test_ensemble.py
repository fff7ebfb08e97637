"""Tests for ensembles: original and published steps composed, and the shapes that Triton passes between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from repogen.artifacts.built_model import Lossy, Quality
from repogen.artifacts.source import PassThroughSource
from repogen.artifacts.steps import EnsembleArtifact, EnsembleStep
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.interface import BuiltStep
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

BATCH = {"batch": {"max": 6}}
DOUBLE = """\
import torch


class Double(torch.nn.Module):
    def forward(self, x):
        return x.sum(1) * 2


def build():
    return Double()
"""
SPREAD = """\
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb.get_input_tensor_by_name(request, "value").as_numpy()
            assert value.shape[1:] == (1,), value.shape
            responses.append(pb.InferenceResponse([pb.Tensor("pair", np.repeat(value, 2, axis=1))]))
        return responses
"""


@pytest.fixture
def built(tmp_path: Path) -> dict[str, BuiltStep]:
    """Return two steps: a graph that sums rows to ``[batch]``, and code that accepts ``[batch, 1]``."""
    (tmp_path / "models.py").write_text(DOUBLE)
    (tmp_path / "spread.py").write_text(SPREAD)
    graph, code = tmp_path / "summed" / "1", tmp_path / "spread" / "1"
    graph.mkdir(parents=True)
    code.mkdir(parents=True)
    (code / "model.py").write_text(SPREAD)
    (code / "config.pbtxt").write_text('backend: "python"\n')
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch"])
    two = onnx.numpy_helper.from_array(np.array(2, np.float32), "two")
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    nodes = [
        onnx.helper.make_node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
        onnx.helper.make_node("Mul", ["s", "two"], ["y"]),
    ]
    onnx_graph = onnx.helper.make_graph(nodes, "g", [x], [y], [two, axis])
    onnx.save_model(
        onnx.helper.make_model(onnx_graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        graph / "model.onnx",
    )
    return {
        "summed": BuiltStep(
            ModelSpec.model_validate(
                {
                    "source": {"factory": "models.py:build"},
                    "inputs": {"x": {"dtype": "float32", "shape": ["batch", 3]}},
                    "outputs": ["y"],
                    "dims": BATCH,
                }
            ),
            graph,
            Signature((TensorSpec("x", "float32", ("batch", 3)),), (TensorSpec("y", "float32", ("batch",)),)),
            4,
        ),
        "spread": BuiltStep(
            ModelSpec.model_validate(
                {
                    "source": {"kind": "python", "path": "spread.py"},
                    "inputs": {"value": {"dtype": "float32", "shape": ["batch", 1]}},
                    "outputs": {"pair": {"dtype": "float32", "shape": ["batch", 2]}},
                    "dims": BATCH,
                }
            ),
            code,
            Signature((TensorSpec("value", "float32", ("batch", 1)),), (TensorSpec("pair", "float32", ("batch", 2)),)),
            0,
        ),
    }


@pytest.fixture
def compose(built: dict[str, BuiltStep], tmp_path: Path) -> Callable[..., SourceModel]:
    """Return a function that loads an ensemble of these steps."""

    def composed(*steps: dict[str, Any], **more: Any) -> SourceModel:
        spec = {"source": {"kind": "ensemble", "steps": list(steps)}, **more}
        return load_source(ModelSpec.model_validate(spec), tmp_path, None, built, tmp_path)

    return composed


BOTH = (
    {"model": "spread", "inputs": {"value": "sum"}, "outputs": {"pair": "pair"}},
    {"model": "summed", "inputs": {"x": "x"}, "outputs": {"y": "sum"}},
)


def test_published_code_gets_its_parameters(
    compose: Callable[..., SourceModel], built: dict[str, BuiltStep], tmp_path: Path
) -> None:
    """Those of its config.pbtxt, as from Triton; the original gets those of the spec."""
    code = SPREAD.replace("import numpy as np", "import json\n\nimport numpy as np").replace(
        "    def execute",
        """    def initialize(self, args):
        self.factor = float(json.loads(args["model_config"])["parameters"]["factor"]["string_value"])

    def execute""",
    )
    code = code.replace("np.repeat(value, 2, axis=1)", "np.repeat(value * self.factor, 2, axis=1).astype(np.float32)")
    for file in (tmp_path / "spread.py", built["spread"].version_dir / "model.py"):
        file.write_text(code)
    config = 'backend: "python" parameters { key: "factor" value: { string_value: "3" } }'
    (built["spread"].version_dir / "config.pbtxt").write_text(config)
    triton = built["spread"].model.triton.model_copy(update={"parameters": {"factor": "2"}})
    spread = replace(built["spread"], model=built["spread"].model.model_copy(update={"triton": triton}))
    built["spread"] = spread
    source = compose(*BOTH)
    inputs = source.examples({"batch": 3}, 0)
    assert isinstance(source.origin, PassThroughSource)
    original, published = source.reference(inputs)["pair"], source.origin.published(inputs)["pair"]
    assert np.allclose(original.astype(np.float64) * 1.5, published.astype(np.float64), rtol=1e-5)


def test_steps_run_in_the_order_of_their_tensors(compose: Callable[..., SourceModel]) -> None:
    """Their order in the spec does not matter; a batching step passes a ``[batch]`` tensor as ``[batch, 1]``."""
    source = compose(*BOTH)

    inputs = source.examples({"batch": 3}, 0)
    expected = source.reference(inputs)["pair"]

    assert isinstance(source.origin, PassThroughSource)
    assert isinstance(source.origin.artifact, EnsembleArtifact)
    assert [step.model for step in source.origin.artifact.steps] == ["summed", "spread"]
    sums = inputs["x"].astype(np.float64).sum(1, keepdims=True) * 2
    published = source.origin.published(inputs)["pair"]
    assert np.allclose(expected.astype(np.float64), np.repeat(sums, 2, axis=1), rtol=1e-5)
    assert np.allclose(published.astype(np.float64), expected.astype(np.float64), rtol=1e-5)


def test_inputs_dims_and_examples_come_from_the_steps(compose: Callable[..., SourceModel]) -> None:
    """The maximum batch is the smallest of the steps."""
    source = compose(*BOTH)

    assert [spec.name for spec in source.signature.inputs] == ["x"]
    assert source.signature.outputs == (TensorSpec("pair", "float32", ("batch", 2)),)
    assert source.dims["batch"].max == 4


def test_equal_names_can_be_omitted(compose: Callable[..., SourceModel]) -> None:
    """Tensors that no step reads are outputs."""
    source = compose({"model": "summed"})

    assert source.signature.outputs == (TensorSpec("y", "float32", ("batch", 1)),)
    assert isinstance(source.origin.artifact, EnsembleArtifact)  # type: ignore[union-attr]
    assert source.origin.artifact.steps == (EnsembleStep("summed", {"x": "x"}, {"y": "y"}),)  # type: ignore[union-attr]


def test_pinned_version_is_compared_with_itself(compose: Callable[..., SourceModel]) -> None:
    """Its original may be a different model, so the report has a note."""
    pinned = {**BOTH[1], "version": 1}
    source = compose(pinned, examples="given.py:rows", dims={"batch": {"max": 3}})

    assert source.notes == ("step summed is not compared with its original: version 1 is pinned",)
    assert source.dims["batch"].max == 3
    assert source.reference(source.examples({"batch": 2}, 0))["sum"].tolist() == [[6.0], [6.0]]


def test_lossy_step_is_compared_with_itself(built: dict[str, BuiltStep], tmp_path: Path) -> None:
    """Its quality was measured instead of parity; its outputs may change with the batch as in its own build."""
    lossy = Lossy(("int8-dynamic",), "qint8", Quality(0.958, 0.956, 0.01))
    steps = built | {"summed": replace(built["summed"], lossy=lossy, max_abs_diff=0.25)}
    graph = steps["summed"].version_dir / "model.onnx"
    model = onnx.load(graph)
    model.graph.initializer[0].raw_data = np.array(2.5, np.float32).tobytes()
    onnx.save(model, graph)
    spec = ModelSpec.model_validate({"source": {"kind": "ensemble", "steps": [{"model": "summed"}]}})
    source = load_source(spec, tmp_path, None, steps, tmp_path)
    assert isinstance(source.origin, PassThroughSource)
    inputs = source.examples({"batch": 3}, 0)
    assert np.array_equal(source.reference(inputs)["y"], source.origin.published(inputs)["y"])
    assert (source.precision, source.noise) == ("qint8", {"y": 0.5})
    assert source.notes == (f"step summed is not compared with its original: it is {lossy}",)
    with_parity = steps | {"summed": replace(steps["summed"], lossy=Lossy(("fp16",), "float16"))}
    source = load_source(spec, tmp_path, None, with_parity, tmp_path)
    assert isinstance(source.origin, PassThroughSource)
    assert not np.array_equal(source.reference(inputs)["y"], source.origin.published(inputs)["y"])
    assert (source.precision, source.noise, source.notes) == ("float16", {}, ())


@pytest.fixture(autouse=True)
def _write_examples(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(
        "import numpy as np\n\n\ndef rows(batch):\n    return {'x': np.ones((batch, 3), np.float32)}\n"
    )


@pytest.mark.parametrize(
    ("steps", "more", "message"),
    [
        (({"model": "summed", "inputs": {"z": "x"}},), {}, "step summed has no input 'z'"),
        (({"model": "summed", "outputs": {"z": "q"}},), {}, "step summed has no output 'z'"),
        (({"model": "summed"},), {"outputs": ["z"]}, "no step produces output 'z' of the ensemble"),
        (
            (
                {"model": "spread", "inputs": {"value": "a"}, "outputs": {"pair": "b"}},
                {"model": "summed", "inputs": {"x": "b"}, "outputs": {"y": "a"}},
            ),
            {},
            "the steps form a cycle: spread, summed",
        ),
        (({**BOTH[1], "version": 1},), {}, "the bounds of dim 'batch' are unknown"),
    ],
)
def test_steps_that_do_not_match_are_rejected(
    compose: Callable[..., SourceModel], steps: tuple[dict[str, Any], ...], more: dict[str, Any], message: str
) -> None:
    """Each error has a specific message."""
    with pytest.raises(SourceError, match=message):
        compose(*steps, **more)
