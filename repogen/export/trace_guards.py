"""Finds where tracing reads a tensor into Python: a branch that hangs on tensor values would be frozen.

TorchScript's TracerWarning does not tell values from shapes, though while tracing both are tensors. So the reads
themselves are watched, and the recorded graph is followed back from what was read: a path that reaches an input
without passing a size hangs on its values. So does a size, where an operator such as nonzero made it out of values.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from repogen.source.torch.torch_frames import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARES = ("equal", "allclose", "is_nonzero")
_READS = [
    *((torch.Tensor, name) for name in ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy")),
    *((owner, name) for owner in (torch.Tensor, torch) for name in _COMPARES),
]
# These read how long axis 0 is, not what the tensor holds.
_LENGTH_READS = ("__len__", "__iter__")
# What these give depends on their input's shape and dtype alone.
_OF_SHAPE = frozenset(
    {"aten::size", "aten::dim", "aten::numel", "aten::len", "aten::stride", "prim::dtype", "prim::device"}
    | {f"aten::{kind}_like" for kind in ("zeros", "ones", "empty")}
    | {f"aten::new_{kind}" for kind in ("zeros", "ones", "empty")}
)
# How large the output of these is depends on their inputs' values; aten::index and others only with some inputs.
_SIZE_FROM_VALUES = frozenset(
    {f"aten::{name}" for name in ("nonzero", "nonzero_numpy", "argwhere", "masked_select", "bincount")}
    | {f"aten::{name}" for name in ("_unique", "_unique2", "unique_dim", "unique_consecutive")}
    | {"torchvision::nms"}
)


@dataclass(frozen=True)
class ValueRead:
    """A place that reads a value out of a tensor while the model is traced.

    Attributes:
        path: Source file.
        line: Line in it.
        read: The method that read, for example ``__bool__``.
    """

    path: str
    line: int
    read: str


@dataclass
class Reads:
    """What tracing read into Python.

    Attributes:
        values: Places that read values out of tensors.
        numbers: Numbers that a branch on sizes compares with.
    """

    values: list[ValueRead] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


@contextmanager
def watch_reads(inputs: int) -> Iterator[Reads]:
    """Collect the places that read values, and the branches on sizes, while the block traces a model.

    Args:
        inputs: Number of tensor inputs; further inputs of the traced graph are weights, which are constant.
    """
    reads = Reads()
    watched = [*_READS, *((torch.Tensor, name) for name in _LENGTH_READS)]
    originals = [(owner, name, getattr(owner, name)) for owner, name in watched]
    for owner, name, original in originals:
        setattr(owner, name, _watched(name, original, inputs, reads))
    # Its own getter hides the tensor from the trace: what is made of it would be a constant of the graph.
    inherited: Any = torch.Tensor.data
    torch.Tensor.data = property(torch.Tensor.detach, inherited.__set__)  # type: ignore[assignment]
    try:
        yield reads
    finally:
        del torch.Tensor.data
        for owner, name, original in originals:
            setattr(owner, name, original)


def _watched(name: str, original: Callable[..., Any], inputs: int, reads: Reads) -> Callable[..., Any]:
    def read(*args: object, **kwargs: object) -> object:
        state: Any = torch._C._get_tracing_state()  # noqa: SLF001 - no public way to the trace
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if state is not None and any(
            _hangs_on_values(tensor, state, inputs, of_size=name in _LENGTH_READS) for tensor in tensors
        ):
            frame = user_frame()
            place = ValueRead(frame.f_code.co_filename, frame.f_lineno, name)
            if place not in reads.values:
                reads.values.append(place)
        elif state is not None and name == "__bool__":
            reads.numbers.update(_compared(tensors[0]))
        return original(*args, **kwargs)

    return read


def _compared(tensor: torch.Tensor) -> Iterator[int]:
    """Yield the whole numbers that a traced condition was computed with."""
    pending = [torch._C._get_value_trace(tensor)]  # type: ignore[attr-defined] # noqa: SLF001 - no public way to the trace
    seen: set[str] = set()
    while pending:
        value = pending.pop()
        if value.debugName() in seen:
            continue
        seen.add(value.debugName())
        node = value.node()
        if node.kind() == "prim::Constant":
            number = value.toIValue()
            number = number.item() if isinstance(number, torch.Tensor) and number.numel() == 1 else number
            if isinstance(number, int):
                yield number
        elif node.kind() not in _OF_SHAPE:
            pending.extend(node.inputs())


def _hangs_on_values(tensor: torch.Tensor, state: Any, inputs: int, *, of_size: bool) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Whether a tensor, or only its size, hangs on the values of the traced graph's first ``inputs`` inputs."""
    # First: it may give the value a new name, that of the caller's variable.
    pending = [(torch._C._get_value_trace(tensor), of_size)]  # type: ignore[attr-defined] # noqa: SLF001 - no public way to the trace
    graph_inputs = {value.debugName() for value in list(state.graph().inputs())[:inputs]}
    seen: set[tuple[str, bool]] = set()
    while pending:
        value, of_size = pending.pop()
        if (value.debugName(), of_size) in seen:
            continue
        seen.add((value.debugName(), of_size))
        if value.debugName() not in graph_inputs:
            pending.extend(_behind_size(value.node()) if of_size else _behind_values(value.node()))
        elif not of_size:
            return True
    return False


def _behind_values(node: Any) -> list[tuple[Any, bool]]:  # noqa: ANN401 - torch._C is untyped
    """Return what a node's values are made of: its inputs, and for each whether only its size counts."""
    return [(value, node.kind() in _OF_SHAPE) for value in node.inputs()]


def _behind_size(node: Any) -> list[tuple[Any, bool]]:  # noqa: ANN401 - torch._C is untyped
    """Return what the size of a node's output is made of, as ``_behind_values`` does."""
    values = list(node.inputs())
    if node.kind() in _SIZE_FROM_VALUES or (node.kind() == "aten::where" and len(values) == 1):
        return [(value, False) for value in values]
    if node.kind() == "aten::index":
        indices = list(values[1].node().inputs())
        return [(values[0], True), *((index, not _is_mask(index)) for index in indices)]
    if node.kind() == "aten::repeat_interleave":  # by a number of times each, as a tensor, or by an int
        return [(value, value is values[0] and len(values) > 1 and _is_tensor(values[1])) for value in values]
    # An integer argument is a size itself: that of zeros(n), reshape(n, -1) or x[:n].
    return [(value, _is_tensor(value)) for value in values if not _is_scalar(value)]


def _is_tensor(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Whether a value is a tensor, a list of tensors or an optional one."""
    return "Tensor" in str(value.type()) or value.type().kind() == "TensorType"


def _is_scalar(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    """Whether a value is a tensor of rank 0, which broadcasts and so leaves every size as it is."""
    return bool(value.type().kind() == "TensorType" and value.type().dim() == 0)


def _is_mask(value: Any) -> bool:  # noqa: ANN401 - torch._C is untyped
    return value.type().kind() == "TensorType" and value.type().scalarType() in {"Bool", "Byte"}
