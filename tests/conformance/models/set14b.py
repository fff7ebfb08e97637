"""Models of audio, detection, quantization, streams, text and vision, as their owners write them."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

from collections import deque
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class VocosHead(nn.Module):
    """A vocoder: a ConvNeXt block predicts magnitude and phase of each frame, and istft makes a waveform of them."""

    window: Tensor

    def __init__(self, bands: int = 16, width: int = 24, size: int = 64, hop: int = 16) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))
        self.embed = nn.Conv1d(bands, width, 7, padding=3)
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.3))
        self.out = nn.Linear(width, size + 2)

    def forward(self, mel: Tensor) -> Any:
        hidden = self.embed(mel)
        mixed = self.norm(self.depthwise(hidden).transpose(1, 2))
        hidden = hidden.transpose(1, 2) + self.scale * self.narrow(F.gelu(self.wide(mixed)))
        magnitude, phase = self.out(self.last_norm(hidden)).transpose(1, 2).chunk(2, dim=1)
        magnitude = magnitude.exp().clamp(max=100.0)
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin())
        wave = torch.istft(spectrum, self.size, self.hop, self.size, self.window, center=True)
        return {"wave": wave, "peak": wave.abs().amax(1)}


class SoftNmsLoop(nn.Module):
    """Takes the best box six times; after each, the scores of overlapping boxes are lowered (Soft-NMS)."""

    def __init__(self, keep: int = 6, sigma: float = 0.5) -> None:
        super().__init__()
        self.keep, self.sigma = keep, sigma

    def forward(self, deltas: Tensor, logits: Tensor) -> Any:
        center, size = deltas[..., :2].sigmoid() * 100, 10 + 40 * deltas[..., 2:].sigmoid()
        boxes = torch.cat([center - size / 2, center + size / 2], dim=2)
        areas = (boxes[..., 2:] - boxes[..., :2]).prod(2)
        scores = logits.sigmoid()
        selected, values = [], []
        for _ in range(self.keep):
            best = scores.argmax(1, keepdim=True)
            selected.append(best)
            values.append(scores.gather(1, best))
            box = boxes.gather(1, best[..., None].expand(-1, -1, 4))
            shared = torch.minimum(boxes[..., 2:], box[..., 2:]) - torch.maximum(boxes[..., :2], box[..., :2])
            common = shared.clamp(min=0).prod(2)
            overlap = common / (areas + areas.gather(1, best) - common)
            scores = (scores * torch.exp(-overlap.square() / self.sigma)).scatter(1, best, -1.0)
        places = torch.cat(selected, dim=1)
        chosen = boxes.gather(1, places[..., None].expand(-1, -1, 4))
        return {"boxes": chosen, "scores": torch.cat(values, dim=1), "places": places}


class RegionGrowing(nn.Module):
    """Numbers the regions of a mask: each pixel gets the largest number around it, 24 times."""

    def __init__(self, rounds: int = 24) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, logits: Tensor) -> Any:
        _, height, width = logits.shape
        inside = (logits > 0).to(logits.dtype)
        numbers = torch.arange(1, height * width + 1, device=logits.device, dtype=logits.dtype)
        labels = numbers.view(height, width) * inside
        for _ in range(self.rounds):
            labels = F.max_pool2d(labels[:, None], 3, stride=1, padding=1)[:, 0] * inside
        flat = labels.long().flatten(1)
        sizes = logits.new_zeros(flat.shape[0], height * width + 1).scatter_add(1, flat, inside.flatten(1))[:, 1:]
        return {"labels": labels.to(torch.int32), "largest": sizes.amax(1), "regions": (sizes > 0).sum(1)}


class PowerOfTwoScales(nn.Module):
    """Trained for an accelerator that shifts bits: all scales of its fake quantization are powers of two."""

    def __init__(self, channels: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.head = nn.Linear(channels, classes)
        for name, layer in (("conv", self.conv), ("head", self.head)):
            largest = layer.weight.detach().flatten(1).abs().amax(1)
            self.register_buffer(f"{name}_scale", torch.exp2(torch.ceil(torch.log2(largest / 127))))
            self.register_buffer(f"{name}_zero", torch.zeros(len(largest), dtype=torch.int32))

    def _weight(self, name: str) -> Tensor:
        scale, zero = getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero")
        return torch.fake_quantize_per_channel_affine(getattr(self, name).weight, scale, zero, 0, -127, 127)

    def forward(self, image: Tensor) -> Any:
        pixels = torch.fake_quantize_per_tensor_affine(image, 2.0**-5, 0, -128, 127)
        features = F.conv2d(pixels, self._weight("conv"), self.conv.bias, stride=2, padding=1)
        pooled = F.relu6(features).mean((2, 3))
        pooled = torch.fake_quantize_per_tensor_affine(pooled, 2.0**-6, 0, 0, 255)
        return F.linear(pooled, self._weight("head"), self.head.bias)


class Int8Cache(nn.Module):
    """A step of a decoder whose cache of 12 places is int8, with one scale for each place; rows are at other places."""

    def __init__(self, words: int = 50, width: int = 16, places: int = 12) -> None:
        super().__init__()
        self.places = places
        self.queries, self.keys, self.values = (nn.Embedding(words, width) for _ in range(3))
        self.out = nn.Linear(width, words)

    @staticmethod
    def _quantized(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-6) / 127
        return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale

    def forward(
        self, token: Tensor, place: Tensor, keys: Tensor, key_scales: Tensor, values: Tensor, value_scales: Tensor
    ) -> Any:
        steps = torch.arange(self.places, device=token.device)
        here = steps == place[:, None]
        new_key, key_scale = self._quantized(self.keys(token))
        new_value, value_scale = self._quantized(self.values(token))
        keys = torch.where(here[..., None], new_key[:, None], keys)
        values = torch.where(here[..., None], new_value[:, None], values)
        key_scales = torch.where(here, key_scale, key_scales)
        value_scales = torch.where(here, value_scale, value_scales)
        scores = (keys.float() * self.queries(token)[:, None]).sum(2) * key_scales / 4
        weights = scores.masked_fill(steps > place[:, None], -torch.inf).softmax(1) * value_scales
        mixed = (weights[:, None] @ values.float()).squeeze(1)
        state = {"keys": keys, "key_scales": key_scales, "values": values, "value_scales": value_scales}
        return {"logits": self.out(mixed), **{f"next_{name}": value for name, value in state.items()}}


def token_and_int8_cache(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return a token for each row, its place, and a cache with scales around 0.02."""
    noise = torch.Generator().manual_seed(seed)
    cache = {
        name: torch.randint(-127, 128, (batch, 12, 16), generator=noise, dtype=torch.int8)
        for name in ("keys", "values")
    }
    scales = {name: 0.01 + 0.02 * torch.rand(batch, 12, generator=noise) for name in ("key_scales", "value_scales")}
    token = torch.randint(0, 50, (batch,), generator=noise)
    return {"token": token, "place": torch.randint(0, 12, (batch,), generator=noise), **cache, **scales}


