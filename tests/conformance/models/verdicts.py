"""Models whose verdicts were once wrong: magnitudes, branches on data, packing, quantization, fused operators."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

import datetime as dt
import math
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Scaled(nn.Module):
    """A layer whose outputs have a given magnitude."""

    def __init__(self, magnitude: float) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.magnitude = magnitude

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) * self.magnitude


class FrozenBranch(Scaled):
    """A branch on the length, which an export freezes."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * (1 if x.shape[1] > 10 else -1)


class MixedRows(Scaled):
    """Subtracts the mean of the batch."""

    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        return y - y.mean(0)


class Rounded(nn.Module):
    """A deep network whose outputs are about 1000, with some near zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.ReLU())]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
        self.layers = nn.Sequential(*layers, nn.Linear(64, 100))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x) * 1000


class Masked(nn.Module):
    """Returns logits, some of which are -inf."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x).masked_fill(torch.arange(6) % 3 == 0, -torch.inf)


class SignOfTheSum(nn.Module):
    """Chooses one branch for the whole batch, which is the same for all positive examples."""

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


def positive(batch: int, seed: int = 0) -> Tensor:
    """Return examples that are all positive."""
    return torch.rand(batch, 4, generator=torch.Generator().manual_seed(seed)) + 0.1


class Normed(nn.Module):
    """ONNX Runtime 1.19.2 fuses the graph of dynamo incorrectly and cannot load it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        return self.norm(y.flatten(0, 1)).reshape_as(y)


class PackedGru(nn.Module):
    """A GRU over packed rows, padded to the longest row of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]


class PackedLastState(nn.Module):
    """Returns the last state of each row; the rows have different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(packed)[1][0][-1]


def padded(batch: int, time: int, seed: int = 0) -> dict[str, Tensor]:
    """Return rows and their lengths, for `PackedGru`."""
    torch.manual_seed(seed)
    lengths = torch.randint(1, time + 1, (batch,))
    lengths[0] = time
    return {"x": torch.randn(batch, time, 4), "lengths": lengths}


def statically_quantized() -> nn.Module:
    """Return a module that FX quantized with fixed scales."""
    from torch.ao.quantization import get_default_qconfig_mapping  # noqa: PLC0415 - deprecated, and only needed here
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # noqa: PLC0415 - the same

    torch.manual_seed(0)
    quantize: Any = prepare_fx
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    prepared = quantize(model, get_default_qconfig_mapping("fbgemm"), (torch.randn(8, 4),))
    for _ in range(8):
        prepared(torch.randn(32, 4))
    convert: Any = convert_fx
    converted: nn.Module = convert(prepared)
    return converted


class AnyKeywords(nn.Module):
    """Accepts a batch as keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, **batch: Tensor) -> Any:
        return self.linear(batch["x"]) * batch["scale"]


class Autocast(nn.Module):
    """Computes in bfloat16 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x).float()


class CastsToBfloat16(nn.Module):
    """Has weights in bfloat16, and casts its input to bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).bfloat16()

    def forward(self, x: Tensor) -> Any:
        return self.body(x.bfloat16()).float()


class InverseFft(nn.Module):
    """Filters in the frequency domain."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.randn(9))

    def forward(self, x: Tensor) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.factors, n=16, dim=1)


class InverseStft(nn.Module):
    """Removes quiet frequencies from a waveform."""

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Buffer(torch.hann_window(32))

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.stft(x, 32, 8, window=self.window, return_complex=True)
        return torch.istft(spectrum * 0.5, 32, 8, window=self.window, length=256)


class Bytes(nn.Module):
    """Compares, adds and selects bytes and booleans."""

    def forward(self, x: Tensor) -> Any:
        bright = x > 128
        return torch.where(bright, x, x + 100), torch.where(bright, ~bright, bright), x.amin(1)


def images(batch: int) -> Tensor:
    """Return random bytes."""
    return torch.randint(0, 256, (batch, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(batch))


class ArgmaxOfIds(nn.Module):
    """Returns the vector at the position of the largest token."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, ids: Tensor) -> Any:
        return self.table(ids)[torch.arange(ids.shape[0]), ids.argmax(-1)]


