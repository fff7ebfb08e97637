"""Rewrites operators that exporters write and that ONNX Runtime's CPU provider does not have in the same form.

Measured with graphs of one node on ONNX Runtime 1.19.2, 1.28.0 and 1.31.1:

- Arithmetic and comparisons of small integers have no kernels in older releases. They are computed in a wider type, and
  the result is cast back, which wraps as PyTorch does.
- ``ArgMax`` and ``ArgMin`` of int64: ``TopK`` also returns the first of equal values. ``ReduceMax`` and ``ReduceMin``
  of int64 return wrong values for some rows with values beyond int32. So do ``Relu`` and ``Sign`` in 1.31.1.
- ``ReduceSum``, ``ReduceSumSquare`` and ``ReduceProd`` of int64 are computed in float64 from 1.28.0 on, which rounds
  results beyond 2 ** 53 and does not wrap. In sums, the upper and the lower 32 bits are added separately; a product is
  a ``Scan``. ``ReduceMean`` of int64 has no kernel in 1.19.2.
- The inverse of a one-sided ``DFT``, which ``torch.fft.irfft`` becomes, is not valid ONNX. It is computed as an inverse
  two-sided transform: the real part of the sum is the same if the omitted half is added to its mirror image. Exporters
  infer wrong shapes from such a node, so the shapes of all inner values are removed.
- The one-sided ``DFT`` and ``STFT`` of real values whose length is not a power of two, such as 400 for speech, have an
  error of up to 200 times that of a matrix product: 2e-3 for 400 normal values, where NumPy's is 2e-6. They become a
  matrix product and a convolution. So does the inverse ``DFT``, if its length is constant.
- Bfloat16, see ``repogen.onnx_graph.bfloat16``, and functions of float64, see ``repogen.onnx_graph.float64``.
- ``ScatterND`` and ``GatherND`` accept only int64 indices, and exporters write int32, for example for ``torch.istft``.
- ``Clip`` without one of its bounds also replaces the infinities on that side, by the largest finite number.
- ``Resize`` to the nearest value divides a position by ``out / in`` in float32, and PyTorch multiplies it by
  ``in / out``. At some sizes, such as from 10 to 48, some rows and columns are those of a neighbor. There, it becomes
  one ``Gather`` for each axis, which is slower; where the positions are equal, as for a scale of 2, it stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from repogen.onnx_graph.bfloat16 import widen_bfloat16
from repogen.onnx_graph.float64 import FLOAT64_GAPS, replacement

if TYPE_CHECKING:
    from collections.abc import Sequence

_SMALL = frozenset(
    {ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.UINT32}
)
_EXTREME_INDICES = frozenset({"ArgMax", "ArgMin"})
_EXTREME_VALUES = frozenset({"ReduceMax", "ReduceMin"})
_EXTREMES = _EXTREME_INDICES | _EXTREME_VALUES
_SUMS = frozenset({"ReduceSum", "ReduceSumSquare", "ReduceMean"})
REDUCTIONS = _EXTREMES | _SUMS | {"ReduceProd"}
_STANDARD = frozenset({"", "ai.onnx"})
_OPSET_OF_SQUEEZE = 13
"""The first opset in which the axes of Squeeze are an input."""
_MAX_MATRIX = 2048
"""The largest length of a transform that becomes a matrix product, whose constant has about length ** 2 values."""
_SEQUENCE_OPERATORS = frozenset(
    {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence"}
)
_INT64_INDICES = frozenset({"ScatterND", "GatherND"})
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""The attributes of ``Resize`` for ``interpolate(mode="nearest")``."""
_MAX_POSITIONS = 1 << 16
_MAX_DENOMINATOR = 256
"""Of a scale that is a quotient of sizes."""
_SMALL_IMAGE = 128
"""The largest sum of height and width after a resize for which PyTorch uses its kernel for small images."""
_INT64, _FLOAT, _DOUBLE = ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE


@dataclass(frozen=True)
class _Typed:
    """The inputs of an operator that have the same type, and whether its first output has it too."""

    inputs: tuple[int, ...]
    output: bool = True


