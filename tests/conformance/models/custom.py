"""A custom operator, and its translation for each exporter."""
# ruff: noqa: D102, D107 - the docstrings of the classes are enough

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor, nn
from torch.onnx import symbolic_helper

op: Any = opset18


@torch.library.custom_op("zoo::soft_clip", mutates_args=())
def soft_clip(x: Tensor, limit: float) -> Tensor:
    """Clip smoothly to between ``-limit`` and ``limit``."""
    return limit * torch.tanh(x / limit)


@soft_clip.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    del limit
    return torch.empty_like(x)


_soft_clip: Any = torch.ops.zoo.soft_clip


class SoftClipped(nn.Module):
    """Uses the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return _soft_clip(self.linear(x), 0.5)


def _translated(x: Any, limit: float) -> Any:
    divisor = op.CastLike(op.Constant(value_float=limit), x)
    return op.Mul(op.Tanh(op.Div(x, divisor)), divisor)


def table() -> dict[Any, Any]:
    """Return dynamo's custom_translation_table."""
    return {_soft_clip.default: _translated}


def symbolics() -> dict[str, Any]:
    """Return TorchScript's symbolic functions by operator."""

    def symbolic(g: Any, x: Any, limit: Any) -> Any:
        number = symbolic_helper._maybe_get_const(limit, "f")  # noqa: SLF001 - as PyTorch's own docs do
        divisor = g.op("Constant", value_t=torch.tensor(number, dtype=torch.float32))
        return g.op("Mul", g.op("Tanh", g.op("Div", x, divisor)), divisor)

    return {"zoo::soft_clip": symbolic}
