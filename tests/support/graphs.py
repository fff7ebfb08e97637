"""Small ONNX files for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def value(name: str, shape: Sequence[int | str | None], dtype: int = FLOAT) -> onnx.ValueInfoProto:
    """Return the name, type and shape of a tensor; None is a dim without a name."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *,
    opset: int = 17,
    ir: int = 8,
    **initializers: Any,
) -> onnx.ModelProto:
    """Return a graph."""
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def matmul(rows: int | str | None = "N", **options: Any) -> onnx.ModelProto:
    """Return ``y = x @ w``."""
    options.setdefault("w", WEIGHT)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model([node], [value("x", [rows, 4])], [value("y", [rows, 3])], **options)


def lookup() -> onnx.ModelProto:
    """Return an embedding of ten entries."""
    table = np.arange(30, dtype=np.float32).reshape(10, 3)
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    ids, y = value("ids", ["batch", "seq"], INT64), value("y", ["batch", "seq", 3])
    return model([node], [ids], [y], table=table)


def endless() -> onnx.ModelProto:
    """Return an infinite loop."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "one"], ["next"])],
        "body",
        [value("i", [], INT64), value("go", [], TensorProto.BOOL), value("v", ["N", 4])],
        [value("on", [], TensorProto.BOOL), value("next", ["N", 4])],
    )
    node = helper.make_node("Loop", ["most", "true", "x"], ["y"], body=body)
    constants: dict[str, Any] = {"most": np.array(2**62), "true": np.array(True), "one": np.ones(1, np.float32)}  # noqa: FBT003 - a value
    return model([node], [value("x", ["N", 4])], [value("y", ["N", 4])], **constants)


def with_external(path: Path, location: str = "model.onnx.data") -> None:
    """Write ``matmul`` with its weight in a data file, and declare any location for it."""
    onnx.save_model(
        matmul(), path, save_as_external_data=True, location="model.onnx.data", size_threshold=0, convert_attribute=True
    )
    stored = onnx.load(path, load_external_data=False)
    for entry in stored.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    onnx.save_model(stored, path)