_COMPARISONS = dict.fromkeys(
    ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"), _Typed((0, 1), output=False)
)
_ARITHMETIC = dict.fromkeys(("Add", "Sub", "Mul", "Div"), _Typed((0, 1)))
_REDUCTIONS = dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "CumSum"), _Typed((0,)))
_OPERATORS = {
    **_COMPARISONS,
    **_ARITHMETIC,
    **_REDUCTIONS,
    **dict.fromkeys(("Neg", "Relu", "Trilu", "TopK"), _Typed((0,))),
    **dict.fromkeys(("NonZero", *_EXTREME_INDICES), _Typed((0,), output=False)),
    "Min": _Typed((0, 1)),
    "Max": _Typed((0, 1)),
    "Where": _Typed((1, 2)),
    "Clip": _Typed((0, 1, 2)),
    "Pad": _Typed((0, 2)),
}
# Kernels that exist in all measured releases.
_SUPPORTED = {
    ir.DataType.BOOL: frozenset({"Equal", "NonZero", "Pad", "Trilu"}),
    ir.DataType.INT8: frozenset({"Clip", "Neg", "Pad", "Relu", "ArgMax", "ReduceMax", "ReduceMin"}),
    ir.DataType.UINT8: frozenset({"Where", "Clip", "Pad", "ArgMax", "NonZero", "ReduceMax", "ReduceMin"}),
    ir.DataType.UINT32: frozenset({"Min", "Max", "Clip", "Pad"}),
}


def fill_kernel_gaps(model: ir.Model) -> None:
    """Rewrite the nodes of an exporter's graph that ONNX Runtime cannot load; the graph is changed in place."""
    _infer_types(model, ShapeInferencePass())
    widen_bfloat16(model)
    nodes = [node for graph in model.graphs() for node in graph if node.domain in _STANDARD]
    has_inverse = any(_is_one_sided_inverse(node) for node in nodes)
    for node in nodes:
        _rewrite(node)
    if has_inverse:
        for value in (output for graph in model.graphs() for node in graph for output in node.outputs):
            value.shape = None if not value.is_graph_output() else value.shape


def replace_int64_reductions(model: ir.Model) -> bool:
    """Rewrite the reductions of int64 that ONNX Runtime computes incorrectly, or does not compute.

    The graph is changed in place; those of an opset before 13 are kept. Returns whether a node was replaced.
    """
    nodes = [
        node for graph in model.graphs() for node in graph if node.op_type in REDUCTIONS and node.domain in _STANDARD
    ]
    if not nodes or model.opset_imports.get("", 0) < _OPSET_OF_SQUEEZE:
        return False
    # Small constants may be external data, which the inference of values and some of that of shapes cannot read.
    _infer_types(model, ShapeInferencePass(strict_mode=False, data_prop=False))
    return bool([node for node in nodes if _rewrite_reduction(node)])


def _infer_types(model: ir.Model, inference: ShapeInferencePass) -> None:
    """Add the types that TorchScript's exporter omits, if the graph may have a node that depends on them."""
    values = [value for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())]
    nodes = [node for graph in model.graphs() for node in graph]
    casts = [node.attributes["to"].as_int() for node in nodes if node.op_type == "Cast"]
    rare = {*_SMALL, ir.DataType.BFLOAT16}
    if any(node.op_type in FLOAT64_GAPS for node in nodes):
        rare.add(_DOUBLE)
    has_rare = any(value.dtype in rare for value in values) or any(ir.DataType(cast) in rare for cast in casts)
    has_integers = any(value.dtype == _INT64 for value in model.graph.inputs)
    has_rare |= any(node.op_type in (REDUCTIONS if has_integers else _EXTREMES) for node in nodes)
    if has_rare and any(value.dtype is None for node in nodes for value in node.outputs):
        sequences = [value for node in nodes for value in _sequences(node) if value.type is None]
        inference(model)
        for value in sequences:  # the pass declares them as tensors
            value.type = value.shape = None


def _sequences(node: ir.Node) -> list[ir.Value]:
    """Return the outputs of a node that are sequences of tensors."""
    if node.op_type in _SEQUENCE_OPERATORS:
        return list(node.outputs)
    if node.op_type == "Loop":
        inner = node.attributes["body"].as_graph().outputs[1:]
    elif node.op_type == "If":
        inner = node.attributes["then_branch"].as_graph().outputs
    else:
        return []
    return [
        value for value, output in zip(node.outputs, inner, strict=True) if isinstance(output.type, ir.SequenceType)
    ]


def _rewrite(node: ir.Node) -> None:
    dtype = _dtype(node)
    if node.op_type in {"DFT", "STFT"}:
        _rewrite_transform(node)
    elif node.op_type in _INT64_INDICES and node.inputs[1] is not None and node.inputs[1].dtype == ir.DataType.INT32:
        int64 = ir.DataType.INT64
        node.replace_input_with(1, _insert(node, "Cast", [node.inputs[1]], int64, to=int(int64)))
    elif _is_nearest_resize(node):
        _replace_nearest(node)
    elif node.op_type == "Clip" and dtype not in _SMALL:
        _keep_infinities(node)
    elif _rewrite_unary(node) or _rewrite_reduction(node):
        return
    elif dtype in _SMALL and node.op_type not in _SUPPORTED.get(dtype, frozenset()):
        _widen(node, ir.DataType.INT64 if dtype == ir.DataType.UINT32 else ir.DataType.INT32)


