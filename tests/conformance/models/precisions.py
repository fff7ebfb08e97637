"""Models in precisions other than float32."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def _plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)).eval()


def brain() -> nn.Module:
    """Return a module with bfloat16 weights, as from a bf16 checkpoint."""
    return _plain().to(torch.bfloat16)


def half() -> nn.Module:
    """Return a module with float16 weights."""
    return _plain().half()


def double() -> nn.Module:
    """Return a module with float64 weights."""
    return _plain().double()


def quantized() -> nn.Module:
    """Return a dynamically quantized module, whose packed weights no exporter supports."""
    quantize: Any = torch.ao.quantization.quantize_dynamic
    model: nn.Module = quantize(_plain(), {nn.Linear}, dtype=torch.qint8)
    return model


class Spectrum(nn.Module):
    """Returns complex numbers."""

    def forward(self, x: Tensor) -> Any:
        return torch.fft.rfft(x * 2)


class RealSpectrum(nn.Module):
    """Returns the same values as real numbers."""

    def forward(self, x: Tensor) -> Any:
        return torch.view_as_real(torch.fft.rfft(x * 2))


class ToBrain(nn.Module):
    """Rounds its output to bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x).to(torch.bfloat16)


class InnerHalf(nn.Module):
    """Computes a part in float16, and returns float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3).half()

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x).half()).float()


class Bytes(nn.Module):
    """Accepts an image in the format of a camera: uint8, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        scaled = image.permute(0, 3, 1, 2).float() / 255
        return self.convolution(scaled).mean((2, 3))


class Small(nn.Module):
    """Accepts int32 codes and booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, codes: Tensor, keep: Tensor) -> Any:
        return (self.table(codes) * keep.unsqueeze(-1)).sum(1)
