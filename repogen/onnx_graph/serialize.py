"""Writes a model to one file, weight by weight.

protobuf's Python classes need three to four times the size of a message to serialize it, which for a model of 1 GB is
more than the rest of a build needs. This module therefore assembles the message itself: protobuf serializes everything
except large weights, and each of these follows with its own header.
Source: protobuf.dev/programming-guides/encoding, and the field numbers of onnx.proto3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

if TYPE_CHECKING:
    from pathlib import Path

_LENGTH_DELIMITED = 2
_LOW_BITS, _MORE = 0x7F, 0x80
_MODEL_GRAPH = onnx.ModelProto.GRAPH_FIELD_NUMBER
_GRAPH_INITIALIZER = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
_TENSOR_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER
_ENCODED = frozenset({ir.DataType.STRING, ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.FLOAT4E2M1})
_MIN_STREAMED = 4096


def write_model(model: ir.Model, path: Path) -> None:
    """Write a model with its weights to one file.

    Args:
        model: A model of less than 2 GB without external tensors; not changed.
        path: The file; overwritten.
    """
    initializers = model.graph.initializers
    large = {name: value for name, value in initializers.items() if _is_large(value.const_value)}
    tensors = {name: value.const_value for name, value in large.items() if value.const_value is not None}
    for name in large:
        del initializers[name]
    try:
        proto = ir.to_proto(model)
    finally:
        initializers.update(large)
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    headers = {name: _header(name, tensor) for name, tensor in tensors.items()}
    length = len(graph) + sum(len(headers[name]) + tensor.nbytes for name, tensor in tensors.items())
    with path.open("wb") as file:
        file.write(proto.SerializeToString(deterministic=True) + _tag(_MODEL_GRAPH, length) + graph)
        for name, tensor in tensors.items():
            file.write(headers[name])
            file.write(tensor.tobytes())


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    """Return whether to stream a weight; strings and packed 4-bit types have other encodings."""
    return tensor is not None and tensor.nbytes >= _MIN_STREAMED and tensor.dtype not in _ENCODED


def _header(name: str, tensor: ir.TensorProtocol) -> bytes:
    """Return the bytes of an initializer that precede its raw data."""
    fields = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
    header = fields.SerializeToString(deterministic=True) + _tag(_TENSOR_RAW_DATA, tensor.nbytes)
    return _tag(_GRAPH_INITIALIZER, len(header) + tensor.nbytes) + header


def _tag(field: int, length: int) -> bytes:
    r"""Return the tag of a length-delimited field, followed by the length.

    >>> _tag(7, 300)
    b':\xac\x02'
    """
    tag = bytearray([field << 3 | _LENGTH_DELIMITED])
    while length > _LOW_BITS:
        tag.append(length & _LOW_BITS | _MORE)
        length >>= 7
    return bytes([*tag, length])