def _rewrite_transform(node: ir.Node) -> None:
    if _is_one_sided_inverse(node):
        if not _replace_inverse(node):
            _expand_inverse(node)
    elif node.op_type == "DFT" and _integer(node, "onesided"):
        _replace_transform(node)
    elif node.op_type == "STFT" and _integer(node, "onesided", 1):
        _replace_short_time_transform(node)


def _is_one_sided_inverse(node: ir.Node) -> bool:
    return bool(node.op_type == "DFT" and _integer(node, "inverse") and _integer(node, "onesided"))


def _dtype(node: ir.Node) -> ir.DataType | None:
    """Return the type of the inputs of a known operator; None if it is unknown."""
    typed = _OPERATORS.get(node.op_type)
    value = node.inputs[typed.inputs[0]] if typed is not None and len(node.inputs) > typed.inputs[0] else None
    return None if value is None else value.dtype


def _integer(node: ir.Node, name: str, default: int = 0) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _widen(node: ir.Node, wide: ir.DataType) -> None:
    """Compute a node in a wider type, and cast its output back."""
    typed, narrow = _OPERATORS[node.op_type], _dtype(node)
    for index in typed.inputs:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None:
            node.replace_input_with(index, _insert(node, "Cast", [value], wide, to=int(wide)))
    if typed.output and narrow is not None:
        output = node.outputs[0]
        cast = ir.node("Cast", [], {"to": int(narrow)}, num_outputs=1)
        _move_uses(output, cast.outputs[0])
        output.dtype = wide
        cast.resize_inputs(1)
        cast.replace_input_with(0, output)
        _graph(node).insert_after(node, cast)


def _rewrite_unary(node: ir.Node) -> bool:
    """Replace a function of float64, or ``Relu`` and ``Sign`` of int64; return whether the node is one."""
    value = node.inputs[0] if node.inputs else None
    if value is None:
        return False
    if node.op_type in FLOAT64_GAPS and value.dtype == _DOUBLE:
        nodes = replacement(node)
        _graph(node).insert_before(node, nodes)
        _replace(node, nodes[-1].outputs[0])
        return True
    if node.op_type in {"Relu", "Sign"} and value.dtype == _INT64:
        _replace_sign(node, value)
        return True
    return False


def _rewrite_reduction(node: ir.Node) -> bool:
    """Replace a reduction of int64; return whether the node is one."""
    return _rewrite_extreme(node) or _rewrite_sum(node) or _rewrite_product(node)


def _rewrite_extreme(node: ir.Node) -> bool:
    """Replace a maximum or minimum of int64 along known axes, or along all; return whether the node is one."""
    value = node.inputs[0] if node.inputs else None
    if value is None or node.op_type not in _EXTREMES or value.dtype != _INT64:
        return False
    if node.op_type in _EXTREME_VALUES and _reduces_all(node):
        flat = _insert(node, "Reshape", [value, _constant(node, np.array([-1], np.int64))], _INT64)
        _replace(node, _single(node, _extreme(node, flat, 0)[0]))
        return True
    if node.op_type in _EXTREME_VALUES:
        axes, output = _reduced_axes(node), 0
    else:
        axes, output = [] if _integer(node, "select_last_index") else [_integer(node, "axis")], 1
    if axes:
        _replace_extreme(node, value, axes, output)
    return bool(axes)


def _has_small_values(value: ir.Value) -> bool:
    """Return whether int64 values were converted from a smaller type, as those of a mask."""
    producer = value.producer()
    source = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
    return source is not None and source.dtype in {*_SMALL, ir.DataType.INT32}


def _rewrite_sum(node: ir.Node) -> bool:
    """Replace a sum, a sum of squares or a mean of int64; return whether the node is one."""
    value = node.inputs[0] if node.inputs else None
    is_small = node.op_type == "ReduceSum" and value is not None and _has_small_values(value)
    if value is None or node.op_type not in _SUMS or value.dtype != _INT64 or is_small:
        return False
    if node.op_type == "ReduceSumSquare":
        value = _insert(node, "Mul", [value, value], _INT64)
    total = _exact_sum(node, value)
    if node.op_type == "ReduceMean":
        one = _constant(node, np.array(1, np.int64))
        sizes = [_insert(node, "Size", [each], _INT64) for each in (value, total)]
        count = _insert(node, "Div", [sizes[0], _insert(node, "Max", [sizes[1], one], _INT64)], _INT64)
        total = _insert(node, "Div", [total, _insert(node, "Max", [count, one], _INT64)], _INT64)
    _replace(node, total)
    return True