class RetentionChunk(nn.Module):
    """A chunk of any length for a RetNet: earlier chunks are a matrix for each head, which decays with each step."""

    decays: Tensor

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.register_buffer("decays", torch.tensor([0.9, 0.97]).view(heads, 1, 1))
        self.projections, self.gate, self.out = (nn.Linear(width, n * width) for n in (3, 1, 1))
        self.norm = nn.GroupNorm(heads, width)

    def forward(self, x: Tensor, state: Tensor) -> Any:
        batch, time, width = x.shape
        query, key, value = self.projections(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        steps = torch.arange(time, device=x.device, dtype=x.dtype)
        distance = steps[:, None] - steps
        decay = torch.where(distance >= 0, self.decays ** distance.clamp(min=0), torch.zeros_like(distance))
        inner = (query @ key.transpose(2, 3) * decay) @ value
        earlier = (query @ state) * self.decays ** (steps[:, None] + 1)
        later = key * self.decays ** (time - 1 - steps[:, None])
        next_state = self.decays**time * state + later.transpose(2, 3) @ value
        mixed = (inner + earlier).transpose(1, 2).reshape(batch * time, width)
        normed = self.norm(mixed).view(batch, time, width)
        return {"y": x + self.out(F.silu(self.gate(x)) * normed), "next_state": next_state}


class CtcChunks(nn.Module):
    """Decodes a chunk of CTC logits: the last symbol and the frames of silence before the chunk are inputs."""

    def __init__(self, patience: int = 25) -> None:
        super().__init__()
        self.patience = patience

    def forward(self, logits: Tensor, last: Tensor, silence: Tensor) -> Any:
        best = logits.argmax(2)
        before = torch.cat([last[:, None], best[:, :-1]], dim=1)
        new = (best != 0) & (best != before)
        order = torch.argsort((~new).long(), dim=1, stable=True)
        symbols = torch.where(new, best, torch.full_like(best, -1)).gather(1, order)
        spoken_after = (best != 0).long().flip(1).cumsum(1)
        trailing = (spoken_after == 0).sum(1)
        next_silence = torch.where((best == 0).all(1), silence + best.shape[1], trailing)
        confidence = (logits.log_softmax(2).amax(2) * new).sum(1) / new.sum(1).clamp(min=1)
        return {
            "symbols": symbols,
            "count": new.sum(1),
            "confidence": confidence,
            "next_last": best[:, -1],
            "next_silence": next_silence,
            "endpoint": next_silence > self.patience,
        }


class SpanMarker(nn.Module):
    """Finds the three best entities of up to four words within the length of each row; missing ones are -1."""

    def __init__(self, words: int = 60, width: int = 16, longest: int = 4) -> None:
        super().__init__()
        self.longest = longest
        self.embedding = nn.Embedding(words, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.start, self.end = nn.Linear(width, width), nn.Linear(width, width)
        self.widths = nn.Embedding(longest, width)
        self.score = nn.Linear(width, 1)

    def forward(self, ids: Tensor, lengths: Tensor) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device)
        is_token = places < lengths[:, None]
        embedded = self.embedding(ids) * is_token[..., None]
        hidden = self.context(embedded.transpose(1, 2)).relu().transpose(1, 2)
        ends = torch.stack([F.pad(hidden, (0, 0, 0, n))[:, n:] for n in range(self.longest)], dim=2)
        inside = torch.stack([F.pad(is_token, (0, n))[:, n:] for n in range(self.longest)], dim=2)
        pairs = torch.tanh(self.start(hidden)[:, :, None] + self.end(ends) + self.widths.weight)
        scores = self.score(pairs).squeeze(3).masked_fill(~inside, -torch.inf)
        best, where = scores.flatten(1).topk(3, dim=1)
        first = torch.div(where, self.longest, rounding_mode="floor")
        missing = best == -torch.inf
        return {
            "scores": best,
            "first": first.masked_fill(missing, -1),
            "last": (first + where % self.longest).masked_fill(missing, -1),
        }


class MaskPredict(nn.Module):
    """Writes ten words in four rounds: all at once, and then the least certain ones again (CMLM)."""

    def __init__(self, words: int = 30, width: int = 16, length: int = 10, rounds: int = 4) -> None:
        super().__init__()
        self.words, self.length, self.rounds = words, length, rounds
        self.norm = nn.LayerNorm(width)
        self.embedding = nn.Embedding(words + 1, width)
        self.positions = nn.Parameter(torch.randn(length, width))
        self.mix, self.query, self.out = nn.Linear(length, length), nn.Linear(width, width), nn.Linear(width, words)

    def forward(self, encoded: Tensor, keep: Tensor) -> Any:
        memory = self.norm(encoded)
        tokens = torch.full((encoded.shape[0], self.length), self.words, device=encoded.device)
        certainty = torch.zeros_like(tokens, dtype=memory.dtype)
        for step in range(1, self.rounds + 1):
            unknown = tokens == self.words
            hidden = self.embedding(tokens) + self.positions
            hidden = hidden + self.mix(hidden.transpose(1, 2)).tanh().transpose(1, 2)
            attention = self.query(hidden) @ memory.transpose(1, 2) / 4
            attention = attention.masked_fill(~keep[:, None], -1e4).softmax(2)
            probability, word = self.out(hidden + attention @ memory).softmax(2).max(2)
            tokens = torch.where(unknown, word, tokens)
            certainty = torch.where(unknown, probability, certainty)
            again = self.length * (self.rounds - step) // self.rounds
            if again:
                limit = certainty.topk(again, dim=1, largest=False).values[:, -1:]
                tokens = tokens.masked_fill(certainty <= limit, self.words)
        return {"tokens": tokens, "score": certainty.log().sum(1)}


class FlexiPatches(nn.Module):
    """A small ViT for images of any size: its table of 7 x 7 positions is interpolated to the grid of patches."""

    def __init__(self, width: int = 24, patch: int = 8, table: int = 7) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.randn(1, width, table, table))
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.layer = nn.TransformerEncoderLayer(width, 3, 48, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 6)

    def forward(self, image: Tensor) -> Any:
        grid = self.patches(image)
        height, width = grid.shape[2:]
        grid = grid + F.interpolate(self.positions, size=(height, width), mode="bicubic", align_corners=False)
        tokens = grid.flatten(2).transpose(1, 2)
        tokens = self.layer(torch.cat([self.first.expand(tokens.shape[0], -1, -1), tokens], dim=1))
        features = tokens[:, 1:].transpose(1, 2).unflatten(2, (height, width))
        return {"logits": self.head(tokens[:, 0]), "features": features}