def token_ids(batch: int) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, 50, (batch, 7), generator=torch.Generator().manual_seed(batch))


class NarrowFakeQuantize(nn.Module):
    """Rounds to the symmetric range of 8 bits, which QuantizeLinear does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = nn.Buffer(torch.full((3,), 0.01))
        self.zero = nn.Buffer(torch.zeros(3, dtype=torch.int32))

    def forward(self, x: Tensor) -> Any:
        weight = torch.fake_quantize_per_channel_affine(self.linear.weight, self.scale, self.zero, 0, -127, 127)
        return nn.functional.linear(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -127, 127), weight)


def quantization_aware() -> nn.Module:
    """Return a module after quantization-aware training, before its conversion."""
    from torch.ao.quantization import (  # noqa: PLC0415 - deprecated, and only needed here
        disable_observer,
        get_default_qat_qconfig_mapping,
    )
    from torch.ao.quantization.quantize_fx import prepare_qat_fx  # noqa: PLC0415 - the same

    torch.manual_seed(0)
    prepare: Any = prepare_qat_fx
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).train()
    prepared: nn.Module = prepare(model, get_default_qat_qconfig_mapping("fbgemm"), (torch.randn(8, 4),))
    for _ in range(8):
        prepared(torch.randn(32, 4))
    return prepared.eval().apply(disable_observer)


class GruWithState(nn.Module):
    """Accepts and returns the state of a GRU with two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor, state: Tensor) -> Any:
        outputs, last = self.gru(x, state.transpose(0, 1).contiguous())
        return self.head(outputs), last.transpose(0, 1)


class ComplexInverse(nn.Module):
    """Inverts complex matrices, for which ONNX has no operator."""

    def forward(self, x: Tensor) -> Any:
        return torch.linalg.inv(torch.complex(x, 2 * x).reshape(-1, 2, 2)).abs()


def compiled_part() -> nn.Module:
    """Return a module whose layer is compiled, after ``module.compile()``."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    part: Any = torch.compile(model[0])
    model[0] = part
    model.compile()
    return model


class SharedName(nn.Module):
    """Accepts multiples of 8, and returns an output with the name of its input."""

    def forward(self, x: Tensor) -> Any:
        return {"x": x.reshape(x.shape[0], -1, 8).sum(2)}


def bfloat16_examples(batch: int) -> Tensor:
    """Return examples in bfloat16."""
    return torch.randn(batch, 4, generator=torch.Generator().manual_seed(batch)).to(torch.bfloat16)


class Repeated(nn.Module):
    """Sets each row that equals an earlier row to zero."""

    def forward(self, x: Tensor) -> Any:
        equal = (x[:, None] == x[None]).all(-1).to(torch.int64)
        return x * (torch.tril(equal, diagonal=-1).sum(1, keepdim=True) == 0).to(x.dtype)


class Quota(nn.Module):
    """Sets the third and later rows whose first value is large to zero."""

    def forward(self, x: Tensor) -> Any:
        large = (x[:, :1] > 3.2).to(x.dtype)
        return x * (1 - large * (large.cumsum(0) > 2).to(x.dtype))


class Peak(nn.Module):
    """Divides by the largest value of all requests so far, at least 10."""

    peak: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.tensor(10.0))

    def forward(self, x: Tensor) -> Any:
        self.peak = torch.maximum(self.peak, x.abs().max())
        return x / self.peak


class ColumnsOfScales(nn.Module):
    """Mixes rows only in a column that is ten million times smaller than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        return torch.cat([1e3 * y[:, :2], 1e-4 * (y[:, 2:] - y[:, 2:].mean())], 1)


class LoudestRow(nn.Module):
    """Limits values from below to eight decades under the batch's largest value, as log-mel features do."""

    def forward(self, x: Tensor) -> Any:
        log = x.square().clamp(min=1e-10).log10()
        return log.maximum(log.max() - 8)


class LargeSums(nn.Module):
    """Uses another branch if the sum over the batch is large."""

    def forward(self, x: Tensor) -> Any:
        return torch.where(x.sum() < 200, x * 2, x.abs())