def _exact_sum(node: ir.Node, value: ir.Value) -> ir.Value:
    """Return the sum of int64 over the axes of a node, from two sums that are exact for 2 ** 21 values."""
    axes = [each for each in node.inputs[1:] if each is not None]
    if "axes" in node.attributes:
        axes = [_constant(node, np.array(node.attributes["axes"].as_ints(), np.int64))]
    unit = _constant(node, np.array(1 << 32, np.int64))
    low = _insert(node, "Mod", [value, unit], _INT64)  # not negative
    high = _insert(node, "Div", [_insert(node, "Sub", [value, low], _INT64), unit], _INT64)
    sums = []
    for part in (high, low):
        attributes = [attribute for name, attribute in node.attributes.items() if name != "axes"]
        added = ir.Node("", "ReduceSum", [part, *axes], attributes)
        added.outputs[0].dtype = _INT64
        _graph(node).insert_before(node, added)
        sums.append(added.outputs[0])
    return _insert(node, "Add", [_insert(node, "Mul", [sums[0], unit], _INT64), sums[1]], _INT64)


def _rewrite_product(node: ir.Node) -> bool:
    """Replace a product of int64 along one axis or all; return whether the node is one."""
    value = node.inputs[0] if node.inputs else None
    if value is None or node.op_type != "ReduceProd" or value.dtype != _INT64:
        return False
    reduces_all, known_axes = _reduces_all(node), _reduced_axes(node)
    if not reduces_all and len(known_axes) != 1:
        return False
    axis = 0 if reduces_all else known_axes[0]
    if reduces_all:
        value = _insert(node, "Reshape", [value, _constant(node, np.array([-1], np.int64))], _INT64)
    axes, zero, one = (_constant(node, np.array(number, np.int64)) for number in ([axis], 0, 1))
    zeros = _insert(node, "ReduceSum", [_insert(node, "Mul", [value, zero], _INT64), axes], _INT64, keepdims=0)
    start = _insert(node, "Add", [zeros, one], _INT64)
    factors = [ir.Value(name=f"{node.outputs[0].name}_{name}", type=ir.TensorType(_INT64)) for name in ("before", "by")]
    multiply = ir.node("Mul", factors)
    multiply.outputs[0].name, multiply.outputs[0].dtype = f"{node.outputs[0].name}_product", _INT64
    body = ir.Graph(factors, multiply.outputs, nodes=[multiply], name=f"{node.outputs[0].name}_step")
    scan = ir.node("Scan", [start, value], {"body": body, "num_scan_inputs": 1, "scan_input_axes": [axis]})
    scan.outputs[0].dtype = _INT64
    _graph(node).insert_before(node, scan)
    product = scan.outputs[0]
    if reduces_all:
        product = _single(node, product)
    elif _integer(node, "keepdims", 1):
        product = _insert(node, "Unsqueeze", [product, axes], _INT64)
    _replace(node, product)
    return True


def _replace_sign(node: ir.Node, value: ir.Value) -> None:
    zero = _constant(node, np.array(0, np.int64))
    is_positive, is_negative = (
        _insert(node, operator, [value, zero], ir.DataType.BOOL) for operator in ("Greater", "Less")
    )
    if node.op_type == "Relu":
        _replace(node, _insert(node, "Where", [is_positive, value, zero], _INT64))
        return
    parts = [_insert(node, "Cast", [each], _INT64, to=int(_INT64)) for each in (is_positive, is_negative)]
    _replace(node, _insert(node, "Sub", parts, _INT64))


def _reduces_all(node: ir.Node) -> bool:
    has_axes = "axes" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    return not has_axes and not _integer(node, "noop_with_empty_axes")


def _single(node: ir.Node, value: ir.Value) -> ir.Value:
    """Return a single value with the shape of the output of a reduction of all axes."""
    shape = _constant(node, np.array([], np.int64))
    if _integer(node, "keepdims", 1) and node.inputs[0] is not None:
        zero, one = (_constant(node, np.array(number, np.int64)) for number in (0, 1))
        sizes = _insert(node, "Shape", [node.inputs[0]], _INT64)
        shape = _insert(node, "Add", [_insert(node, "Mul", [sizes, zero], _INT64), one], _INT64)
    return _insert(node, "Reshape", [value, shape], _INT64)


