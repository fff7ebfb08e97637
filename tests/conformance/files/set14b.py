"""ONNX files of group ``set14b``, built node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def _save(
    directory: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray],
) -> None:
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, directory / "model.onnx")


def quantized_convolution(directory: Path) -> None:
    """Write a convolution between QuantizeLinear and DequantizeLinear, as quantizers of ONNX files write it."""
    rng = np.random.default_rng(0)
    constants = {
        "in_scale": np.float32(0.03),
        "in_zero": np.uint8(128),
        "kernel": rng.integers(-127, 128, (6, 3, 3, 3)).astype(np.int8),
        "kernel_scale": (0.001 + 0.002 * rng.random(6)).astype(np.float32),
        "kernel_zero": np.zeros(6, np.int8),
        "bias": rng.standard_normal(6).astype(np.float32),
        "out_scale": np.float32(0.02),
        "out_zero": np.uint8(0),
        "weight": rng.standard_normal((6, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "in_scale", "in_zero"], ["image_q"]),
        helper.make_node("DequantizeLinear", ["image_q", "in_scale", "in_zero"], ["pixels"]),
        helper.make_node("DequantizeLinear", ["kernel", "kernel_scale", "kernel_zero"], ["kernel_f"], axis=0),
        helper.make_node("Conv", ["pixels", "kernel_f", "bias"], ["features"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "out_scale", "out_zero"], ["positive_q"]),
        helper.make_node("DequantizeLinear", ["positive_q", "out_scale", "out_zero"], ["rounded"]),
        helper.make_node("GlobalAveragePool", ["rounded"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 12, 12])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 4])]
    _save(directory, nodes, inputs, outputs, {name: np.asarray(value) for name, value in constants.items()})


def suppression(directory: Path) -> None:
    """Write NonMaxSuppression, which returns one row (image, class, box) for each box that remains."""
    constants: dict[str, np.ndarray] = {"most": np.array([3], np.int64), "overlap": np.array([0.5], np.float32)}
    nodes = [
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("Transpose", ["scores"], ["by_class"], perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["boxes", "by_class", "most", "overlap"], ["selected"]),
    ]
    inputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["batch", 12, 4]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 12, 3]),
    ]
    outputs = [helper.make_tensor_value_info("selected", TensorProto.INT64, ["remaining", 3])]
    _save(directory, nodes, inputs, outputs, constants)