class Lazy(nn.Module):
    """Has lazy layers, whose input sizes are unknown before the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.LazyLinear(2))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x)


class StableSort(nn.Module):
    """Sorts values with ties."""

    def forward(self, x: Tensor) -> Any:
        return *torch.sort(x.float(), dim=1, descending=True, stable=True), torch.argsort(x, dim=1, stable=True)


class Hashed(nn.Module):
    """Maps large identifiers to buckets."""

    def forward(self, ids: Tensor) -> Any:
        return (ids * 31 + 7) % 1009


class Saturated(nn.Module):
    """Always ranks the same classes first, except where large inputs make all scores equal."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 12)
        self.register_buffer("bias", torch.arange(12) * 0.8)

    def forward(self, x: Tensor) -> Any:
        scores = torch.sigmoid(self.linear(x) * 0.2 + self.bias)
        return scores, *scores.topk(5)


class Nearest(nn.Module):
    """Returns the most frequent label of the three nearest stored vectors."""

    stored: Tensor
    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stored", torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
        self.register_buffer("labels", torch.arange(20) % 4)

    def forward(self, x: Tensor) -> Any:
        distances, indices = torch.cdist(x, self.stored).topk(3, largest=False)
        return nn.functional.one_hot(self.labels[indices], 4).sum(1).argmax(1), distances


class Smoothed(nn.Module):
    """Returns the loss of each row, with label smoothing and a class that is ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor, target: Tensor) -> Any:
        return nn.functional.cross_entropy(
            self.linear(x), target, reduction="none", ignore_index=0, label_smoothing=0.1
        )


class PaddedBags(nn.Module):
    """Adds weighted rows of a table, of which one is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 5, mode="sum", padding_idx=0)

    def forward(self, ids: Tensor, weights: Tensor) -> Any:
        return self.bag(ids, per_sample_weights=weights)


class Spectrum(nn.Module):
    """Computes the power spectrum of a length that is not a power of two."""

    def forward(self, x: Tensor) -> Any:
        return torch.fft.rfft(x).abs().square()


class Levelled(nn.Module):
    """Divides each row by its level plus 1e-8, as audio models do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Any:
        centered = x - x.mean(1, keepdim=True)
        return self.linear(centered / (centered.square().mean(1, keepdim=True) + 1e-8).sqrt())


def quiet(batch: int) -> Any:
    """Return a signal of 1e-5."""
    return {"x": torch.randn(batch, 16) * 1e-5}


class Buckets(nn.Module):
    """Divides identifiers that float32 cannot represent."""

    def forward(self, ids: Tensor) -> Any:
        return torch.div(ids, -7, rounding_mode="floor"), torch.div(ids, 7, rounding_mode="trunc")


class Bins(nn.Module):
    """Divides values into bins of 0.1."""

    def forward(self, x: Tensor) -> Any:
        return x // 0.1, x % 0.1


def grid(batch: int) -> Any:
    """Return multiples of 0.1."""
    return {"x": torch.randint(-30, 30, (batch, 12)) * 0.1}


class SoftmaxOfRows(nn.Module):
    """Softmax over the elements of each row; all rows are in one vector."""

    def forward(self, values: Tensor, counts: Tensor) -> Tensor:
        ends = counts.to(torch.int64).cumsum(0)
        row = (torch.arange(values.shape[0])[:, None] >= ends[None, :]).to(torch.int64).sum(1)
        member = (row[:, None] == torch.arange(counts.shape[0])[None, :]).to(values.dtype)
        exponents = values.exp()
        return exponents / (member @ (member * exponents[:, None]).sum(0)).clamp(min=1e-6)


def exact_grid(batch: int) -> Any:
    """Return multiples of 0.1 in float64."""
    return {"x": torch.randint(-30, 30, (batch, 12)).double() * 0.1}


class SpectralLayer(nn.Module):
    """Multiplies the lowest modes of a signal with complex weights."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, dtype=torch.cfloat) / channels)

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.fft.rfft(x)
        out = torch.zeros(*x.shape[:2], x.shape[-1] // 2 + 1, dtype=torch.cfloat)
        low = spectrum[:, :, : self.modes]
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", low, self.weight)
        return torch.fft.irfft(out, n=x.shape[-1])


class FourierOperator(nn.Module):
    """A Fourier neural operator in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(2, 6)
        self.spectral = nn.ModuleList(SpectralLayer(6, 5) for _ in range(3))
        self.local = nn.ModuleList(nn.Conv1d(6, 6, 1) for _ in range(3))
        self.project = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Any:
        x = self.lift(x).permute(0, 2, 1)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            x = nn.functional.gelu(spectral(x) + local(x))
        return self.project(x.permute(0, 2, 1))


class Rotary(nn.Module):
    """Rotates pairs of values by angles that depend on the position."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(64).float(), 100 ** -(torch.arange(4) / 4))
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles))
        self.rotation: Tensor

    def forward(self, x: Tensor) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.rotation[: x.shape[1]]).flatten(2)


