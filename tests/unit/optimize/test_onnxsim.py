"""The pass ``onnxsim`` gives the same result without the weights that it would not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxsim
import pytest
from onnx import helper, numpy_helper

from repogen.onnx_graph.normalize import describe
from repogen.optimize.interface import PassRequest
from repogen.optimize.onnxsim import Onnxsim
from repogen.plugins import NoOptions
from repogen.targets import targets

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 512  # a square float32 weight has 1 MiB
TARGET = targets()["24.10"]


def model(*nodes: onnx.NodeProto, inputs: str = "float [batch, 512] x", **weights: int) -> onnx.ModelProto:
    """Return a graph from x to y; each weight is square, and equal numbers mean equal weights."""
    initializers = [
        numpy_helper.from_array(np.random.default_rng(seed).standard_normal((ROWS, ROWS), np.float32), name)
        for name, seed in weights.items()
    ]
    initializers.append(numpy_helper.from_array(np.arange(3), "rows"))
    parsed = onnx.parser.parse_graph(f"g ({inputs}) => (float [batch, 512] y) {{ y = Identity(x) }}")
    graph = helper.make_graph(list(nodes), "g", list(parsed.input), list(parsed.output), initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def node(operator: str, *names: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; the last name is its output."""
    return helper.make_node(operator, names[:-1], names[-1:], **attributes)


GRAPHS = {
    "products": model(node("MatMul", "x", "a", "u"), node("Identity", "u", "v"), node("Gemm", "v", "b", "y"), a=1, b=2),
    "duplicates": model(node("MatMul", "x", "a", "u"), node("MatMul", "u", "b", "y"), a=1, b=1),
    "a weight that is transposed": model(node("Transpose", "a", "t"), node("MatMul", "x", "t", "y"), a=1),
    "a product of weights": model(node("MatMul", "a", "b", "c"), node("MatMul", "x", "c", "y"), a=1, b=2),
    "a weight with two uses": model(
        node("Neg", "a", "n"), node("MatMul", "x", "a", "u"), node("Gemm", "u", "n", "y"), a=1
    ),
    "rows of a weight": model(
        node("Gather", "a", "rows", "r"), node("ReduceSum", "r", "s", keepdims=0), node("Add", "x", "s", "y"), a=1
    ),
    "an unused weight": model(node("Neg", "x", "y"), a=1),
    "a weight of a branch": model(
        node("Shape", "x", "s"),
        node("ReduceProd", "s", "p", keepdims=0),
        node("Cast", "p", "c", to=9),
        node(
            "If",
            "c",
            "y",
            then_branch=helper.make_graph(
                [node("MatMul", "x", "a", "z")], "then", [], [helper.make_empty_tensor_value_info("z")]
            ),
            else_branch=helper.make_graph(
                [node("Neg", "x", "w")], "else", [], [helper.make_empty_tensor_value_info("w")]
            ),
        ),
        a=1,
    ),
}


def request(proto: onnx.ModelProto, directory: Path, data: str | None = None) -> PassRequest:
    """Write a graph, with its weights in a second file if ``data`` is its name; return the request for it."""
    path = directory / "model.onnx"
    onnx.save(proto, path, save_as_external_data=data is not None, location=data)
    artifact = describe(ir.load(path), path, "dynamo")
    return PassRequest(artifact, NoOptions(), TARGET, directory, directory)


def content(graph: onnx.GraphProto) -> tuple[list[str], dict[str, bytes], list[str], list[str]]:
    """Return the nodes, the weights, and the names of the inputs and outputs."""
    weights = {tensor.name: numpy_helper.to_array(tensor).tobytes() for tensor in graph.initializer}
    nodes = [str(node) for node in graph.node]
    return nodes, weights, [value.name for value in graph.input], [value.name for value in graph.output]


@pytest.mark.parametrize("name", GRAPHS)
def test_result_is_that_of_the_whole_graph(name: str, tmp_path: Path) -> None:
    """Weights that onnxsim computes with, removes, or merges are not withheld."""
    expected, _ = onnxsim.simplify(GRAPHS[name])
    result = Onnxsim()(request(GRAPHS[name], tmp_path))
    assert content(ir.to_proto(result).graph) == content(ir.to_proto(ir.from_proto(expected)).graph)


@pytest.mark.parametrize("data", [None, "model.onnx.data"])
def test_large_weights_are_not_given_to_onnxsim(
    data: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serializes and parses its input several times. External data is possible for this reason."""
    sizes: list[int] = []
    simplify = onnxsim.simplify

    def measure(proto: onnx.ModelProto) -> object:
        sizes.append(proto.ByteSize())
        return simplify(proto)

    monkeypatch.setattr(onnxsim, "simplify", measure)
    proto = GRAPHS["products"]
    expected = {tensor.name: numpy_helper.to_array(tensor).tobytes() for tensor in proto.graph.initializer[:2]}
    result = Onnxsim()(request(onnx.ModelProto.FromString(proto.SerializeToString()), tmp_path, data))
    assert sizes[0] < 2**20
    values = result.graph.initializers.values()
    assert {value.name: value.const_value.tobytes() for value in values if value.const_value} == expected