def _reduced_axes(node: ir.Node) -> list[int]:
    """Return the axes of a reduction, which are an attribute before opset 18; none if they are unknown."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"].as_ints())
    value, axes = (*node.inputs, None)[:2]
    if axes is not None:
        constant = ir.convenience.get_const_tensor(axes)
        if constant is None:
            return []
        if constant.size:
            return [int(axis) for axis in constant.numpy().reshape(-1)]
    if value is None or value.shape is None or _integer(node, "noop_with_empty_axes"):
        return []
    return list(range(value.shape.rank()))


def _extreme(node: ir.Node, value: ir.Value, axis: int) -> Sequence[ir.Value]:
    """Return the maximum or minimum that a node computes along one axis, and the index of the first of equal values."""
    one = _constant(node, np.array([1], np.int64))
    attributes = {"axis": axis, "largest": int(node.op_type in {"ArgMax", "ReduceMax"}), "sorted": 1}
    top = ir.node("TopK", [value, one], attributes, num_outputs=2)
    for output in top.outputs:
        output.dtype = _INT64
    _graph(node).insert_before(node, top)
    return top.outputs


def _replace_extreme(node: ir.Node, value: ir.Value, axes: Sequence[int], output: int) -> None:
    """Replace an operator with one ``TopK`` for each axis."""
    for axis in axes:
        value = _extreme(node, value, axis)[output]
    if not _integer(node, "keepdims", 1):
        value = _insert(node, "Squeeze", [value, _constant(node, np.array(axes, np.int64))], _INT64)
    _replace(node, value)


def _keep_infinities(node: ir.Node) -> None:
    """Replace a ``Clip`` with one bound by ``Max`` or ``Min``; with two bounds, it stays."""
    value, low, high = (*node.inputs, None, None)[:3]
    bound = high if low is None else low
    if value is not None and bound is not None and (low is None or high is None):
        _replace(node, _insert(node, "Max" if high is None else "Min", [value, bound], value.dtype))


def _is_nearest_resize(node: ir.Node) -> bool:
    attributes = {name: node.attributes[name].as_string() for name in _NEAREST if name in node.attributes}
    return node.op_type == "Resize" and {"mode": "nearest", **attributes} == _NEAREST


def _replace_nearest(node: ir.Node) -> None:
    """Replace a ``Resize`` of values ``[batch, channels, sizes…]`` by a ``Gather`` for each size.

    For sizes that are known at runtime only, ``Resize``, which is much faster, runs where all positions are equal.
    """
    value, (scales, sizes) = node.inputs[0], (node.inputs[at] if len(node.inputs) > at else None for at in (2, 3))
    if value is None:
        return
    constant = None if scales is None else ir.convenience.get_const_tensor(scales)
    if constant is not None:
        factors = [_exact_scale(scale) for scale in constant.numpy()]
        if not all(map(_keeps_resize, factors)):
            gathers = _gathers(value, _indices_at_scale(node, value, factors[2:]))
            _graph(node).insert_before(node, gathers)
            _replace(node, gathers[-1].outputs[0])
    elif sizes is not None and (shape := value.shape or node.outputs[0].shape) is not None:
        pairs = [_indices_at_size(node, value, axis, sizes) for axis in range(2, len(shape))]
        pytorch, runtime = (_insert(node, "Concat", each, _INT64, axis=0) for each in zip(*pairs, strict=True))
        is_equal = _insert(node, "Equal", [pytorch, runtime], ir.DataType.BOOL)
        is_equal = _insert(node, "Cast", [is_equal], ir.DataType.INT32, to=int(ir.DataType.INT32))
        is_equal = _insert(node, "ReduceMin", [is_equal], ir.DataType.INT32, keepdims=0)
        is_equal = _insert(node, "Cast", [is_equal], ir.DataType.BOOL, to=int(ir.DataType.BOOL))
        resize = ir.Node("", "Resize", node.inputs, list(node.attributes.values()))
        resize.outputs[0].type = value.type
        branches = {"then_branch": [resize], "else_branch": _gathers(value, [index for index, _ in pairs])}
        for name, nodes in branches.items():  # graphs give names of their own, which must differ
            for number, each in enumerate(nodes):
                each.name = each.outputs[0].name = f"{node.outputs[0].name}_{name}_{number}"
        graphs = {name: ir.Graph([], nodes[-1].outputs, nodes=nodes, name=name) for name, nodes in branches.items()}
        choice = ir.node("If", [is_equal], graphs)
        _graph(node).insert_before(node, choice)
        _replace(node, choice.outputs[0])


def _gathers(value: ir.Value, indices: Sequence[ir.Value]) -> list[ir.Node]:
    """Return nodes that choose the values of each axis, the last axis first: then the first one has fewer values."""
    nodes: list[ir.Node] = []
    for axis in reversed(range(2, 2 + len(indices))):
        node = ir.node("Gather", [nodes[-1].outputs[0] if nodes else value, indices[axis - 2]], {"axis": axis})
        node.outputs[0].type = value.type
        nodes.append(node)
    return nodes


def _exact_scale(scale: float) -> float:
    """Return the number whose rounding to float32 is a scale: a fraction such as 5 / 3, or a decimal."""
    fraction = float(Fraction(float(scale)).limit_denominator(_MAX_DENOMINATOR))
    return fraction if np.float32(fraction) == scale else float(str(scale))


def _keeps_resize(scale: float) -> bool:
    """Return whether ONNX Runtime and PyTorch choose the same values and sizes for a constant scale.

    For small images, PyTorch ignores the scale if the size stays the same or is doubled: 9 at 2.1 becomes 18.
    """
    if 1 < scale < 3 and scale != 2:  # noqa: PLR2004 - the scales of which the rounded size may be once or twice
        return False
    numbers = np.arange(_MAX_POSITIONS, dtype=np.float32)
    positions = np.floor(numbers / np.float32(scale)), np.floor(numbers * np.float32(1 / scale))
    sizes = np.floor(numbers * np.float32(scale)), np.floor(numbers.astype(np.float64) * scale)
    return all(np.array_equal(*pair) for pair in (positions, sizes))


def _indices_at_scale(node: ir.Node, value: ir.Value, scales: list[float]) -> list[ir.Value]:
    """Return the index of the value for each position of each axis, as PyTorch computes it from a scale."""
    lengths, sizes = [], []
    for axis, scale in enumerate(scales, 2):
        lengths.append(_insert(node, "Shape", [value], _INT64, start=axis, end=axis + 1))
        size = _insert(node, "Cast", [lengths[-1]], _DOUBLE, to=int(_DOUBLE))
        size = _insert(node, "Mul", [size, _constant(node, np.array(scale))], _DOUBLE)
        sizes.append(_insert(node, "Cast", [_insert(node, "Floor", [size], _DOUBLE)], _INT64, to=int(_INT64)))
    factors = [_constant(node, np.array([1 / scale], np.float32)) for scale in scales]
    if len(scales) == 2:  # noqa: PLR2004 - height and width
        total, limit = _insert(node, "Add", sizes, _INT64), _constant(node, np.array([_SMALL_IMAGE]))
        is_small = _insert(node, "LessOrEqual", [total, limit], ir.DataType.BOOL)
        factors = [_factor(node, *each, is_small) for each in zip(lengths, sizes, factors, strict=True)]
    return [_index(node, *each) for each in zip(lengths, sizes, factors, strict=True)]


def _factor(node: ir.Node, length: ir.Value, size: ir.Value, factor: ir.Value, is_small: ir.Value) -> ir.Value:
    """Return the distance of positions; in a small image, it is exact if the size stays the same or is doubled."""
    for multiple in (1, 2):
        sized = _insert(node, "Mul", [length, _constant(node, np.array([multiple]))], _INT64)
        is_multiple = _insert(node, "Equal", [size, sized], ir.DataType.BOOL)
        is_exact = _insert(node, "And", [is_small, is_multiple], ir.DataType.BOOL)
        exact = _constant(node, np.array([1 / multiple], np.float32))
        factor = _insert(node, "Where", [is_exact, exact, factor], _FLOAT)
    return factor


def _indices_at_size(node: ir.Node, value: ir.Value, axis: int, sizes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the index of the value for each position, as PyTorch and as ONNX Runtime compute it from a size."""
    length = _insert(node, "Shape", [value], _INT64, start=axis, end=axis + 1)
    size = _insert(node, "Gather", [sizes, _constant(node, np.array([axis]))], _INT64)
    old, new = (_insert(node, "Cast", [each], _FLOAT, to=int(_FLOAT)) for each in (length, size))
    factor, scale = _insert(node, "Div", [old, new], _FLOAT), _insert(node, "Div", [new, old], _FLOAT)
    return _index(node, length, size, factor), _index(node, length, size, scale, "Div")