class UnetSkips(nn.Module):
    """A U-Net with two halvings, whose skips fit only for sizes that are multiples of four."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        sizes = ((1, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 2 * width), (2 * width, width))
        self.convs = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in sizes)
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in (2 * width, width))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: Tensor) -> Any:
        high = self.convs[0](image)
        middle = self.convs[1](F.max_pool2d(high, 2))
        low = self.convs[2](F.max_pool2d(middle, 2))
        middle = self.convs[3](torch.cat([middle, self.ups[0](low)], dim=1))
        high = self.convs[4](torch.cat([high, self.ups[1](middle)], dim=1))
        logits = self.head(high)
        return {"logits": logits, "share": logits.softmax(1)[:, 1].mean((1, 2))}


class ForgottenUnsort(nn.Module):
    """Sorts rows by their lengths, as packing used to require, and does not restore their order."""

    def __init__(self, words: int = 60, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, ids: Tensor, lengths: Tensor) -> Any:
        lengths, order = lengths.clamp(max=ids.shape[1]).sort(descending=True, stable=True)
        hidden, _ = self.gru(self.embedding(ids[order]))
        last = (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
        return self.head(hidden.gather(1, last).squeeze(1))


class TemporalShift(nn.Module):
    """Features of a clip: an eighth of the channels comes from the frame before, an eighth from the one after (TSM)."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, frames: Tensor) -> Any:
        part = frames.shape[1] // 8
        after = F.pad(frames[1:, :part], (0, 0, 0, 0, 0, 0, 0, 1))
        before = F.pad(frames[:-1, part : 2 * part], (0, 0, 0, 0, 0, 0, 1, 0))
        shifted = torch.cat([after, before, frames[:, 2 * part :]], dim=1)
        return frames + self.conv(shifted).relu()


