"""Subtracts the mean of values before ``LayerNormalization``.

ONNX Runtime 1.19.2 computes the variance as the mean of the squares minus the square of the mean, in float32. For
values of 101325 with a deviation of 50, such as a pressure in Pa, nothing is left of it; 1.28.0 and 1.31.1 have an
error of 3e-4. Values that come from an input of the graph without a layer between are always centered. Those after a
layer rarely have such a level, and centering takes time: they are centered only if the target's ONNX Runtime disagrees
with PyTorch. After a layer with a bias of 100, the error of 1.19.2 is 0.1, and that of 1.31.1 is 2e-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterable

_AXES_ARE_AN_INPUT = 18
"""The first opset in which the axes of ReduceMean are an input."""
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
_KEEPS_LEVELS = frozenset(
    {
        "Abs", "Add", "Cast", "Clip", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Max",
        "Min", "Mul", "Neg", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Sum", "Tile", "Transpose",
        "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators whose outputs may be as far from zero, relative to their deviation, as the inputs of the model."""
_DATA = {
    "Where": slice(1, 3),
    **dict.fromkeys(("Add", "Concat", "Div", "Max", "Min", "Mul", "Sub", "Sum"), slice(None)),
}
"""Inputs that are values; of other operators, it is the first one."""


def center_raw_values(model: ir.Model) -> None:
    """Insert the subtraction before each ``LayerNormalization`` of values of the model's inputs, in place."""
    raw: set[ir.Value] = {value for value in model.graph.inputs if value.dtype in _FLOATS}
    for node in list(model.graph):
        values = [value for value in node.inputs[_DATA.get(node.op_type, slice(1))] if value is not None]
        if node.op_type in _KEEPS_LEVELS and not raw.isdisjoint(values):
            raw.update(node.outputs)
        elif node.op_type == "LayerNormalization" and not raw.isdisjoint(values):
            _center(model, node, values[0])


def center_all_values(model: ir.Model) -> bool:
    """Insert the subtraction before each ``LayerNormalization``, in place; return whether there was one without it."""
    nodes = [
        node
        for node in list(model.graph)
        if node.op_type == "LayerNormalization" and node.inputs[0] is not None and not _is_centered(node.inputs[0])
    ]
    for node in nodes:
        if node.inputs[0] is not None:
            _center(model, node, node.inputs[0])
    return bool(nodes)


def _is_centered(value: ir.Value) -> bool:
    producer = value.producer()
    mean = producer.inputs[1] if producer is not None and producer.op_type == "Sub" else None
    return mean is not None and (node := mean.producer()) is not None and node.op_type == "ReduceMean"


def _center(model: ir.Model, node: ir.Node, value: ir.Value) -> None:
    attribute = node.attributes.get("axis")
    first = -1 if attribute is None else attribute.as_int()
    rank = 0 if value.shape is None else value.shape.rank()
    if any(output.uses() for output in node.outputs[1:]) or (first >= 0 and not rank):
        return
    axes = list(range(first - rank if first >= 0 else first, 0))
    if model.opset_imports.get("", 0) >= _AXES_ARE_AN_INPUT:
        constant = ir.node("Constant", [], {"value": ir.tensor(np.array(axes, np.int64))})
        mean = ir.node("ReduceMean", [value, constant.outputs[0]], {"keepdims": 1})
        added = [constant, mean]
    else:
        mean = ir.node("ReduceMean", [value], {"axes": axes, "keepdims": 1})
        added = [mean]
    centered = ir.node("Sub", [value, mean.outputs[0]])
    for each in (mean, centered):
        each.outputs[0].type = value.type
    centered.outputs[0].shape = value.shape
    _insert(model.graph, node, [*added, centered])
    node.replace_input_with(0, centered.outputs[0])


def _insert(graph: ir.Graph, before: ir.Node, nodes: Iterable[ir.Node]) -> None:
    for node in nodes:
        graph.insert_before(before, node)
