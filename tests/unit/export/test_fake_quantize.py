"""Fake quantization with ranges that ONNX does not have."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repogen.export.fake_quantize import plain_fake_quantize

RANGES = [(-127, 127), (0, 15), (-8, 7), (-128, 127), (0, 255)]


@pytest.mark.parametrize("limits", RANGES)
def test_plain_operators_equal_the_kernel(limits: tuple[int, int]) -> None:
    """For each tensor and each channel, with numbers and tensors as parameters, also on ties."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(5, 4, 30, generator=generator) * 9, torch.full((5, 4, 2), 0.05)], 2)
    scale, zero_point = torch.tensor([0.1, 0.02, 0.5, 0.25]), torch.tensor([0, 1, 3, 7], dtype=torch.int32)
    calls: Any = (
        lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, *limits),
        lambda: torch.fake_quantize_per_tensor_affine(x, scale[:1], zero_point[:1], *limits),
        lambda: torch.fake_quantize_per_channel_affine(x, scale, zero_point.clamp(*limits), 1, *limits),
    )
    expected = [call() for call in calls]
    native = torch.fake_quantize_per_tensor_affine
    with plain_fake_quantize():
        actual = [call() for call in calls]
    for left, right in zip(expected, actual, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)
    assert torch.fake_quantize_per_tensor_affine is native
