"""Detects where tracing reads a tensor into Python: a branch that depends on tensor values would be frozen.

TorchScript's TracerWarning does not distinguish values from shapes, because both are tensors in a trace. This module
therefore records the reads themselves, and follows the traced graph backward from each tensor that was read. A path
that reaches an input without passing through a size depends on the input's values. So does a size that an operator
such as ``nonzero`` computes from values.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from repogen.source.torch.torch_frames import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_COMPARES = ("equal", "allclose", "is_nonzero")
_VALUE_READS = [
    *((torch.Tensor, name) for name in ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy")),
    *((owner, name) for owner in (torch.Tensor, torch) for name in _COMPARES),
]
# These read the size of axis 0, not the values.
_LENGTH_READS = ("__len__", "__iter__")
_PACKING = frozenset({torch.nn.utils.rnn.__file__, torch.nn.modules.rnn.__file__})
# The outputs of these depend on the shape and dtype of their inputs only.
_OF_SHAPE = frozenset(
    {"aten::size", "aten::dim", "aten::numel", "aten::len", "aten::stride", "prim::dtype", "prim::device"}
    | {f"aten::{kind}_like" for kind in ("zeros", "ones", "empty")}
    | {f"aten::new_{kind}" for kind in ("zeros", "ones", "empty")}
)
# The output size of these depends on the values of their inputs; aten::index and others only with some inputs.
_SIZE_FROM_VALUES = frozenset(
    {f"aten::{name}" for name in ("nonzero", "nonzero_numpy", "argwhere", "masked_select", "bincount")}
    | {f"aten::{name}" for name in ("_unique", "_unique2", "unique_dim", "unique_consecutive")}
    | {"torchvision::nms"}
)


@dataclass(frozen=True)
class ValueRead:
    """A line that reads the value of a tensor while the model is traced.

    Attributes:
        path: Source file.
        line: Line in the file.
        method: The method that reads, for example ``__bool__``.
    """

    path: str
    line: int
    method: str


@dataclass
class TraceReads:
    """What a trace reads into Python.

    Attributes:
        values: Lines that read the values of tensors.
        numbers: Numbers that branches on sizes compare with.
    """

    values: list[ValueRead] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


@contextmanager
def record_reads(inputs: int) -> Iterator[TraceReads]:
    """Record the lines that read values, and the branches on sizes, while the block traces a model.

    Args:
        inputs: Number of tensor inputs; further inputs of the traced graph are weights, which are constant.
    """
    reads = TraceReads()
    methods = [*_VALUE_READS, *((torch.Tensor, name) for name in _LENGTH_READS)]
    originals = [(owner, name, getattr(owner, name)) for owner, name in methods]
    for owner, name, original in originals:
        setattr(owner, name, _recording(name, original, inputs, reads))
    # The original getter hides the tensor from the trace, which would turn dependent values into constants.
    inherited: Any = torch.Tensor.data
    torch.Tensor.data = property(torch.Tensor.detach, inherited.__set__)  # type: ignore[assignment]
    try:
        yield reads
    finally:
        del torch.Tensor.data
        for owner, name, original in originals:
            setattr(owner, name, original)


def _recording(name: str, original: Callable[..., Any], inputs: int, reads: TraceReads) -> Callable[..., Any]:
    def read(*args: object, **kwargs: object) -> object:
        state: Any = torch._C._get_tracing_state()  # noqa: SLF001 - the trace has no public API
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if _is_packing(sys._getframe(1)):  # noqa: SLF001 - a traceback would cost more
            pass
        elif state is not None and any(
            _depends_on_values(tensor, state, inputs, of_size=name in _LENGTH_READS) for tensor in tensors
        ):
            frame = user_frame()
            value_read = ValueRead(frame.f_code.co_filename, frame.f_lineno, name)
            if value_read not in reads.values:
                reads.values.append(value_read)
        elif state is not None and name == "__bool__":
            reads.numbers.update(_compared_numbers(tensors[0]))
        return original(*args, **kwargs)

    return read


def _is_packing(frame: FrameType) -> bool:
    """Return whether PyTorch's own packing of sequences reads a value: lengths, which it checks but does not freeze.

    The exporter translates packing as a whole, and the parity cases have rows of different lengths.
    """
    return frame.f_code.co_filename in _PACKING


def _compared_numbers(tensor: torch.Tensor) -> Iterator[int]:
    """Yield the integers that a traced condition is computed with."""
    queue = [torch._C._get_value_trace(tensor)]  # type: ignore[attr-defined] # noqa: SLF001 - the trace has no public API
    visited_names: set[str] = set()
    while queue:
        value = queue.pop()
        if value.debugName() in visited_names:
            continue
        visited_names.add(value.debugName())
        node = value.node()
        if node.kind() == "prim::Constant":
            number = value.toIValue()
            number = number.item() if isinstance(number, torch.Tensor) and number.numel() == 1 else number
            if isinstance(number, int):
                yield number
        elif node.kind() not in _OF_SHAPE:
            queue.extend(node.inputs())


def _depends_on_values(tensor: torch.Tensor, state: Any, inputs: int, *, of_size: bool) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Return whether a tensor, or its size, depends on the values of the first ``inputs`` inputs of the trace."""
    # First, because it may rename the value to the caller's variable.
    queue = [(torch._C._get_value_trace(tensor), of_size)]  # type: ignore[attr-defined] # noqa: SLF001 - the trace has no public API
    graph_inputs = {value.debugName() for value in list(state.graph().inputs())[:inputs]}
    visited_names: set[tuple[str, bool]] = set()
    while queue:
        value, of_size = queue.pop()
        if (value.debugName(), of_size) in visited_names:
            continue
        visited_names.add((value.debugName(), of_size))
        if value.debugName() not in graph_inputs:
            queue.extend(_size_dependencies(value.node()) if of_size else _value_dependencies(value.node()))
        elif not of_size:
            return True
    return False


def _value_dependencies(node: Any) -> list[tuple[Any, bool]]:  # noqa: ANN401 - torch._C is untyped
    """Return the inputs that a node's values depend on, and for each whether only its size matters."""
    return [(value, node.kind() in _OF_SHAPE) for value in node.inputs()]


def _size_dependencies(node: Any) -> list[tuple[Any, bool]]:  # noqa: ANN401 - torch._C is untyped
    """Return the inputs that the size of a node's output depends on, as ``_value_dependencies`` does."""
    values = list(node.inputs())
    if node.kind() in _SIZE_FROM_VALUES or (node.kind() == "aten::where" and len(values) == 1):
        return [(value, False) for value in values]
    if node.kind() == "aten::index":
        indices = list(values[1].node().inputs())
        return [(values[0], True), *((index, not _is_mask(index)) for index in indices)]
    if node.kind() == "aten::repeat_interleave":  # repeats are a tensor or an integer
        return [(value, value is values[0] and len(values) > 1 and _is_tensor(values[1])) for value in values]
    # An integer argument is itself a size: zeros(n), reshape(n, -1), x[:n].
    return [(value, _is_tensor(value)) for value in values if not _is_scalar(value)]


def _is_tensor(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Return whether a value is a tensor, a list of tensors or an optional tensor."""
    return "Tensor" in str(value.type()) or value.type().kind() == "TensorType"


def _is_scalar(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Return whether a value is a tensor of rank 0, which broadcasts and does not change any size."""
    return bool(value.type().kind() == "TensorType" and value.type().dim() == 0)


def _is_mask(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    return value.type().kind() == "TensorType" and value.type().scalarType() in {"Bool", "Byte"}
