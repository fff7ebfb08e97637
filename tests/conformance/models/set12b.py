"""Models of audio, detection, quantization, attention and point clouds, as their owners write them."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


def _mel_filters(bins: int, bands: int, rate: int) -> Tensor:
    """Return triangular filters, with bands that are equally wide in mel."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = torch.linspace(0, rate / 2, bins)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class PcmVad(nn.Module):
    """Detects speech in 16-bit samples: a spectrogram by convolution, mel bands, a GRU, and a hangover."""

    kernels: Tensor
    filters: Tensor

    def __init__(self, window: int = 160, hop: int = 80, bands: int = 16, rate: int = 8000) -> None:
        super().__init__()
        bins = window // 2 + 1
        phase = torch.arange(bins)[:, None] * torch.arange(window) * (2 * math.pi / window)
        kernels = torch.cat([phase.cos(), -phase.sin()]) * torch.hann_window(window)
        self.register_buffer("kernels", kernels[:, None])
        self.register_buffer("filters", _mel_filters(bins, bands, rate))
        self.hop = hop
        self.gru = nn.GRU(bands, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, pcm: Tensor) -> Any:
        samples = pcm.float() / 32768
        samples = samples - samples.mean(1, keepdim=True)
        emphasized = torch.cat([samples[:, :1], samples[:, 1:] - 0.97 * samples[:, :-1]], dim=1)
        spectrum = F.conv1d(emphasized[:, None], self.kernels, stride=self.hop)
        real, imaginary = spectrum.chunk(2, dim=1)
        bands = self.filters @ (real.square() + imaginary.square())
        features = (bands + 1e-6).log().transpose(1, 2)
        hidden, _ = self.gru(features - features.mean(1, keepdim=True))
        logits = self.head(hidden).squeeze(2)
        held = F.max_pool1d(logits[:, None], 5, stride=1, padding=2).squeeze(1)
        level = 10 * torch.log10(samples.square().mean(1, keepdim=True) + 1e-10)
        return {"speech": logits, "held": held, "level": level}


