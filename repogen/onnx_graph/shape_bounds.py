"""Bounds of what an inference of shapes allocates, from the operators alone.

An inference in onnx has no limits: ``Expand`` with a shape of 2**40 elements has an output of 2**40 dims (until opset
12; in older versions of onnx also ``Reshape`` and others), and a chain of ``Unsqueeze`` adds dims with each node.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import onnx

_MAX_VALUES = 64
"""Elements of a constant whose values are read."""
_MANY = 2**40
"""Number of elements of a value that could have any."""
_USUAL_RANK = 8
"""Largest rank of an output that does not depend on the inputs."""
_BROADCAST = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual",
    "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Relu", "Round", "Sign",
    "Sqrt", "Sub", "Where", "Xor",
})  # fmt: skip
_PARTS = frozenset({
    "ArgMax", "ArgMin", "CumSum", "Flatten", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze", "Transpose",
})  # fmt: skip
"""Operators whose outputs have at most the elements and the dims of the first input."""
_LONGER = frozenset({"ConcatFromSequence", "Loop", "OneHot", "OneHotEncoder", "Scan", "STFT", "StringSplit"})
"""Operators whose outputs have at most one dim more than their inputs."""
_RESHAPED = frozenset({"AffineGrid", "Col2Im", "ConstantOfShape", "Expand", "Reshape"})
"""Operators with an input or an attribute whose length is the rank of the output."""
_BY_ATTRIBUTE = frozenset({"Einsum", "RandomNormal", "RandomUniform"})
"""Operators with an attribute whose length is the rank of the output."""


class _Bounds(NamedTuple):
    """The largest rank, and the largest number of elements, where dims without a number count as one."""

    rank: int
    size: int


_NOTHING = _Bounds(0, 0)


class ShapeBounds:
    """The bounds of each value; a name can also be that of another value in a subgraph, and has the bounds of both."""

    def __init__(self) -> None:
        """Start without values."""
        self._bounds: dict[str, _Bounds] = {}
        self._factors: dict[str, int] = {}  # products of the values of constants

    def dims(self, graph: onnx.GraphProto, most: int) -> int:
        """Return how many dims the values of a graph have together; the sum ends above a limit."""
        total = 0
        for value in (*graph.input, *graph.value_info, *graph.output):
            total += self._add(value.name, _of_type(value.type))
        for tensor in graph.initializer:
            total += self._add_constant(tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            total += self._add(sparse.values.name, _Bounds(len(sparse.dims), _product(sparse.dims)))
        for node in graph.node:
            if total > most:
                break
            total += self._add_node(node, most)
        return total

    def _add(self, name: str, bounds: _Bounds) -> int:
        """Add a value, and return its dims."""
        before = self._of(name)
        self._bounds[name] = _Bounds(max(bounds.rank, before.rank), min(max(bounds.size, before.size), _MANY))
        return bounds.rank

    def _add_constant(self, name: str, tensor: onnx.TensorProto) -> int:
        size, values = _product(tensor.dims), None
        if size <= _MAX_VALUES and tensor.data_type in {TensorProto.INT64, TensorProto.INT32}:
            with suppress(Exception):  # the data may have any size, or be in another file
                values = numpy_helper.to_array(tensor).reshape(-1).tolist()
        self._add_values(name, values)
        return self._add(name, _Bounds(len(tensor.dims), size))

    def _add_values(self, name: str, values: Sequence[int] | None) -> None:
        factor = _MANY if values is None else _product([abs(value) for value in values])
        self._factors[name] = max(factor, self._factors.get(name, 1))

    def _add_node(self, node: onnx.NodeProto, most: int) -> int:
        """Add the outputs of a node; return their dims, and those of the values of its subgraphs."""
        graphs = [each.g for each in node.attribute if each.HasField("g")]
        graphs += [graph for each in node.attribute for graph in each.graphs]
        inputs, total, results = _most(self._all(node.input)), 0, [self._outputs(node)]
        for graph in graphs:
            for value in graph.input:  # those of a loop's body are the inputs of the loop
                self._add(value.name, inputs)
            total += self.dims(graph, most)
            rank, size = _most(self._all(value.name for value in graph.output))
            results.append(_Bounds(rank + (node.op_type in _LONGER), size if node.op_type == "If" else _MANY))
        if node.op_type == "Constant":
            self._add_attribute(node)
        for name in node.output:
            self._add(name, _most(results))
        return total + sum(value.rank for value in self._all(node.output))

    def _add_attribute(self, node: onnx.NodeProto) -> None:
        """Add the value of a ``Constant``, which has one attribute and one output."""
        for name in node.output[:1]:
            if len(node.attribute) != 1:
                self._add_values(name, None)
                self._add(name, _Bounds(0, _MANY))
                continue
            value = node.attribute[0]
            if value.HasField("t"):
                self._add_constant(name, value.t)
                continue
            self._add_values(name, None if value.HasField("sparse_tensor") else value.ints or [value.i])
            lengths = (len(value.ints), len(value.floats), len(value.strings), 1)
            self._add(name, _Bounds(1, max(lengths)))
            self._add(name, _Bounds(len(value.sparse_tensor.dims), _product(value.sparse_tensor.dims)))

    def _outputs(self, node: onnx.NodeProto) -> _Bounds:
        """Return the bounds of the outputs of a node."""
        kind, inputs = node.op_type, list(self._all(node.input))
        first, rank = _most(inputs[:1]), _most(inputs).rank
        if kind in {"Shape", "Size"}:
            return _Bounds(1, first.rank + 1)
        if kind == "Concat":
            return _Bounds(rank, sum(value.size for value in inputs))
        if kind in _PARTS:
            return first
        if kind == "Unsqueeze":
            lengths = [value.size for value in inputs[1:]] + [len(each.ints) for each in node.attribute]
            return _Bounds(first.rank + max(lengths, default=0), first.size)
        if kind in _BROADCAST:
            return _Bounds(rank, _most(inputs).size if rank <= 1 else _size(inputs))
        return self._resized(node, inputs)

    def _resized(self, node: onnx.NodeProto, inputs: list[_Bounds]) -> _Bounds:
        """Return the bounds for operators whose outputs depend on the length of an input, and for the others."""
        kind, rank = node.op_type, _most(inputs).rank
        if kind in {"If", "Constant"}:
            return _NOTHING
        if kind.startswith("Gather"):
            size = _most(inputs[1:]).size if inputs and inputs[0].rank <= 1 else _size(inputs)
            return _Bounds(max(sum(value.rank for value in inputs) - 1, 0), size)
        attributes = [len(each.ints) + len(each.s) for each in node.attribute]
        if kind in _RESHAPED:
            data, shapes = (0, node.input) if kind == "ConstantOfShape" else (1, node.input[1:])
            lengths = [*attributes, *(self._of(name).size for name in shapes)]
            factors = [_MANY if any(attributes) else 1, *(self._factors.get(name, 1) for name in shapes)]
            rank = max([*lengths, *(value.rank for value in inputs if kind == "Expand")], default=0)
            return _Bounds(rank + 2 * (kind == "Col2Im"), min(_size(inputs[:data]) * prod(factors), _MANY))
        lengths = attributes if kind in _BY_ATTRIBUTE else []
        return _Bounds(max([rank + (kind in _LONGER), _USUAL_RANK, *lengths]), _MANY)

    def _of(self, name: str) -> _Bounds:
        return self._bounds.get(name, _NOTHING)

    def _all(self, names: Iterable[str]) -> Iterator[_Bounds]:
        return map(self._of, names)


def _most(values: Iterable[_Bounds]) -> _Bounds:
    values = list(values)
    return _Bounds(max((value.rank for value in values), default=0), max((value.size for value in values), default=0))


def _size(values: Iterable[_Bounds]) -> int:
    """Return the elements of values that are broadcast to each other."""
    return min(prod(max(value.size, 1) for value in values), _MANY)


def _of_type(value: onnx.TypeProto) -> _Bounds:
    """Return the bounds of a type; for a sequence, of what its message could contain."""
    if not value.HasField("tensor_type"):
        return _Bounds(value.ByteSize() // 2, _MANY)
    dims = value.tensor_type.shape.dim
    return _Bounds(len(dims), _product([dim.dim_value for dim in dims[: _MAX_VALUES + 1]]))


def _product(dims: Sequence[int]) -> int:
    """Return the number of elements; a negative or unknown dim counts as one, because no length follows from it."""
    return min(prod(max(dim, 1) for dim in dims), _MANY) if len(dims) <= _MAX_VALUES else _MANY
