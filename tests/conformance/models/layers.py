"""Layers and operators that are hard to export; none of them mixes rows."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations


class InPlace(nn.Module):
    """Changes tensors in place, including its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        x.mul_(2)
        scored = self.linear(x)
        scored[:, 0] = 0
        scored[:, 1:3] += 1
        return functional.relu_(scored)


class Einsum(nn.Module):
    """Attention that is written with einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Any:
        query, key, value = self.project(x).chunk(3, -1)
        scores = torch.einsum("bqd,bkd->bqk", query, key) / math.sqrt(8)
        return torch.einsum("bqk,bkd->bqd", scores.softmax(-1), value)


class Upsample(nn.Module):
    """Doubles the size of an image, and resizes a second image to match it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1, stride=2)

    def forward(self, x: Tensor) -> Any:
        small = self.convolution(x)
        near = functional.interpolate(small, scale_factor=2, mode="nearest")
        return near + functional.interpolate(small, size=near.shape[-2:], mode="bilinear", align_corners=False)


class Spectrogram(nn.Module):
    """A short-time Fourier transform whose output is real numbers."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.stft(x, 32, 16, window=self.window, center=False, return_complex=True)
        return torch.view_as_real(spectrum).square().sum(-1)


class Bag(nn.Module):
    """Means of embeddings, computed by nn.EmbeddingBag."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 8, mode="mean")

    def forward(self, ids: Tensor) -> Any:
        return self.bag(ids)


class _Norm(nn.Module):
    """A layer norm written by hand."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Any:
        centered = x - x.mean(-1, keepdim=True)
        return self.scale * centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + 1e-5)


def custom_norm() -> nn.Module:
    """Return a layer norm that is written by hand, between two linear layers."""
    return nn.Sequential(nn.Linear(4, 8), _Norm(8), nn.Linear(8, 3))


class Tied(nn.Module):
    """Uses one weight as embedding and as output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8)
        self.out = nn.Linear(8, 30, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Any:
        return self.out(self.table(ids))


class Differences(nn.Module):
    """Requires at least two time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x[:, 1:] - x[:, :-1]) + x[:, -2:-1, :3]


class SecondLast(nn.Module):
    """Returns the second-to-last step."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x[:, -2])


class Unroll(nn.Module):
    """A Python loop over layers, and one over a fixed number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            for _ in range(2):
                x = torch.tanh(layer(x))
        return x


class Recurrent(nn.Module):
    """A bidirectional GRU, batch first, which creates its initial state for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(4, x.shape[0], 5)
        answer, last = self.gru(x, state)
        return answer, last.transpose(0, 1)


class LastValid(nn.Module):
    """An LSTM's output at the last step of each row, selected by gather."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor, length: Tensor) -> Any:
        answer = self.lstm(x)[0]
        index = (length - 1).reshape(-1, 1, 1).expand(-1, 1, 5)
        return answer.gather(1, index).squeeze(1)


def lengths(batch: int, time: int, seed: int = 0) -> dict[str, Tensor]:
    """Return rows and their lengths, for `LastValid`."""
    torch.manual_seed(seed)
    return {"x": torch.randn(batch, time, 4), "length": torch.randint(1, time + 1, (batch,))}


class Causal(nn.Module):
    """Scaled dot-product attention with a mask that depends on the length."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Any:
        query, key, value = self.project(x).chunk(3, -1)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Sample(nn.Module):
    """Samples an image with grid_sample at points that a layer computes."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Any:
        theta = self.where(functional.adaptive_avg_pool2d(x, (4, 4)).mean(1).flatten(1)).reshape(-1, 2, 3)
        grid = functional.affine_grid(theta, [x.shape[0], x.shape[1], 8, 8], align_corners=False)
        return functional.grid_sample(x, grid, align_corners=False)


def norms() -> nn.Module:
    """Return group, instance and batch norms in a row; in evaluation mode none of them mixes rows."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_mean = torch.randn(8)
    norm.running_var = torch.rand(8) + 0.5
    layers = [nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), norm, nn.PixelShuffle(2)]
    return nn.Sequential(*layers).eval()


def parametrized() -> nn.Module:
    """Return layers with weight norm and spectral norm, as parametrizations."""
    first, second = nn.Linear(4, 8), nn.Linear(8, 3)
    return nn.Sequential(parametrizations.weight_norm(first), nn.ReLU(), parametrizations.spectral_norm(second)).eval()


class Experts(nn.Module):
    """A soft mixture of experts, whose weights are stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.Parameter(torch.randn(3, 4, 5) / 2)

    def forward(self, x: Tensor) -> Any:
        weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        each = torch.einsum("bi,kio->bko", x, self.experts)
        return (each.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 5)) * weight.unsqueeze(-1)).sum(1)


class Scatter(nn.Module):
    """A histogram of each row by scatter_add, and its running sum."""

    def forward(self, codes: Tensor) -> Any:
        counts = torch.zeros(codes.shape[0], 10).scatter_add(1, codes, torch.ones_like(codes, dtype=torch.float32))
        return counts.cumsum(1) / codes.shape[1]


class Roll(nn.Module):
    """Shifts, flips, pads and unfolds within each row."""

    def forward(self, x: Tensor) -> Any:
        rolled = torch.roll(x, 1, dims=1) + x.flip(1)
        return functional.pad(rolled, (1, 1, 2, 0), mode="constant", value=0.5).unfold(2, 3, 1).mean(-1)


class BranchOnLength(nn.Module):
    """Branches at a length that is above the declared dims."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        if x.shape[1] > 1000:
            return self.linear(x[:, :1000])
        return self.linear(x)


class _Clip(torch.autograd.Function):
    """A straight-through clip, whose forward consists of standard operators."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        del ctx
        return x.clamp(-0.5, 0.5) * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        del ctx
        return gradients[0]


class StraightThrough(nn.Module):
    """Uses a custom autograd.Function."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        clip: Any = _Clip.apply
        return clip(self.linear(x))


def channels_last() -> nn.Module:
    """Return a CNN whose weights are laid out channels last."""
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1))
    model: nn.Module = layers.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload] # it exists
    return model


def forgotten_eval() -> nn.Module:
    """Return a module with dropout and batch norm in training mode."""
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)).train()


def wide() -> nn.Module:
    """Return a layer whose weights are stored as external data."""
    return nn.Linear(256, 256)


class Windows(nn.Module):
    """Processes windows of four steps, so it accepts only multiples of four."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x.reshape(x.shape[0], -1, 4, 4).mean(2))