class CausalStream(nn.Module):
    """Enhances a chunk of any length; the last frames of each layer are inputs and outputs."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.dilations = (1, 2, 4)
        self.layers = nn.ModuleList(nn.Conv1d(channels, channels, 3, dilation=d) for d in self.dilations)
        self.gates = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in self.dilations)
        self.mask = nn.Conv1d(channels, channels, 1)

    def forward(self, chunk: Tensor, caches: list[Tensor]) -> Any:
        hidden, next_caches = chunk, []
        for layer, gate, cache, dilation in zip(self.layers, self.gates, caches, self.dilations, strict=True):
            extended = torch.cat([cache, hidden], dim=2)
            next_caches.append(extended[:, :, -2 * dilation :])
            hidden = hidden + torch.tanh(layer(extended)) * torch.sigmoid(gate(hidden))
        return {"enhanced": chunk * torch.sigmoid(self.mask(hidden)), "next_caches": next_caches}


def chunk_and_caches(batch: int, frames: int, seed: int = 0) -> dict[str, Any]:
    """Return a chunk and the caches of three layers."""
    noise = torch.Generator().manual_seed(seed)
    caches = [torch.randn(batch, 6, 2 * dilation, generator=noise) for dilation in (1, 2, 4)]
    return {"chunk": torch.randn(batch, 6, frames, generator=noise), "caches": caches}


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding=(kernel - 1) * d // 2))
            for d in (1, 3)
        )

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = x + layer(F.leaky_relu(x, 0.1))
        return x


class VitsDecoder(nn.Module):
    """Repeats each phoneme for its frames, by a path of ones, and upsamples the frames to a waveform."""

    def __init__(self, width: int = 16, frames: int = 24) -> None:
        super().__init__()
        self.frames = frames
        self.speakers = nn.Embedding(4, width)
        self.first = nn.Conv1d(width, width, 7, padding=3)
        self.upsamplings = nn.ModuleList(
            weight_norm(nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, 4, padding=2)) for i in range(2)
        )
        self.blocks = nn.ModuleList(_ResidualBlock(width >> (i + 1), k) for i in range(2) for k in (3, 5))
        self.last = nn.Conv1d(width >> 2, 1, 7, padding=3, bias=False)

    def forward(self, hidden: Tensor, durations: Tensor, speaker: Tensor) -> Any:
        ends = durations.cumsum(1)
        steps = torch.arange(self.frames, device=hidden.device)
        before_end = (steps < ends[:, :, None]).to(hidden.dtype)
        path = before_end - F.pad(before_end, (0, 0, 1, 0))[:, :-1]
        x = hidden.transpose(1, 2) @ path
        x = self.first(x + self.speakers(speaker)[:, :, None])
        for i, upsampling in enumerate(self.upsamplings):
            x = upsampling(F.leaky_relu(x, 0.1))
            x = (self.blocks[2 * i](x) + self.blocks[2 * i + 1](x)) / 2
        waveform = torch.tanh(self.last(F.leaky_relu(x))).squeeze(1)
        samples = ends[:, -1].clamp(max=self.frames) * 16
        audible = torch.arange(self.frames * 16, device=hidden.device) < samples[:, None]
        return {"waveform": waveform * audible, "samples": samples}


class AnchorBoxes(nn.Module):
    """A detector with two levels of anchors: decoded boxes, and the six best."""

    shapes: Tensor

    def __init__(self, classes: int = 5, keep: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.classes, self.keep, self.strides = classes, keep, (8, 16)
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU()
        )
        self.down = nn.ModuleList(nn.Conv2d(16, 16, 3, 2, 1) for _ in self.strides)
        self.scores = nn.Conv2d(16, 3 * classes, 3, padding=1)
        self.deltas = nn.Conv2d(16, 3 * 4, 3, padding=1)
        for layer in (self.stem[0], self.stem[3], *self.down, self.scores):
            nn.init.kaiming_normal_(layer.weight)
        ratios = torch.tensor([0.5, 1.0, 2.0])
        self.register_buffer("shapes", torch.stack([4 / ratios.sqrt(), 4 * ratios.sqrt()], dim=1))

    def anchors(self, features: Tensor, stride: int) -> Tensor:
        rows = (torch.arange(features.shape[2], device=features.device) + 0.5) * stride
        columns = (torch.arange(features.shape[3], device=features.device) + 0.5) * stride
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        centers = torch.stack([x, y], dim=-1)[:, :, None].expand(-1, -1, 3, -1)
        return torch.cat([centers, (self.shapes * stride).expand_as(centers)], dim=-1).reshape(-1, 4)

    def forward(self, image: Tensor) -> Any:
        height, width = image.shape[-2:]
        x = self.stem(image)
        levels = []
        for stride, down in zip(self.strides, self.down, strict=True):
            x = F.silu(down(x))
            anchors = self.anchors(x, stride)
            scores = self.scores(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes)
            deltas = self.deltas(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            centers = anchors[:, :2] + deltas[..., :2] * anchors[:, 2:]
            sizes = anchors[:, 2:] * deltas[..., 2:].clamp(max=4).exp()
            levels.append((torch.cat([centers - sizes / 2, centers + sizes / 2], dim=-1), scores))
        boxes, logits = (torch.cat(parts, dim=1) for parts in zip(*levels, strict=True))
        best, labels = logits.max(dim=2)
        top, places = best.topk(self.keep, dim=1)
        chosen = boxes.gather(1, places[..., None].expand(-1, -1, 4))
        x1, y1, x2, y2 = chosen.unbind(-1)
        clipped = torch.stack([x1.clamp(0, width), y1.clamp(0, height), x2.clamp(0, width), y2.clamp(0, height)], -1)
        return {"boxes": clipped, "logits": top, "labels": labels.gather(1, places)}


class CenterKeypoints(nn.Module):
    """Finds centers as local maxima of a heat map, and the keypoints relative to them, without NMS."""

    def __init__(self, classes: int = 2, points: int = 4, keep: int = 5) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.points, self.keep = points, keep
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())
        self.heat, self.shifts = nn.Conv2d(16, classes, 3, padding=1), nn.Conv2d(16, 2 * points, 1)
        self.visible = nn.Conv2d(16, points, 1)
        nn.init.normal_(self.heat.weight, std=0.3)

    def forward(self, image: Tensor) -> Any:
        features = self.body(image)
        heat, width = self.heat(features), features.shape[3]
        area = features.shape[2] * width
        peaks = torch.where(heat == F.max_pool2d(heat, 3, 1, 1), heat, torch.full_like(heat, -1e4))
        logits, places = peaks.flatten(1).topk(self.keep, dim=1)
        labels, cells = places // area, places % area
        centers = torch.stack([cells % width, cells // width], dim=-1).to(image.dtype)
        shifts = self.shifts(features).flatten(2).transpose(1, 2)
        shifts = shifts.gather(1, cells[..., None].expand(-1, -1, 2 * self.points))
        keypoints = (centers[:, :, None] + shifts.unflatten(2, (self.points, 2))) * 2
        visible = self.visible(features).flatten(2).transpose(1, 2)
        visible = visible.gather(1, cells[..., None].expand(-1, -1, self.points))
        return logits.sigmoid(), labels.to(torch.int32), keypoints, visible


class PrototypeMasks(nn.Module):
    """Combines prototypes to one mask for each box, four times as large, and crops it to the box."""

    def __init__(self, prototypes: int = 8) -> None:
        super().__init__()
        self.refine = nn.Conv2d(prototypes, prototypes, 3, padding=1)

    def forward(self, prototypes: Tensor, coefficients: Tensor, boxes: Tensor) -> Any:
        prototypes = prototypes + F.gelu(self.refine(prototypes))
        masks = torch.einsum("bnk,bkhw->bnhw", coefficients.tanh(), prototypes)
        masks = F.interpolate(masks, scale_factor=4.0, mode="bilinear", align_corners=False)
        height, width = masks.shape[2:]
        x1, y1, x2, y2 = (edge[..., None, None] for edge in boxes.unbind(-1))
        columns = (torch.arange(width, device=boxes.device) + 0.5) / width
        rows = ((torch.arange(height, device=boxes.device) + 0.5) / height)[:, None]
        inside = (columns >= x1) & (columns < x2) & (rows >= y1) & (rows < y2)
        cropped = masks * inside
        return {"masks": cropped, "mean_inside": cropped.sum((2, 3)) / inside.sum((2, 3)).clamp(min=1)}


def boxes_and_prototypes(batch: int, height: int, width: int, instances: int, seed: int = 0) -> dict[str, Tensor]:
    """Return prototypes, and boxes in fractions of the image."""
    noise = torch.Generator().manual_seed(seed)
    corner = torch.rand(batch, instances, 2, generator=noise) * 0.6
    size = torch.rand(batch, instances, 2, generator=noise) * 0.3 + 0.1
    return {
        "prototypes": torch.randn(batch, 8, height, width, generator=noise),
        "coefficients": torch.randn(batch, instances, 8, generator=noise),
        "boxes": torch.cat([corner, corner + size], dim=-1),
    }


class AlibiGroups(nn.Module):
    """Causal attention with four heads for two heads of keys, slopes instead of positions, and padding."""

    slopes: Tensor

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads), persistent=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        batch, time, width = x.shape
        hidden = self.norm(x)
        query = self.query(hidden).view(batch, time, self.heads, self.size).transpose(1, 2)
        keys_values = self.key_value(hidden).view(batch, time, 2, self.groups, self.size)
        keys_values = keys_values.repeat_interleave(self.heads // self.groups, dim=3)
        key, value = keys_values.transpose(1, 3).unbind(2)
        steps = torch.arange(time, device=x.device)
        distance = steps[:, None] - steps
        allowed = (distance >= 0) & (steps < lengths[:, None, None, None])
        bias = (-self.slopes[:, None, None] * distance).masked_fill(~allowed, -torch.inf)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        y = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return y * (steps < lengths[:, None])[..., None]


def _rotated(x: Tensor, positions: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = positions[:, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class RotaryCache(nn.Module):
    """Some further tokens of a decoder: keys and values of earlier ones are inputs, and all are outputs."""

    def __init__(self, vocabulary: int = 50, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.query = nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, groups * self.size), nn.Linear(width, groups * self.size)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, past_key: Tensor, past_value: Tensor) -> Any:
        batch, steps = ids.shape
        past = past_key.shape[2]
        hidden = self.embedding(ids)
        positions = torch.arange(past, past + steps, device=ids.device)
        query = self.query(hidden).view(batch, steps, self.heads, self.size).transpose(1, 2)
        key = self.key(hidden).view(batch, steps, self.groups, self.size).transpose(1, 2)
        value = self.value(hidden).view(batch, steps, self.groups, self.size).transpose(1, 2)
        key = torch.cat([past_key, _rotated(key, positions)], dim=2)
        value = torch.cat([past_value, value], dim=2)
        repeats = self.heads // self.groups
        scores = _rotated(query, positions) @ key.repeat_interleave(repeats, 1).transpose(2, 3)
        future = torch.arange(past + steps, device=ids.device) > positions[:, None]
        weights = (scores / math.sqrt(self.size)).masked_fill(future, torch.finfo(scores.dtype).min).softmax(-1)
        mixed = (weights @ value.repeat_interleave(repeats, 1)).transpose(1, 2).flatten(2)
        logits = self.norm(hidden + mixed) @ self.embedding.weight.t()
        return {"logits": logits, "present_key": key, "present_value": value}


class ScoresWithDropout(nn.Module):
    """Attention whose dropout does not depend on the mode: the function has no `training`."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.dropout = heads, 0.1
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        query, key, value = self.projections(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class MaskedCache(RotaryCache):
    """The same with a mask over earlier and new tokens, as decoders accept it."""

    def forward(self, ids: Tensor, past_key: Tensor, past_value: Tensor, mask: Tensor) -> Any:  # type: ignore[override]
        answer = super().forward(ids, past_key, past_value)
        answer["logits"] = answer["logits"] * mask[:, -1:, None]
        answer["present_key"] = answer["present_key"] * mask[:, None, :, None]
        return answer


def token_and_cache(batch: int, past: int, seed: int = 0) -> dict[str, Tensor]:
    """Return one token, a cache, and a mask that is one longer than the cache."""
    noise = torch.Generator().manual_seed(seed)
    return {
        "ids": torch.randint(0, 50, (batch, 1), generator=noise),
        "past_key": torch.randn(batch, 2, past, 8, generator=noise),
        "past_value": torch.randn(batch, 2, past, 8, generator=noise),
        "mask": torch.ones(batch, past + 1),
    }


class _Residual(nn.Module):
    """Two convolutions and a sum, prepared for static quantization."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.sum = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Any:
        return self.sum.add_relu(x, self.second(self.first(x)))


class ResidualNet(nn.Module):
    """A small classifier of images, between the stubs of eager quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block, self.pool, self.head = _Residual(8), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Any:
        features = self.block(self.stem(self.quant(image)))
        return self.dequant(self.head(self.pool(features).flatten(1)))


def quantized_residual() -> nn.Module:
    """Return the classifier with int8 weights for each channel, calibrated on random images."""
    torch.manual_seed(0)
    ao: Any = torch.ao.quantization
    model = ResidualNet().eval()
    layers = [["stem.0", "stem.1", "stem.2"], ["block.first.0", "block.first.1", "block.first.2"]]
    fused: nn.Module = ao.fuse_modules(model, [*layers, ["block.second.0", "block.second.1"]])
    fused.qconfig = ao.get_default_qconfig("fbgemm")
    prepared = ao.prepare(fused)
    with torch.no_grad():
        for _ in range(8):
            prepared(torch.randn(8, 3, 16, 16))
    converted: nn.Module = ao.convert(prepared)
    return converted


def observing_quantizers() -> nn.Module:
    """Return a model after quantization-aware training on dark images, whose observers were left on."""
    torch.manual_seed(0)
    ao: Any = torch.ao.quantization
    model = ResidualNet()
    model.qconfig = ao.get_default_qat_qconfig("fbgemm")
    prepared: nn.Module = ao.prepare_qat(model.train())
    for _ in range(8):
        prepared(torch.rand(8, 3, 16, 16) / 4)
    return prepared.eval()


class OutlierColumns(nn.Module):
    """Rounds activations to four bits, except for the columns in which a row of the batch has a large value."""

    def __init__(self, width: int = 32, threshold: float = 6.0) -> None:
        super().__init__()
        self.threshold = threshold
        self.linear = nn.Linear(width, 24)

    def forward(self, x: Tensor) -> Any:
        outliers = (x.abs() > self.threshold).any(dim=0)
        regular = x.masked_fill(outliers, 0.0)
        scale = regular.abs().amax(1, keepdim=True).clamp(min=1e-6) / 7
        rounded = torch.round(regular / scale).clamp(-7, 7) * scale
        return self.linear(torch.where(outliers, x, rounded))


class LookBackWindows(nn.Module):
    """Causal attention in windows of eight: each sees itself and the one before; rows are padded to whole windows."""

    def __init__(self, width: int = 16, heads: int = 2, window: int = 8) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm = nn.LayerNorm(width)
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def _windows(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        return x.view(batch, time // self.window, self.window, self.heads, width // self.heads).transpose(2, 3)

    def forward(self, x: Tensor) -> Any:
        time = x.shape[1]
        padded = F.pad(self.norm(x), (0, 0, 0, -time % self.window))
        query, key, value = (self._windows(part) for part in self.projections(padded).chunk(3, dim=2))
        key, value = (torch.cat([F.pad(part, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], part], dim=3) for part in (key, value))
        places = torch.arange(padded.shape[1], device=x.device).view(-1, self.window)
        others = torch.cat([places - self.window, places], dim=1)
        distance = places[:, :, None] - others[:, None]
        allowed = (distance >= 0) & (distance <= self.window) & (others[:, None] >= 0)
        scores = query @ key.transpose(3, 4) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
        mixed = (weights @ value).transpose(2, 3).reshape(padded.shape)
        return x + self.out(mixed[:, :time])


class FarthestPoints(nn.Module):
    """Samples eight points that are far from each other, and describes each by its four nearest neighbors."""

    def __init__(self, samples: int = 8, neighbors: int = 4) -> None:
        super().__init__()
        self.samples, self.neighbors = samples, neighbors
        self.local = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 6)

    @staticmethod
    def _at(values: Tensor, places: Tensor) -> Tensor:
        picked = values.gather(1, places.flatten(1)[..., None].expand(-1, -1, values.shape[2]))
        return picked.view(*places.shape, values.shape[2])

    def forward(self, points: Tensor, intensity: Tensor) -> Any:
        nearest = torch.full_like(intensity, 1e10)
        last = torch.zeros_like(intensity[:, :1], dtype=torch.long)
        chosen = []
        for _ in range(self.samples):
            chosen.append(last)
            distance = (points - self._at(points, last)).square().sum(2)
            nearest = torch.minimum(nearest, distance)
            last = nearest.argmax(1, keepdim=True)
        places = torch.cat(chosen, dim=1)
        centers = self._at(points, places)
        distances = (centers[:, :, None] - points[:, None]).square().sum(3)
        near, neighbors = distances.topk(self.neighbors, dim=2, largest=False)
        offsets = self._at(points, neighbors) - centers[:, :, None]
        features = torch.cat([offsets, near[..., None], self._at(intensity[..., None], neighbors)], dim=3)
        described = self.local(features).amax(2)
        return {"centers": centers, "indices": places.to(torch.int32), "logits": self.head(described.amax(1))}


class PhotoIntake(nn.Module):
    """Accepts photos of any size as bytes: stretches the contrast of each, resizes, crops, and classifies."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int = 36, crop: int = 32) -> None:
        super().__init__()
        self.size, self.crop = size, crop
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.head = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, photo: Tensor) -> Any:
        image = photo.permute(0, 3, 1, 2).to(torch.float32)
        darkest, brightest = image.amin((1, 2, 3), keepdim=True), image.amax((1, 2, 3), keepdim=True)
        image = (image - darkest) / (brightest - darkest).clamp(min=1.0)
        image = F.interpolate(image, size=(self.size, self.size), mode="bilinear", align_corners=False)
        edge = (self.size - self.crop) // 2
        image = image[:, :, edge : edge + self.crop, edge : edge + self.crop]
        tokens = self.patches((image - self.mean) / self.deviation).flatten(2).transpose(1, 2)
        return self.head(tokens).mean(1), tokens


class LateInteraction(nn.Module):
    """Scores a passage for a query by the best token for each token of the query; vectors are float16."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(width, 8, bias=False)

    def forward(self, query: Tensor, passage: Tensor, keep: Tensor) -> Any:
        query = F.normalize(self.project(query.float()), dim=-1)
        passage = F.normalize(self.project(passage.float()), dim=-1)
        similarities = torch.einsum("bqd,bpd->bqp", query, passage)
        best = similarities.masked_fill(~keep[:, None], -1.0).amax(2)
        return {"score": best.sum(1), "tokens": best.half()}


class SharedOffsets(nn.Module):
    """Lowers the scores of overlapping boxes in all images at once; images are 320 apart, but 640 wide."""

    def __init__(self, apart: float = 320.0, sigma: float = 0.5) -> None:
        super().__init__()
        self.apart, self.sigma = apart, sigma

    def forward(self, boxes: Tensor, scores: Tensor) -> Any:
        image = torch.arange(boxes.shape[0], device=boxes.device, dtype=boxes.dtype)
        moved = (boxes + image[:, None, None] * self.apart).flatten(0, 1)
        flat = scores.flatten()
        top, bottom = torch.maximum(moved[:, None, :2], moved[:, :2]), torch.minimum(moved[:, None, 2:], moved[:, 2:])
        common = (bottom - top).clamp(min=0).prod(2)
        areas = (moved[:, 2:] - moved[:, :2]).prod(1)
        overlap = common / (areas[:, None] + areas - common).clamp(min=1)
        better = flat > flat[:, None]
        strongest = torch.where(better, overlap, torch.zeros_like(overlap)).amax(1)
        return (flat * torch.exp(-strongest.square() / self.sigma)).view_as(scores)


def boxes_and_scores(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return 20 boxes in an image of 640 x 640 pixels."""
    noise = torch.Generator().manual_seed(seed)
    corner = torch.rand(batch, 20, 2, generator=noise) * 440
    size = torch.rand(batch, 20, 2, generator=noise) * 140 + 60
    return {"boxes": torch.cat([corner, corner + size], dim=2), "scores": torch.rand(batch, 20, generator=noise)}


class StatisticsPooling(nn.Module):
    """An x-vector: the mean and the deviation over time, which one frame does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(8, 16, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(16), nn.Conv1d(16, 16, 3, padding=2, dilation=2)
        )
        self.embedding = nn.Linear(32, 12)

    def forward(self, features: Tensor) -> Any:
        frames = self.frames(features.transpose(1, 2)).relu()
        return F.normalize(self.embedding(torch.cat([frames.mean(2), frames.std(2)], dim=1)), dim=1)


class FrozenBackbone(nn.Module):
    """A segmenter whose backbone stays in evaluation mode; the rest stays in training mode by mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(8, 4, 1))

    def train(self, mode: bool = True) -> FrozenBackbone:  # noqa: ARG002, FBT001, FBT002 - as in nn.Module
        self.backbone.train(mode=False)
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False
        return self

    def forward(self, image: Tensor) -> Any:
        return self.head(self.backbone(image))