class StackedState(nn.Module):
    """Detects speech in a chunk of 64 samples; hidden state and cell are one tensor, as in Silero's files."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, chunk: Tensor, state: Tensor) -> Any:
        hidden, cell = self.cell(self.encoder(chunk), (state[0], state[1]))
        return {"speech": self.head(hidden.relu()), "next_state": torch.stack([hidden, cell])}


class MaskedAutoencoder(nn.Module):
    """The encoder of a masked autoencoder, which drops three quarters of the patches at random, as in training."""

    def __init__(self, width: int = 24, keep: int = 4) -> None:
        super().__init__()
        self.keep = keep
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.positions = nn.Parameter(torch.randn(16, width))
        self.layer = nn.TransformerEncoderLayer(width, 3, 48, batch_first=True)

    def forward(self, image: Tensor) -> Any:
        tokens = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        order = torch.argsort(torch.rand(tokens.shape[:2], device=tokens.device), dim=1)
        visible = tokens.gather(1, order[:, : self.keep, None].expand(-1, -1, tokens.shape[2]))
        return {"latent": self.layer(visible), "restore": torch.argsort(order, dim=1)}


class RecentFrames(nn.Module):
    """Classifies the newest frame of a stream together with the three frames of the calls before."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.recent = deque([torch.zeros(1, width)] * 4, maxlen=4)
        self.head = nn.Sequential(nn.Linear(4 * width, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, frame: Tensor) -> Any:
        self.recent.append(frame)
        return self.head(torch.cat(list(self.recent), dim=1))


class SentenceMeans(nn.Module):
    """Averages the tokens of each sentence; the sentences follow each other without padding."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(width, 8)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Any:
        sentences = torch.split(self.project(tokens), lengths.tolist())
        return torch.stack([sentence.mean(0) for sentence in sentences])


def sentences(tokens: int, count: int, seed: int = 0) -> dict[str, Tensor]:
    """Return tokens, and the lengths of sentences, which have at least one token each."""
    noise = torch.Generator().manual_seed(seed)
    ends = torch.randperm(tokens - 1, generator=noise)[: count - 1].sort().values + 1
    edges = torch.cat([torch.tensor([0]), ends, torch.tensor([tokens])])
    return {"tokens": torch.randn(tokens, 16, generator=noise), "lengths": edges.diff()}


class PaddedOverlap(nn.Module):
    """Compares predicted boxes with expected ones; missing boxes of an image are zeros, and no area is added."""

    def forward(self, predicted: Tensor, expected: Tensor) -> Any:
        a, b = predicted[:, :, None], expected[:, None]
        common = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(3)
        overlap = common / ((a[..., 2:] - a[..., :2]).prod(3) + (b[..., 2:] - b[..., :2]).prod(3) - common)
        return {"overlap": overlap, "matched": (overlap.amax(1) > 0.5).sum(1)}


def padded_boxes(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return six predicted and four expected boxes of each image; the last one of both is padding."""
    noise = torch.Generator().manual_seed(seed)
    boxes = {}
    for name, count in (("predicted", 6), ("expected", 4)):
        corner = torch.rand(batch, count, 2, generator=noise) * 80
        boxes[name] = torch.cat([corner, corner + 5 + 20 * torch.rand(batch, count, 2, generator=noise)], dim=2)
        boxes[name][:, -1] = 0
    return boxes
