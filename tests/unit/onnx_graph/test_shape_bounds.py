"""Shapes are inferred only if the inference allocates little: onnx has no limits on the rank of a value."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from repogen.artifacts.tensors import TensorSpec
from repogen.onnx_graph.output_shapes import infer_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

MANY = 2**40


def tensor(name: str, *dims: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Return a value with a shape."""
    return helper.make_tensor_value_info(name, dtype, dims)


def shape(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    """Return a value that can be a shape."""
    return tensor(name, *dims, dtype=TensorProto.INT64)


def constant(name: str, *values: int) -> onnx.TensorProto:
    """Return a constant with values."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def without_shape(name: str) -> onnx.ValueInfoProto:
    """Return a value whose shape is not declared."""
    value = onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=TensorProto.FLOAT))
    return onnx.ValueInfoProto(name=name, type=value)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """Return a model with the input ``x`` and the output ``y``."""
    proto = helper.make_graph(nodes, "g", [tensor("x", "n", 3), *inputs], [without_shape("y")], constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)


def node(kind: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Return a node; ``inputs`` are separated by spaces."""
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def branch(*nodes: onnx.NodeProto, declared: Sequence[onnx.ValueInfoProto] = ()) -> onnx.GraphProto:
    """Return a branch of a condition."""
    return helper.make_graph(nodes, "b", [], [without_shape("b")], value_info=declared)


def chain(kind: str, count: int, **attributes: Any) -> list[onnx.NodeProto]:
    """Return nodes of one operator, each with the output of the one before."""
    names = ["x", *(f"v{number}" for number in range(1, count)), "y"]
    return [node(kind, source, target, **attributes) for source, target in pairwise(names)]


EXPAND = node("Expand", "x s")
SEQUENCE = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, [1] * 100_000)
SPARSE = helper.make_sparse_tensor(constant("w", 1), constant("i", 0), [MANY])
BOMBS = {
    "input": graph([EXPAND], [shape("s", MANY)]),
    "constant of shape": graph([node("ConstantOfShape", "n", "s"), EXPAND], constants=[constant("n", MANY)]),
    "reshape": graph([node("Reshape", "x n", "s"), EXPAND], constants=[constant("n", MANY)]),
    "range": graph([node("Range", "a b c", "s"), EXPAND], constants=[constant(each, 1) for each in "abc"]),
    "concat": graph([node("Concat", "t t", "s", axis=0), EXPAND], [shape("t", 2**39)]),
    "flat": graph([node("Reshape", "t n", "s"), EXPAND], [shape("t", 2**20, 2**20)], [constant("n", -1)]),
    "sparse": graph([node("Constant", "", "s", sparse_value=SPARSE), EXPAND]),
    "tile": graph([node("Tile", "t t", "s"), EXPAND], [shape("t", 1)]),
    "branch": graph([
        node("If", "c", then_branch=branch(node("Expand", "x s", "b")), else_branch=branch(node("Relu", "x", "b")))
    ], [shape("s", MANY), tensor("c", dtype=TensorProto.BOOL)]),
    "declared in a branch": graph([
        node(
            "If", "c",
            then_branch=branch(node("Expand", "x s", "b"), declared=[shape("s", MANY)]),
            else_branch=branch(node("Relu", "x", "b")),
        )
    ], [tensor("c", dtype=TensorProto.BOOL)]),
    "unsqueeze": graph(chain("Unsqueeze", 2000, axes=list(range(64)))),
    "rank": graph([*chain("Relu", 200), node("Add", "x r", "z")], [tensor("r", *([1] * 5_000_000))]),
    "sequence": graph([node("SequenceAt", "q i", "v0"), *(node("Relu", f"v{n}", f"v{n + 1}") for n in range(99))],
                      [SEQUENCE, shape("i")]),
    "random": graph([node("RandomNormal", "", "v", shape=[1] * 5_000_000)]),
}  # fmt: skip


@pytest.fixture
def inferences(monkeypatch: pytest.MonkeyPatch) -> list[onnx.ModelProto]:
    """Return the models that onnx gets, which infers nothing."""
    models: list[onnx.ModelProto] = []

    def unchanged(model: onnx.ModelProto) -> onnx.ModelProto:
        models.append(model)
        return model

    monkeypatch.setattr(shape_inference, "infer_shapes", unchanged)
    return models


@pytest.mark.parametrize("name", BOMBS)
def test_ranks_without_a_limit_are_not_inferred(name: str, inferences: list[onnx.ModelProto]) -> None:
    """A graph of a few bytes could have a value of 2**40 dims, which take all memory of the machine."""
    shapes = infer_outputs(BOMBS[name], [TensorSpec("y", "float32", ())])
    assert not inferences
    assert shapes.unknown == {"y"}


def test_shapes_of_usual_graphs_are_inferred() -> None:
    """Shapes that depend on those of inputs, as exporters write them."""
    nodes = [
        node("Shape", "x", "dims"),
        node("Gather", "dims zero", "rows"),
        node("Unsqueeze", "rows", "length", axes=[0]),
        node("Concat", "length tail", "wanted", axis=0),
        node("Shape", "wanted", "number"),
        node("ConstantOfShape", "number", "ones", value=constant("v", 1)),
        node("Equal", "wanted minus", "is_kept"),
        node("Where", "is_kept ones wanted", "s"),
        node("Unsqueeze", "x", "wide", axes=[1]),
        node("Expand", "wide s", "expanded"),
        node("MatMul", "expanded w"),
    ]
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    weight = numpy_helper.from_array(np.zeros((3, 7), np.float32), "w")
    model = graph(nodes, constants=[zero, constant("tail", 4, 3), constant("minus", -1), weight])
    shapes = infer_outputs(model, [TensorSpec("y", "float32", ())])
    assert shapes.outputs[0].shape[2:] == (7,)
    assert not shapes.unknown
