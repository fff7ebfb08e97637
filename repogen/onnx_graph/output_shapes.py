"""Derives the shapes of a graph's outputs, as ONNX Runtime does when it loads the file.

The server compares config.pbtxt with the inferred shapes, not with those in the file: an output that the file declares
as ``[N, M]`` has the shape ``[N, 3]`` to the server if its last node multiplies by a matrix of 3 columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import onnx
from onnx import shape_inference

from repogen.onnx_graph.shape_bounds import ShapeBounds
from repogen.triton_config.rules.graph import UNDECIDED_DIM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.tensors import Dim, TensorSpec

_MAX_NODES = 50_000
_MAX_BYTES = 64 * 2**20
_MAX_DIMS = 4_000_000
"""Of all values of a graph together; each needs about 50 bytes."""
_MAX_VALUES = 64
"""Elements of an initializer whose values may be a shape."""
_NEW_SYMBOL = "unk__"
"""Prefix of the names that onnx gives to dims that it could not derive."""


@dataclass(frozen=True)
class OutputShapes:
    """The outputs of a graph with inferred shapes.

    Attributes:
        outputs: The outputs; a dim that could not be derived has the name ``UNDECIDED_DIM``.
        unknown: Names of the outputs whose rank could not be derived.
    """

    outputs: tuple[TensorSpec, ...]
    unknown: frozenset[str] = frozenset()


def infer_outputs(proto: onnx.ModelProto, declared: Sequence[TensorSpec]) -> OutputShapes:
    """Return the outputs with the shapes that follow from the graph; fixed dims in the file are kept.

    The time is bounded by the size of the graph: weights are not read, values of tensors are not propagated, and larger
    graphs are left as they are.

    Args:
        proto: The model; not changed.
        declared: Its outputs as the file declares them.
    """
    without_shape = {
        value.name for value in proto.graph.output
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    }  # fmt: skip
    is_dynamic = any(isinstance(dim, str) for spec in declared for dim in spec.shape)
    if not is_dynamic and not without_shape:
        return OutputShapes(tuple(declared))
    inferred = _inferred_shapes(proto)
    outputs, unknown = [], set()
    for spec in declared:
        shape = inferred.get(spec.name)
        if spec.name in without_shape:
            unknown |= set() if shape is not None else {spec.name}
            outputs.append(replace(spec, shape=shape or ()))
        else:
            outputs.append(replace(spec, shape=_merged(spec.shape, shape)))
    return OutputShapes(tuple(outputs), frozenset(unknown))


def _merged(declared: tuple[Dim, ...], inferred: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    if inferred is None or len(inferred) != len(declared):
        return tuple(dim if isinstance(dim, int) else UNDECIDED_DIM for dim in declared)
    pairs = zip(declared, inferred, strict=True)
    return tuple(
        dim if isinstance(dim, int) or (isinstance(other, str) and other != UNDECIDED_DIM) else other
        for dim, other in pairs
    )


def _inferred_shapes(proto: onnx.ModelProto) -> dict[str, tuple[Dim, ...]]:
    """Return the inferred shape of each output; empty if the graph is too large, or its operators are unknown."""
    if len(proto.graph.node) > _MAX_NODES or proto.functions:  # functions may call themselves
        return {}
    stripped = _stripped(proto)
    if stripped.ByteSize() > _MAX_BYTES or ShapeBounds().dims(stripped.graph, _MAX_DIMS) > _MAX_DIMS:
        return {}
    try:
        inferred = shape_inference.infer_shapes(stripped)
    except Exception:  # noqa: BLE001 - any failure of the inference leaves the dims undecided
        return {}
    return {
        value.name: tuple(_dim(dim) for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.output
        if value.type.tensor_type.HasField("shape")
    }


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return UNDECIDED_DIM if not dim.dim_param or dim.dim_param.startswith(_NEW_SYMBOL) else dim.dim_param


def _stripped(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the data of weights, and without shapes of outputs and intermediate values."""
    copy = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    copy.graph.name = proto.graph.name
    copy.graph.input.extend(proto.graph.input)
    for value in proto.graph.output:
        output = copy.graph.output.add(name=value.name)
        output.type.tensor_type.elem_type = value.type.tensor_type.elem_type
    for tensor in proto.graph.initializer:
        if 0 <= prod(tensor.dims) <= _MAX_VALUES and not tensor.external_data:
            copy.graph.initializer.add().CopyFrom(tensor)
        else:
            copy.graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    if sum(node.ByteSize() for node in proto.graph.node) <= _MAX_BYTES:
        copy.graph.node.extend(proto.graph.node)
    return copy