def _index(node: ir.Node, length: ir.Value, size: ir.Value, factor: ir.Value, operator: str = "Mul") -> ir.Value:
    zero, one = (_constant(node, np.array(number)) for number in (0, 1))
    positions = _insert(node, "Range", [zero, _insert(node, "Squeeze", [size], _INT64), one], _INT64)
    positions = _insert(node, "Cast", [positions], _FLOAT, to=int(_FLOAT))
    index = _insert(node, "Floor", [_insert(node, operator, [positions, factor], _FLOAT)], _FLOAT)
    index = _insert(node, "Cast", [index], _INT64, to=int(_INT64))
    return _insert(node, "Min", [index, _insert(node, "Sub", [length, one], _INT64)], _INT64)


def _expand_inverse(node: ir.Node) -> None:
    """Replace an inverse one-sided ``DFT``: double all values but the first and the middle one; take the real part.

    The rank must be known, because the factors are broadcast along the axis.
    """
    value, axis = node.inputs[0], _axis(node)
    if value is None or value.shape is None or axis is None or value.dtype is None:
        return
    rank, dtype = value.shape.rank(), value.dtype
    axis = axis % rank
    others = [each for each in node.inputs[2:] if each is not None]
    zero, one, two, at = (_constant(node, np.array([number], np.int64)) for number in (0, 1, 2, axis))
    length = _length(node, value, axis, (one, two))
    int64 = ir.DataType.INT64
    half = _insert(node, "Add", [_insert(node, "Div", [length, two], int64), one], int64)
    half_spectrum = _insert(node, "Slice", [value, zero, half, at], dtype)
    size = _insert(node, "Shape", [half_spectrum], int64, start=axis, end=axis + 1)
    scalar = [_insert(node, "Squeeze", [each], int64) for each in (zero, size, one)]
    index = _insert(node, "Range", scalar, int64)
    doubled = _insert(node, "Mul", [index, two], int64)
    ends = [_insert(node, "Equal", pair, ir.DataType.BOOL) for pair in ((index, zero), (doubled, length))]
    is_end = _insert(node, "Or", ends, ir.DataType.BOOL)
    factors = [_constant(node, np.array([number], dtype.numpy())) for number in (1, 2)]
    factor = _insert(node, "Where", [is_end, *factors], dtype)
    axes = _constant(node, np.arange(1, rank - axis, dtype=np.int64))
    weighted = _insert(node, "Mul", [half_spectrum, _insert(node, "Unsqueeze", [factor, axes], dtype)], dtype)
    inputs = [weighted, _insert(node, "Squeeze", [length], int64), *others]
    attributes = {name: each.as_int() for name, each in node.attributes.items() if name != "onesided"}
    whole = _insert(node, "DFT", inputs, dtype, **attributes)
    last = _constant(node, np.array([-1], np.int64))
    _replace(node, _insert(node, "Slice", [whole, zero, one, last], dtype))


