"""Translations of operators that the dynamo exporter lacks: stable sorting.

TorchScript's are in ``repogen.export.symbolics``. ONNX requires of ``TopK`` that the first of equal values comes first,
in both directions, which is the order of a stable sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from onnxscript import opset18 as op

if TYPE_CHECKING:
    from collections.abc import Callable


def _sort(self: Any, *, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:  # noqa: ANN401 - the exporter's values are not typed
    del stable
    size: Any = op.Gather(  # type: ignore[type-var] # its annotations do not accept every dtype
        op.Shape(self), op.Constant(value_ints=[dim]), axis=0
    )
    return op.TopK(self, size, axis=dim, largest=int(descending), sorted=1)


def _argsort(self: Any, *, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:  # noqa: ANN401
    return _sort(self, stable=stable, dim=dim, descending=descending)[1]


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.sort.stable: _sort,
    torch.ops.aten.argsort.stable: _argsort,
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
