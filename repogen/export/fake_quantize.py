"""Fake quantization in plain operators, for ranges that QuantizeLinear does not have, such as -127 to 127."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONNX_RANGES = frozenset({(0, 127), (0, 255), (-128, 127)})


@contextmanager
def plain_fake_quantize() -> Iterator[None]:
    """Replace ``torch.fake_quantize_per_tensor_affine`` and ``…_per_channel_affine`` for other ranges in the block."""
    per_tensor: Any = torch.fake_quantize_per_tensor_affine
    per_channel: Any = torch.fake_quantize_per_channel_affine

    def tensor_affine(
        input: torch.Tensor,  # noqa: A002 - PyTorch's signature
        scale: torch.Tensor | float,
        zero_point: torch.Tensor | int,
        quant_min: int,
        quant_max: int,
    ) -> torch.Tensor:
        if (quant_min, quant_max) in _ONNX_RANGES:
            kernel: torch.Tensor = per_tensor(input, scale, zero_point, quant_min, quant_max)
            return kernel
        return fake_quantize(input, scale, zero_point, quant_min, quant_max)

    def channel_affine(
        input: torch.Tensor,  # noqa: A002
        scale: torch.Tensor,
        zero_point: torch.Tensor,
        axis: int,
        quant_min: int,
        quant_max: int,
    ) -> torch.Tensor:
        if (quant_min, quant_max) in _ONNX_RANGES:
            kernel: torch.Tensor = per_channel(input, scale, zero_point, axis, quant_min, quant_max)
            return kernel
        shape = [-1 if index == axis % input.ndim else 1 for index in range(input.ndim)]
        return fake_quantize(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)

    torch.fake_quantize_per_tensor_affine = tensor_affine
    torch.fake_quantize_per_channel_affine = channel_affine
    try:
        yield
    finally:
        torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine = per_tensor, per_channel


def fake_quantize(
    values: torch.Tensor,
    scale: torch.Tensor | float,
    zero_point: torch.Tensor | int,
    quant_min: int,
    quant_max: int,
) -> torch.Tensor:
    """Return values rounded to the numbers of a quantized type, as PyTorch's kernel computes them.

    Args:
        values: Any shape.
        scale: Distance of two numbers; broadcastable to ``values``.
        zero_point: The integer that stands for 0.
        quant_min: The smallest integer.
        quant_max: The largest integer.
    """
    integers = torch.round(values * (1.0 / scale)) + zero_point
    return (torch.clamp(integers, quant_min, quant_max) - zero_point) * scale
