"""Layer normalization of raw values, such as a pressure in Pa."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from repogen.onnx_graph.centering import center_all_values, center_raw_values


def graph(opset: int, *, layer: bool = False, **attributes: Any) -> ir.Model:
    """Return a scaled input [N, 3, 8], after a linear layer or not, into a LayerNormalization."""
    shape = [3, 8] if attributes.get("axis") in {1, -2} else [8]
    weights = {"factor": np.array(2), "matrix": np.eye(8), "scale": np.ones(shape)}
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        *([helper.make_node("MatMul", ["scaled", "matrix"], ["product"])] if layer else []),
        helper.make_node("LayerNormalization", ["product" if layer else "scaled", "scale"], ["y"], **attributes),
    ]
    body = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return ir.from_proto(shape_inference.infer_shapes(proto))


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": -2}, {"axis": 2}])
def test_values_of_101325_keep_their_deviation(opset: int, attributes: Any) -> None:
    """ONNX Runtime 1.19.2 has no digits of the variance left, and later releases lose some."""
    model = graph(opset, **attributes)
    center_raw_values(model)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    x = (101325 + 50 * np.random.default_rng(0).standard_normal((4, 3, 8))).astype(np.float32)
    (actual,) = session.run(None, {"x": x})
    axes = (1, 2) if attributes.get("axis") in {1, -2} else (2,)
    exact = 2 * x.astype(np.float64)
    exact -= exact.mean(axes, keepdims=True)
    expected = exact / np.sqrt((exact**2).mean(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_values_after_a_layer_are_not_centered() -> None:
    """It takes time, and they have no such level."""
    model = graph(20, layer=True)
    center_raw_values(model)
    assert [node.op_type for node in model.graph] == ["Mul", "MatMul", "LayerNormalization"]


def test_values_after_a_layer_can_be_centered() -> None:
    """The target's ONNX Runtime may disagree with PyTorch; nodes whose values are centered stay as they are."""
    model = graph(20, layer=True)
    assert center_all_values(model)
    assert [node.op_type for node in model.graph][-3:] == ["ReduceMean", "Sub", "LayerNormalization"]
    assert not center_all_values(model)