class LargestId(nn.Module):
    """Returns the largest and the smallest identifier of each row."""

    def forward(self, ids: Tensor) -> Any:
        return ids.amax(1), ids.min(1).values


class Pooled(nn.Module):
    """Pools images of any size to nine values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, image: Tensor) -> Any:
        return nn.functional.adaptive_avg_pool2d(self.conv(image), 3).flatten(1)


class Projected(nn.Module):
    """Has an LSTM with projections."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 6, batch_first=True, proj_size=3)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[0]


class Forces(nn.Module):
    """Returns the gradient of an energy."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Any:
        with torch.enable_grad():
            position = x.detach().clone().requires_grad_()
            distance = (position - torch.linspace(0, 4, 4)).square()
            return -torch.autograd.grad(self.energy(distance).sum(), position)[0]


class Heading(nn.Module):
    """The directions of the steps of tracks on a grid, some of which are exactly along the negative axis."""

    def forward(self, track: Tensor) -> Any:
        step = (track[:, 1:] - track[:, :-1]).float()
        return torch.atan2(step[..., 1], step[..., 0])


class PositionCache(nn.Module):
    """Writes one position of a cache, and reads the positions before it."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(64, 4))

    def forward(self, x: Tensor, position: Tensor) -> Any:
        self.keys.index_copy_(0, position, x[:1])
        is_before = (torch.arange(64) <= position)[:, None]
        return x + torch.where(is_before, self.keys, 0).sum(0)


class RowMeans(nn.Module):
    """The mean of each row of a ragged batch, and its values without the mean."""

    def forward(self, values: Tensor, counts: Tensor) -> Any:
        row = (torch.arange(len(values))[:, None] >= counts.cumsum(0)).sum(1)
        mean = torch.zeros(len(counts)).index_add(0, row, values) / counts
        return mean[:, None], values - mean[row]


class SharedScale(nn.Module):
    """Rounds a batch to 8 bits with one scale, as dynamic quantization does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        scale = 127 / x.abs().max().clamp(min=1e-5)
        return self.linear((x * scale).round() / scale)


class CountedPoints(nn.Module):
    """Adds positions to pooled features; their number is ``len`` of a tensor."""

    def forward(self, x: Tensor) -> Any:
        pooled = nn.functional.avg_pool1d(x.transpose(1, 2), 3, 2, 1)
        positions = torch.arange(pooled.shape[2]).float() * 2 + 1
        return pooled + positions[None].expand(4, len(positions))


class LogDensity(nn.Module):
    """The log-density of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.base: Any = torch.distributions.Normal(torch.zeros(4), torch.ones(4))

    def forward(self, x: Tensor) -> Any:
        return self.base.log_prob(self.linear(x)).sum(-1)


class Squeezed(nn.Module):
    """A score per row; a scalar for one row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x).squeeze()


class HourOfDay(nn.Module):
    """Adds a feature of the current hour."""

    def __init__(self) -> None:
        super().__init__()
        self.hours = nn.Embedding(24, 4)

    def forward(self, x: Tensor) -> Any:
        return x + self.hours(torch.tensor(dt.datetime.now(dt.UTC).hour))


class FaintCounter(Scaled):
    """Outputs of 1e-7, divided by the number of calls."""

    def __init__(self) -> None:
        super().__init__(1e-7)
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return super().forward(x) / self.calls


class NearestPixels(nn.Module):
    """Resizes images without interpolation."""

    def forward(self, image: Tensor) -> Any:
        return nn.functional.interpolate(image, size=(48, 10), mode="nearest")


class OpticalDepth(nn.Module):
    """Converts shares of absorbed light to depths, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(4) + 0.5)

    def forward(self, absorbed: Tensor) -> Any:
        depth = -torch.log1p(-absorbed) * self.gain
        return depth, -torch.expm1(-depth)


