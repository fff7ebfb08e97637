"""BF16 tensors of ONNX Runtime as float32 arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from repogen.onnx_graph.session import run, to_bits

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array


def test_values_are_rounded_as_pytorch_rounds_them() -> None:
    """Ties, subnormals, overflow to infinity, infinities, zeros of both signs, and random bits; NaN stays NaN."""
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    ties = (np.arange(2**16, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    rounded = torch.from_numpy(to_bits(values).view(np.int16)).view(torch.bfloat16).float().numpy()
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    assert np.array_equal(rounded, expected, equal_nan=True)
    assert np.array_equal(np.signbit(rounded[rounded == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1 / 3, -2.0, np.inf]], np.float32),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    ],
    ids=["values", "empty", "transposed"],
)
def test_session_takes_and_returns_float32(array: Array) -> None:
    """Next to an input and an output of another dtype."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["n"], ["count"]),
    ]
    rows: list[str | int | None] = ["N", 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.BFLOAT16, rows),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("same", TensorProto.BFLOAT16, rows),
            helper.make_tensor_value_info("wide", TensorProto.FLOAT, rows),
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    same, wide, count = run(session, ["same", "wide", "count"], {"x": array, "n": np.array(7)})
    expected = torch.from_numpy(np.ascontiguousarray(array)).bfloat16().float().numpy()
    assert (same.dtype, wide.dtype, count.shape, count) == (np.float32, np.float32, (), 7)
    assert np.array_equal(same, expected)
    assert np.array_equal(wide, expected)


def test_scalars_keep_their_shape() -> None:
    """A 0-d array stays 0-d."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, []) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (scalar,) = run(session, ["y"], {"x": np.array(1 / 3, np.float32)})
    assert (scalar.shape, scalar) == ((), np.float32(0.333984375))
