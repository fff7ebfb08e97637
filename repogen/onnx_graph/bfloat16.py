"""Turns bfloat16 inside an exporter's graph into float32: ONNX Runtime has few bfloat16 kernels on a CPU.

Every bfloat16 value is a float32 value, so weights stay exact; results are rounded less often than PyTorch's.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_BFLOAT16, _FLOAT = ir.DataType.BFLOAT16, ir.DataType.FLOAT
_TYPE_ATTRIBUTES = ("to", "dtype")
_CASTS = frozenset({"Cast", "Identity"})


def widen_bfloat16(model: ir.Model) -> None:
    """Compute in float32 what an exporter's graph computes in bfloat16; a graph that only casts stays as it is.

    Outputs of the graph keep their type. The graph is changed in place.
    """
    nodes = [node for graph in model.graphs() for node in graph]
    if not any(_computes(node) for node in nodes):
        return
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.dtype == _BFLOAT16 and value.const_value is not None:
                value.const_value = _float32(value.const_value)
                value.dtype = _FLOAT
    narrow = [index for index, value in enumerate(model.graph.outputs) if value.dtype == _BFLOAT16]
    for node in nodes:
        _widen(node)
    for index in narrow:
        cast = ir.node("Cast", [model.graph.outputs[index]], {"to": int(_BFLOAT16)})
        cast.outputs[0].dtype, cast.outputs[0].shape = _BFLOAT16, model.graph.outputs[index].shape
        model.graph.append(cast)
        model.graph.outputs[index] = cast.outputs[0]


def _computes(node: ir.Node) -> bool:
    values = (*node.outputs, *(value for value in node.inputs if value is not None))
    return node.op_type not in _CASTS and any(value.dtype == _BFLOAT16 for value in values)


def _widen(node: ir.Node) -> None:
    for name in _TYPE_ATTRIBUTES:
        if name in node.attributes and node.attributes[name].as_int() == _BFLOAT16:
            node.attributes[name] = ir.AttrInt64(name, int(_FLOAT))
    if "value" in node.attributes and node.attributes["value"].type == ir.AttributeType.TENSOR:
        tensor = node.attributes["value"].as_tensor()
        if tensor.dtype == _BFLOAT16:
            node.attributes["value"] = ir.AttrTensor("value", _float32(tensor))
    for value in node.outputs:
        if value.dtype == _BFLOAT16:
            value.dtype = _FLOAT


def _float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)