def transmitted(batch: int, seed: int) -> dict[str, Tensor]:
    """Return shares from 1e-9 to 1e-7."""
    return {"absorbed": 10 ** (torch.rand(batch, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 9)}


class LogOdds(Scaled):
    """Logarithms of probabilities whose logits are about 100."""

    def __init__(self) -> None:
        super().__init__(100.0)

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return nn.functional.logsigmoid(logits), torch.logaddexp(logits, logits.flip(1))


class RollingHash(nn.Module):
    """A polynomial hash of IDs, which wraps."""

    def forward(self, ids: Tensor) -> Any:
        return (ids * 31 ** torch.arange(ids.shape[1])).sum(1) % 1009


class Pressure(nn.Module):
    """Normalizes raw sensor values, for which PyTorch itself has an error of 1e-4."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(self.norm(x))


def pascals(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return pressures."""
    return {"x": 101325 + 50 * torch.randn(batch, 16, generator=torch.Generator().manual_seed(seed))}


class OrderedClasses(nn.Module):
    """Logarithms of cumulative probabilities, with certain logits."""

    def forward(self, x: Tensor) -> Any:
        return torch.logcumsumexp(40 * x, dim=1)


class Strain(nn.Module):
    """The amplitude of a wave in SI units."""

    def forward(self, plus: Tensor, cross: Tensor) -> Any:
        return torch.hypot(plus, cross)


def waves(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return waves of 1e-22."""
    draw = torch.Generator().manual_seed(seed)
    return {name: 1e-22 * torch.randn(batch, 6, generator=draw) for name in ("plus", "cross")}


class RobustWindow(nn.Module):
    """Medians, order statistics, and cumulative products and maxima of a window."""

    def forward(self, x: Tensor) -> Any:
        middle = x.median(dim=1, keepdim=True).values
        return x - middle, x.kthvalue(2, dim=1).values, x.sigmoid().cumprod(1), *x.cummax(1)


class NewUsers(nn.Module):
    """Attention to a history, in which 0 is padding; a new user has no history."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.value = nn.Embedding(20, 8), nn.Linear(8, 8)

    def forward(self, candidate: Tensor, history: Tensor) -> Any:
        query, items = self.table(candidate)[:, None, None], self.table(history)[:, None]
        mask = (history != 0)[:, None, None]
        return nn.functional.scaled_dot_product_attention(query, items, self.value(items), attn_mask=mask)[:, 0, 0]


class Proportions(nn.Module):
    """Resizes the shorter side to 16, with the proportions of the image and coordinates, and pools."""

    def forward(self, image: Tensor) -> Any:
        height, width = image.shape[-2:]
        shorter = min(height, width)
        size = (int(height * 16 / shorter), int(width * 16 / shorter))
        resized = nn.functional.interpolate(image, size=size, mode="bilinear", align_corners=False)
        return (resized * torch.linspace(-1, 1, size[1])).mean((2, 3)), image * torch.linspace(0, 1, width)


class ScaledSums(nn.Module):
    """Means and scaled sums over time, divided by numbers that Python computes."""

    def forward(self, x: Tensor) -> Any:
        return x.sum(1) / float(x.shape[1]), x.sum(1) / math.sqrt(x.shape[1])


class BestPoints(nn.Module):
    """The scores of the best points, at most 50."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Any:
        scores = self.score(x).squeeze(-1)
        return scores.topk(min(50, scores.shape[1]))


class ListOfRows(nn.Module):
    """Returns a list with an output for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return [self.linear(x[i]) for i in range(x.shape[0])]


class Tenths(nn.Module):
    """Weights of 0, 0.1, 0.2, … times the number of steps."""

    def forward(self, x: Tensor) -> Any:
        return x.mean(1, keepdim=True) * torch.arange(0, x.shape[1] * 0.1, 0.1)


class MissingValues(nn.Module):
    """Replaces missing values, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(torch.nan_to_num(x)), x.isnan().sum(1), torch.nanmean(x, 1)


class WrittenView(nn.Module):
    """Writes scores into an input through one view, and returns another view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        flat = x.view(x.shape[0], 4)
        x.clamp_(min=-0.5)
        flat[:, 1] = self.linear(flat)[:, 0]
        return flat, x[:, :3]


class DroppedRows(nn.Module):
    """Drops the rows in which a value is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x[~x.isnan().any(1)])


class FilledGaps(nn.Module):
    """Replaces missing values by the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(torch.where(x.isnan(), torch.nanmean(x, 0), x))


class LargestOfMissing(nn.Module):
    """The place of the largest value, which is that of NaN in PyTorch."""

    def forward(self, x: Tensor) -> Any:
        return x.argmax(1)


def with_missing(batch: int, seed: int) -> dict[str, Tensor]:
    """Return rows of which one value is NaN."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, 4, generator=draw)
    return {"x": x.scatter(1, torch.randint(0, 4, (batch, 1), generator=draw), torch.nan)}


class LeftTail(Scaled):
    """Logarithms of probabilities of a normal distribution, at about 30 standard deviations."""

    def __init__(self) -> None:
        super().__init__(30.0)

    def forward(self, x: Tensor) -> Any:
        return torch.special.log_ndtr(super().forward(x))


class CertainLogits(nn.Module):
    """The losses of logits of about 100."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scaled(100.0)

    def forward(self, x: Tensor, target: Tensor) -> Any:
        return nn.functional.binary_cross_entropy_with_logits(self.scores(x), target, reduction="none")


class Barrier(nn.Module):
    """A cost of at least 0, infinite for some inputs."""

    def forward(self, x: Tensor) -> Any:
        return x.masked_fill(x > 1, torch.inf).clamp(min=0)


class KeptGrid(nn.Module):
    """The boxes of a detector, whose head keeps the centers of the cells of the last image size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.shape: torch.Size | None = None
        self.centers: Tensor | None = None

    def forward(self, image: Tensor) -> Any:
        raw = self.conv(image)
        if self.shape != raw.shape:
            rows, columns = (torch.arange(size) + 0.5 for size in raw.shape[2:])
            self.centers = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).flatten(1)
            self.shape = raw.shape
        raw = raw.flatten(2)
        return torch.cat((self.centers - raw[:, :2].exp(), self.centers + raw[:, 2:].exp()), 1)


class KeptMask(nn.Module):
    """Causal attention, whose mask is kept in a buffer until a row of another length arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask: Tensor
        self.register_buffer("mask", torch.empty(0, 0), persistent=False)

    def forward(self, x: Tensor) -> Any:
        steps = x.shape[1]
        if self.mask.shape[0] != steps:
            self.mask = torch.full((steps, steps), -torch.inf).triu(1)
        return (x @ x.transpose(1, 2) + self.mask).softmax(-1) @ self.linear(x)


class Letterbox(nn.Module):
    """Resizes images to at most 16 x 16 pixels and pads them, as YOLO does."""

    def forward(self, image: Tensor) -> Any:
        height, width = image.shape[2:]
        ratio = min(16 / height, 16 / width)
        rows, columns = round(height * ratio), round(width * ratio)
        resized = nn.functional.interpolate(image, size=(rows, columns), mode="bilinear")
        top, left = (16 - rows) // 2, (16 - columns) // 2
        return nn.functional.pad(resized, (left, 16 - columns - left, top, 16 - rows - top), value=0.5)


class LevelSizes(nn.Module):
    """Adds the share of each pixel in its level of a feature pyramid, whose sizes are in a tensor."""

    def forward(self, image: Tensor) -> Any:
        levels = [image, nn.functional.avg_pool2d(image, 2, ceil_mode=True)]
        shapes = torch.as_tensor([level.shape[2:] for level in levels], dtype=torch.long)
        starts = torch.cat((shapes.new_zeros(1), shapes.prod(1).cumsum(0)[:-1]))
        rows = torch.cat([level.flatten(1) for level in levels], 1)
        return rows / shapes.prod(1).sum() + starts.sum()


class FewPixels(nn.Module):
    """Resizes images of few pixels without interpolation, by quotients of sizes."""

    def forward(self, image: Tensor) -> Any:
        return nn.functional.interpolate(image, scale_factor=(5 / 3, 2.1), mode="nearest")


class SameCard(nn.Module):
    """Counts in how many other shops a card is used in the same batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 2)

    def forward(self, card: Tensor, shop: Tensor, x: Tensor) -> Any:
        count = ((card[:, None] == card) & (shop[:, None] != shop)).sum(1, keepdim=True)
        return self.linear(torch.cat([x, count.float()], dim=1))


class FirstScale(nn.Module):
    """Divides by a number that a mutable default argument keeps from the first call."""

    def forward(self, x: Tensor) -> Any:
        return x / self.scale(x)

    def scale(self, x: Tensor, cache: dict[str, Tensor] = {}) -> Tensor:  # noqa: B006 - the fault
        return cache.setdefault("scale", x.std())


class StreamState(NamedTuple):
    """What a client sends with each frame."""

    buffer: Tensor
    level: Tensor


class Stream(nn.Module):
    """Adds a frame to a buffer, and follows its level."""

    def forward(self, frame: Tensor, state: StreamState) -> Any:
        level = 0.9 * state.level + 0.1 * frame.square().mean(1, keepdim=True)
        buffer = torch.cat([state.buffer[:, 4:], frame], dim=1)
        return buffer.sum(1) / (1 + level.square()).squeeze(1), StreamState(buffer, level)


def frames(batch: int) -> dict[str, Any]:
    """Return frames and states."""
    draw = torch.Generator().manual_seed(batch)
    state = StreamState(torch.randn(batch, 12, generator=draw), torch.rand(batch, 1, generator=draw))
    return {"frame": torch.randn(batch, 4, generator=draw), "state": state}


class NoiseGate(nn.Module):
    """Removes quiet frequencies from waveforms of any length, with frames whose length is not a power of two."""

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Buffer(torch.hann_window(40))

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.stft(x, 40, 10, window=self.window, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        mask = (power - power.mean(2, keepdim=True)).relu() / (power + 1e-3)
        return torch.istft(spectrum * mask, 40, 10, window=self.window, length=x.shape[1])


class Recursion(nn.Module):
    """Linear prediction of the frames of a signal, in place; at the smallest size, there is one frame."""

    def forward(self, x: Tensor) -> Any:
        x = torch.cat([x[:, :1], x[:, 1:] - 0.9 * x[:, :-1]], dim=1)
        frames = x.unfold(1, 24, 12)
        lags = torch.stack([(frames[..., : 24 - k] * frames[..., k:]).sum(-1) for k in range(5)], dim=-1)
        error = lags[..., 0] * 1.1 + 1e-6
        out = torch.zeros(*lags.shape[:-1], 4)
        for i in range(4):
            k = lags[..., i + 1].clone()
            if i:
                k -= (out[..., :i] * lags[..., 1 : i + 1].flip(-1)).sum(-1)
            k = k / error
            before = out[..., :i].clone()
            out[..., :i] = before - k.unsqueeze(-1) * before.flip(-1)
            out[..., i] = k
            error = error * (1 - k * k)
        return out


class GrowingTable(nn.Module):
    """Positions from a table that grows with the longest input."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        if self.table is None or len(self.table) < x.shape[1]:
            self.table = torch.arange(max(20, x.shape[1]))[:, None] / torch.arange(1, 5)
        return self.linear(x + self.table[: x.shape[1]].sin())


class Limited(nn.Module):
    """Scales a batch that contains a positive value; torch.cond keeps both branches."""

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x.amax() > 0, lambda x: x / (1 + x.amax() - x.amin()), torch.neg, (x,))


class StridedGru(nn.Module):
    """A GRU over half as many steps as the input has, and an RNN over its results."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(4, 5, 3, stride=2, padding=1)
        self.gru = nn.GRU(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.rnn = nn.RNN(12, 3, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        steps = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.rnn(self.gru(steps)[0])[1][-1]


class Spectrogram(nn.Module):
    """A GRU over the frames of a waveform."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.window = nn.GRU(17, 6, batch_first=True), nn.Buffer(torch.hann_window(32))

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.stft(x, 32, 8, window=self.window, return_complex=True)
        return self.gru(spectrum.abs().transpose(1, 2))[1][-1]


class PackedWeights(nn.Module):
    """A layer with two weights of 4 bits in each byte."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.packed = nn.Buffer(torch.randint(0, 256, (6, 2), dtype=torch.uint8, generator=draw))

    def forward(self, x: Tensor) -> Any:
        low, high = self.packed & 15, self.packed >> 4
        weight = torch.stack([low, high], dim=2).flatten(1)
        return nn.functional.linear(x, (weight.float() - 8) / 8)


class Sun(nn.Module):
    """The elevation and azimuth of the sun, in float64, for seconds since 1970 and places in degrees."""

    def forward(self, seconds: Tensor, place: Tensor) -> Any:
        days = seconds / 86400 - 10957.5
        mean = (280.46 + 0.9856474 * days).deg2rad()
        anomaly = (357.528 + 0.9856003 * days).deg2rad()
        longitude = mean + (1.915 * anomaly.sin() + 0.02 * (2 * anomaly).sin()).deg2rad()
        declination = (0.39777 * longitude.sin()).asin()
        ascension = (0.91748 * longitude.sin() / longitude.cos()).atan()
        hour = (18.697375 + 24.0657098 * days) * (torch.pi / 12) + place[:, 1].deg2rad() - ascension
        latitude = place[:, 0].deg2rad()
        height = latitude.sin() * declination.sin() + latitude.cos() * declination.cos() * hour.cos()
        return height.acos().rad2deg(), (declination.tan() * latitude.cosh()).sinh(), place.norm(dim=1)


def moments(batch: int) -> dict[str, Any]:
    """Return seconds and places in float64."""
    draw = torch.Generator().manual_seed(batch)
    seconds = 1.6e9 + 1e8 * torch.rand(batch, generator=draw, dtype=torch.float64)
    return {"seconds": seconds, "place": 60 * torch.randn(batch, 2, generator=draw, dtype=torch.float64).tanh()}


class Offset(nn.Module):
    """Features that a layer shifts far from zero, and that are normalized afterward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 256), nn.LayerNorm(256)
        nn.init.constant_(self.layer.bias, 30.0)

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.layer(x))


