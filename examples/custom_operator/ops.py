"""A custom operator and its ONNX translations."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18 as op
from torch.onnx import symbolic_helper


@torch.library.custom_op("demo::clipped_cube", mutates_args=())
def clipped_cube(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Cube ``x``, and clip it to ``[-limit, limit]``."""
    return (x * x * x).clamp(-limit, limit)


@clipped_cube.register_fake
def _(x: torch.Tensor, limit: float) -> torch.Tensor:
    del limit
    return torch.empty_like(x)


def _translation(x: Any, limit: float) -> Any:
    return op.Clip(op.Mul(op.Mul(x, x), x), -limit, limit)


@symbolic_helper.parse_args("v", "f")
def _symbolic(g: Any, x: Any, limit: float) -> Any:
    cube = g.op("Mul", g.op("Mul", x, x), x)
    return g.op("Clip", cube, *(g.op("Constant", value_t=torch.tensor(bound)) for bound in (-limit, limit)))


def table() -> dict[object, object]:
    """Return translations for the dynamo exporter."""
    return {torch.ops.demo.clipped_cube.default: _translation}


symbolics = {"demo::clipped_cube": _symbolic}
