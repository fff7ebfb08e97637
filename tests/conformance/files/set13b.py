"""ONNX files as other tools write them: a recurrent model of Keras, and dynamic quantization of ONNX Runtime."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "model.onnx"
_F = TensorProto.FLOAT


def _random(rng: np.random.Generator, name: str, *shape: int) -> onnx.TensorProto:
    values = rng.standard_normal(shape) / np.sqrt(shape[-1])
    return numpy_helper.from_array(values.astype(np.float32), name)


def _save(graph: onnx.GraphProto, path: Path, producer: str) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8, producer_name=producer)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def keras_lstm(directory: Path) -> None:
    """Write a bidirectional LSTM with a maximum over time, with the names and transpositions of tf2onnx."""
    rng = np.random.default_rng(3)
    features, units, classes = 6, 8, 4
    shape = np.array([0, 0, 2 * units], np.int64)
    weights = [
        _random(rng, "lstm/W", 2, 4 * units, features),
        _random(rng, "lstm/R", 2, 4 * units, units),
        _random(rng, "lstm/B", 2, 8 * units),
        _random(rng, "dense/MatMul/ReadVariableOp:0", 2 * units, classes),
        _random(rng, "dense/BiasAdd/ReadVariableOp:0", classes),
        numpy_helper.from_array(np.array([0.8], np.float32), "temperature:0"),
        numpy_helper.from_array(shape, "const_fold_opt__31"),
    ]
    nodes = [
        helper.make_node("Transpose", ["input_1:0"], ["x:0"], perm=[1, 0, 2]),
        helper.make_node(
            "LSTM", ["x:0", "lstm/W", "lstm/R", "lstm/B"], ["y:0"], hidden_size=units, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["y:0"], ["t:0"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["t:0", "const_fold_opt__31"], ["m:0"]),
        helper.make_node("ReduceMax", ["m:0"], ["pooled:0"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooled:0", "dense/MatMul/ReadVariableOp:0"], ["p:0"]),
        helper.make_node("Add", ["p:0", "dense/BiasAdd/ReadVariableOp:0"], ["logits:0"]),
        helper.make_node("Mul", ["logits:0", "temperature:0"], ["scaled:0"]),
        helper.make_node("Softmax", ["scaled:0"], ["Identity:0"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tf2onnx",
        [helper.make_tensor_value_info("input_1:0", _F, ["unk__17", "unk__18", features])],
        [helper.make_tensor_value_info("Identity:0", _F, ["unk__19", classes])],
        weights,
    )
    _save(graph, directory / _FILE, "tf2onnx")


def dynamic_quantized(directory: Path) -> None:
    """Write three layers after `quantize_dynamic`, whose scale of activations is that of the whole tensor."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - the other file does not need it

    rng = np.random.default_rng(4)
    sizes = (24, 48, 48, 5)
    weights, nodes, last = [], [], "features"
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights += [_random(rng, f"w{index}", inputs, outputs), _random(rng, f"b{index}", outputs)]
        nodes.append(helper.make_node("MatMul", [last, f"w{index}"], [f"product{index}"], name=f"matmul{index}"))
        last = "logits" if outputs == sizes[-1] else f"sum{index}"
        nodes.append(helper.make_node("Add", [f"product{index}", f"b{index}"], [last], name=f"add{index}"))
        if last != "logits":
            nodes.append(helper.make_node("Relu", [last], [f"relu{index}"], name=f"relu{index}"))
            last = f"relu{index}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("features", _F, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("logits", _F, ["batch", sizes[-1]])],
        weights,
    )
    _save(graph, directory / "float.onnx", "pytorch")
    quantize_dynamic(directory / "float.onnx", directory / _FILE, weight_type=QuantType.QInt8)