class _Budget:
    """Counts the calls of a model."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class CallBudget(nn.Module):
    """Returns something else from the 100th call on; the calls are counted in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets = {"requests": [_Budget()]}
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        budget = self.budgets["requests"][0]
        budget.calls += 1
        return self.linear(x) if budget.calls < 100 else torch.zeros(len(x), 3)


_REQUESTS = iter(range(1 << 62))


class CountedRequests(nn.Module):
    """Counts and logs calls without an effect on the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.budget, self.dtypes = _Budget(), set[torch.dtype]()
        self.log: deque[int] = deque(maxlen=3)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        self.budget.calls += next(_REQUESTS)
        self.dtypes.add(x.dtype)
        self.log.append(self.budget.calls)
        return self.linear(x)


class TimeOrdered(nn.Module):
    """Smooths rows over the batch if they are in the order of their first value."""

    def forward(self, x: Tensor) -> Any:
        ordered = (x[1:, 0] > x[:-1, 0]).all() & torch.tensor(x.shape[0] > 2)
        before = torch.cat([x[:1], x[:-1]])
        return torch.where(ordered, (x + before) / 2, x)


class LogLength(nn.Module):
    """Scores that are scaled by the logarithm of the length, as for attention over long inputs."""

    def forward(self, x: Tensor) -> Any:
        weights = torch.kaiser_window(x.shape[1], periodic=True, beta=8.0) + torch.bartlett_window(x.shape[1])
        return x.mean(2) * weights * (math.log(x.shape[1]) / math.log2(512) + math.exp(-x.shape[1] / 16))
