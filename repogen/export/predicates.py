"""Finds where tracing reads a tensor into Python: a branch that hangs on tensor values would be frozen.

TorchScript's TracerWarning does not tell values from shapes, though while tracing both are tensors. So the reads
themselves are watched, and the recorded graph is followed back from what was read: a path that reaches an input
without passing a size hangs on its values.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_COMPARES = ("equal", "allclose", "is_nonzero")
_READS = [
    *((torch.Tensor, name) for name in ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy")),
    *((owner, name) for owner in (torch.Tensor, torch) for name in _COMPARES),
]
# What these give depends on their input's shape and dtype alone.
_OF_SHAPE = frozenset(
    {"aten::size", "aten::dim", "aten::numel", "aten::len", "aten::stride", "prim::dtype", "prim::device"}
    | {f"aten::{kind}_like" for kind in ("zeros", "ones", "empty")}
    | {f"aten::new_{kind}" for kind in ("zeros", "ones", "empty")}
)
_TORCH = str(Path(torch.__file__).parent)


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


@contextmanager
def watch_reads(inputs: int) -> Iterator[list[ValueRead]]:
    """Collect the places that read values while the block traces a model.

    Args:
        inputs: Number of tensor inputs; further inputs of the traced graph are weights, which are constant.
    """
    places: list[ValueRead] = []
    originals = [(owner, name, getattr(owner, name)) for owner, name in _READS]
    for owner, name, original in originals:
        setattr(owner, name, _watched(name, original, inputs, places))
    try:
        yield places
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _watched(name: str, original: Callable[..., Any], inputs: int, places: list[ValueRead]) -> Callable[..., Any]:
    def read(*args: object, **kwargs: object) -> object:
        state: Any = torch._C._get_tracing_state()  # noqa: SLF001 - no public way to the trace
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if state is not None and any(_hangs_on_values(tensor, state, inputs) for tensor in tensors):
            frame = _user_frame(sys._getframe(1))  # noqa: SLF001 - a traceback would cost more
            place = ValueRead(frame.f_code.co_filename, frame.f_lineno, name)
            if place not in places:
                places.append(place)
        return original(*args, **kwargs)

    return read


def _hangs_on_values(tensor: torch.Tensor, state: Any, inputs: int) -> bool:  # noqa: ANN401 - torch._C is untyped
    # First: it may give the value a new name, that of the caller's variable.
    pending = [torch._C._get_value_trace(tensor)]  # type: ignore[attr-defined] # noqa: SLF001 - no public way to the trace
    graph_inputs = {value.debugName() for value in list(state.graph().inputs())[:inputs]}
    seen: set[str] = set()
    while pending:
        value = pending.pop()
        if value.debugName() in seen:
            continue
        seen.add(value.debugName())
        if value.debugName() in graph_inputs:
            return True
        node = value.node()
        if node.kind() not in _OF_SHAPE:
            pending.extend(node.inputs())
    return False


def _user_frame(frame: FrameType) -> FrameType:
    """Return the nearest frame outside torch."""
    current = frame
    while current.f_back is not None and current.f_code.co_filename.startswith(_TORCH):
        current = current.f_back
    return current