def _replace_inverse(node: ir.Node) -> bool:
    """Replace an inverse one-sided ``DFT`` along the last axis but one by a matrix product, if that is exact."""
    value, axis = node.inputs[0], _axis(node)
    requested = node.inputs[1] if len(node.inputs) > 1 else None
    length = None if requested is None else _constant_of(requested)
    if value is None or value.shape is None or axis is None or value.dtype is None or length is None:
        return False
    rank = value.shape.rank()
    if axis % rank != rank - 2 or value.shape[-2] != length // 2 + 1 or not _is_inexact(length):
        return False
    # Each bin but the first and the middle one stands for two; the imaginary parts of these two have no effect.
    factors = np.full(length // 2 + 1, 2.0)
    factors[0] = factors[-1 if length % 2 == 0 else 0] = 1.0
    matrix = (_fourier_matrix(length).T * np.repeat(factors, 2)[:, None] / length).astype(value.dtype.numpy())
    shape = _constant(node, np.array([*[0] * (rank - 2), -1], np.int64))  # 0 keeps a size
    flat = _insert(node, "Reshape", [value, shape], value.dtype)
    product = _insert(node, "MatMul", [flat, _constant(node, matrix)], value.dtype)
    _replace(node, _insert(node, "Unsqueeze", [product, _constant(node, np.array([-1], np.int64))], value.dtype))
    return True


def _replace_transform(node: ir.Node) -> None:
    """Replace a one-sided ``DFT`` of real values along the last axis but one by a matrix product, if that is exact."""
    value, axis = node.inputs[0], _axis(node)
    if value is None or value.shape is None or axis is None or value.dtype is None:
        return
    rank, length, parts = value.shape.rank(), value.shape[-2], value.shape[-1]
    requested = node.inputs[1] if len(node.inputs) > 1 else None
    is_whole = requested is None or _constant_of(requested) == length
    if not isinstance(length, int) or parts != 1 or axis % rank != rank - 2 or not is_whole:
        return
    if not _is_inexact(length):
        return
    bins, matrix = length // 2 + 1, _fourier_matrix(length).astype(value.dtype.numpy())
    real = _insert(node, "Squeeze", [value, _constant(node, np.array([-1], np.int64))], value.dtype)
    product = _insert(node, "MatMul", [real, _constant(node, matrix)], value.dtype)
    shape = _constant(node, np.array([*[0] * (rank - 2), bins, 2], np.int64))  # 0 keeps a size
    _replace(node, _insert(node, "Reshape", [product, shape], value.dtype))


def _replace_short_time_transform(node: ir.Node) -> None:
    """Replace a one-sided ``STFT`` of real values by a convolution, if its parameters are constant."""
    inputs: list[ir.Value | None] = [*node.inputs, None, None]
    value, step, window, requested = inputs[:4]
    if value is None or value.shape is None or value.dtype is None or step is None:
        return
    factors = None if window is None else ir.convenience.get_const_tensor(window)
    stride, length = _constant_of(step), None if requested is None else _constant_of(requested)
    if factors is not None and requested is None:
        length = factors.numpy().size
    fits = window is None or (factors is not None and factors.numpy().size == length)
    if stride is None or length is None or not fits or not _is_inexact(length):
        return
    if value.shape.rank() != 3 or value.shape[-1] != 1:  # noqa: PLR2004 - batch, samples, 1
        return
    bins, matrix = length // 2 + 1, _fourier_matrix(length)
    windowed = matrix if factors is None else matrix * factors.numpy()[:, None]
    weights = _constant(node, windowed.T[:, None].astype(value.dtype.numpy()))
    signal = ir.node("Transpose", [value], {"perm": [0, 2, 1]})
    frames = ir.node("Conv", [signal.outputs[0], weights], {"strides": [stride]})
    ordered = ir.node("Transpose", [frames.outputs[0]], {"perm": [0, 2, 1]})
    for each in (signal, frames, ordered):
        each.outputs[0].dtype = value.dtype
        _graph(node).insert_before(node, each)
    shape = _constant(node, np.array([0, 0, bins, 2], np.int64))  # 0 keeps a size
    _replace(node, _insert(node, "Reshape", [ordered.outputs[0], shape], value.dtype))


def _is_inexact(length: int) -> bool:
    return bool(length & (length - 1)) and length <= _MAX_MATRIX


def _fourier_matrix(length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return ``[length, 2 * bins]``: the real and the imaginary factors of each bin, one after the other."""
    angles = 2 * np.pi / length * (np.outer(np.arange(length), np.arange(length // 2 + 1)) % length)
    return np.stack([np.cos(angles), -np.sin(angles)], -1).reshape(length, -1)


def _constant_of(value: ir.Value) -> int | None:
    """Return a constant number; None if it is not constant."""
    constant = ir.convenience.get_const_tensor(value)
    return None if constant is None else int(constant.numpy().reshape(-1)[0])


def _length(node: ir.Node, value: ir.Value, axis: int, numbers: Sequence[ir.Value]) -> ir.Value:
    """Return the length of the real signal as a vector of one number; without one, it is even."""
    one, two = numbers
    length_input = node.inputs[1] if len(node.inputs) > 1 else None
    int64 = ir.DataType.INT64
    if length_input is not None:
        return _insert(node, "Reshape", [_insert(node, "Cast", [length_input], int64, to=int(int64)), one], int64)
    size = _insert(node, "Shape", [value], int64, start=axis, end=axis + 1)
    return _insert(node, "Mul", [_insert(node, "Sub", [size, one], int64), two], int64)


def _axis(node: ir.Node) -> int | None:
    """Return the axis of a ``DFT``: an attribute before opset 20, then an input; None if it is not constant."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:  # noqa: PLR2004 - the position of the input
        constant = ir.convenience.get_const_tensor(node.inputs[2])
        return None if constant is None else int(constant.numpy())
    return _integer(node, "axis") if "axis" in node.attributes else None


def _graph(node: ir.Node) -> ir.Graph:
    if not isinstance(node.graph, ir.Graph):
        raise TypeError(f"{node.name} is not in a graph")
    return node.graph


def _insert(
    before: ir.Node, operator: str, inputs: Sequence[ir.Value], dtype: ir.DataType | None, **attributes: int
) -> ir.Value:
    """Insert a node with one output before another node; return the output, whose type may be unknown."""
    node = ir.node(operator, list(inputs), attributes)
    if dtype is not None:
        node.outputs[0].dtype = dtype
    _graph(before).insert_before(before, node)
    return node.outputs[0]


def _constant(before: ir.Node, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ir.Value:
    node = ir.node("Constant", [], {"value": ir.tensor(array)})
    output = node.outputs[0]
    output.dtype, output.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    _graph(before).insert_before(before, node)
    return output


def _replace(node: ir.Node, value: ir.Value) -> None:
    """Use ``value`` in place of the output of a node, and remove the node."""
    _move_uses(node.outputs[0], value)
    _graph(node).remove(node, safe=True)


def _move_uses(old: ir.Value, new: ir.Value) -> None:
    """Use ``new`` wherever ``old`` is used, also as an output of the graph."""
    if old.dtype is not None:
        new.dtype = old.dtype
    new.shape = old.shape
    name, is_output = old.name, old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if is_output:
        old.name, new.name = f"{name}_replaced", name
