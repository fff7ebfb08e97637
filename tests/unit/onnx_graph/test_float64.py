"""Functions of float64 that ONNX Runtime does not have, or that only its newest releases have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from repogen.onnx_graph.float64 import FLOAT64_GAPS
from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps


def computed(operator: str, x: Any, **attributes: Any) -> Any:
    """Return the result of an operator whose node has been replaced."""
    node = helper.make_node(operator, ["x"], ["z"], **attributes)
    ends: Any = ([helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n"])] for name in "xz")
    proto = helper.make_model(
        helper.make_graph([node], "g", *ends), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    model = ir.from_proto(proto)
    fill_kernel_gaps(model)
    assert {node.op_type for node in model.graph} & FLOAT64_GAPS <= {"Atan"}  # in float32
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, {"x": x})[0]


SPREAD = np.concatenate([np.linspace(-9, 9, 601), np.logspace(-12, 2, 300), -np.logspace(-12, 2, 300)])
SHARES = np.concatenate([np.linspace(-1, 1, 601), 1 - np.logspace(-15, -1, 100), np.logspace(-12, 0, 100)])
SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0])


@pytest.mark.parametrize(
    ("operator", "function", "x"),
    [
        ("Cos", np.cos, np.append(SPREAD, [1.7e9, 1e12, 0.0])),
        ("Tan", np.tan, SPREAD[np.abs(np.cos(SPREAD)) > 0.3]),
        ("Atan", np.arctan, np.concatenate([SPREAD, [1e30, -1e200, 1.7e308], SPECIAL])),
        ("Asin", np.arcsin, np.append(SHARES, [np.nan, 2.0])),
        ("Acos", np.arccos, np.append(SHARES, [np.nan, -2.0])),
        ("Sinh", np.sinh, np.concatenate([SPREAD, SPECIAL])),
        ("Cosh", np.cosh, np.concatenate([SPREAD, SPECIAL])),
    ],
    ids=["cos", "tan", "atan", "asin", "acos", "sinh", "cosh"],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_functions_are_exact(operator: str, function: Any, x: Any) -> None:
    """Within a few units in the last place; that of 1 near the zeros of a cosine."""
    np.testing.assert_allclose(computed(operator, x), function(x), rtol=5e-15, atol=1e-15)


def test_attributes_are_decimals() -> None:
    """0.1 as an attribute is a float32; the model has it in float64."""
    x = np.linspace(-3, 3, 7)
    assert computed("LeakyRelu", x, alpha=0.1) == pytest.approx(np.where(x > 0, x, x * 0.1), rel=1e-15)
    assert computed("LeakyRelu", x) == pytest.approx(np.where(x > 0, x, x * 0.01), rel=1e-15)
    assert computed("Elu", x, alpha=0.7) == pytest.approx(np.where(x > 0, x, 0.7 * np.expm1(x)), rel=1e-15)


def test_norms() -> None:
    """With the axes of the node."""
    assert computed("ReduceL2", np.array([3.0, 4.0]))[0] == pytest.approx(5.0)
    assert computed("ReduceL2", np.array([1e-9]))[0] == pytest.approx(math.sqrt(1e-18))
