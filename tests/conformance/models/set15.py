"""Models of a fifteenth set, written from the documentation alone: scales, branches, containers, audio, boxes."""
# ruff: noqa: D102, D105, D107 - each class's docstring says what its forward computes

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def _drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _perceptron(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


class LinkBudget(nn.Module):
    """A radio link: received watts of 1e-16 to 1e-6, their decibels, and bits per second of up to 1e9."""

    def __init__(self) -> None:
        super().__init__()
        self.clutter = _perceptron(5, 16, 1)

    def forward(self, meters: Tensor, watts: Tensor, terrain: Tensor) -> dict[str, Tensor]:
        loss = (0.125 / (4 * math.pi * meters.abs().clamp(min=1))).square()
        received = watts.abs() * loss * torch.exp(-functional.softplus(self.clutter(terrain).squeeze(1)))
        noise = 1.38e-23 * 290 * 2e7
        decibels = 10 * received.clamp(min=1e-30).log10()
        return {"received": received, "decibels": decibels, "rate": 2e7 / math.log(2) * torch.log1p(received / noise)}


def links(batch: int, seed: int) -> dict[str, Tensor]:
    """Return links of 10 m to 100 km."""
    draw = _drawn(seed)
    meters = 10 ** (1 + 4 * torch.rand(batch, generator=draw))
    return {
        "meters": meters,
        "watts": 0.1 + 20 * torch.rand(batch, generator=draw),
        "terrain": torch.randn(batch, 5, generator=draw),
    }


class KeplerOrbit(nn.Module):
    """Solves Kepler's equation with eight steps of Newton, in float64: positions in meters, speeds, and the radius."""

    def forward(self, axis: Tensor, eccentricity: Tensor, anomaly: Tensor) -> dict[str, Tensor]:
        axis, e = axis.abs().clamp(min=1.0), eccentricity.abs().clamp(max=0.8)
        angle = anomaly + e * anomaly.sin()
        for _ in range(8):
            angle = angle - (angle - e * angle.sin() - anomaly) / (1 - e * angle.cos())
        minor = (1 - e * e).sqrt()
        position = torch.stack([axis * (angle.cos() - e), axis * minor * angle.sin()], dim=1)
        radius = axis * (1 - e * angle.cos())
        motion = (3.986004418e14 / axis).sqrt() / (1 - e * angle.cos())
        return {
            "position": position,
            "velocity": torch.stack([-motion * angle.sin(), motion * minor * angle.cos()], 1),
            "radius": radius,
        }


def satellites(batch: int, seed: int) -> dict[str, Tensor]:
    """Return elements of orbits of 7,000 to 42,000 km."""
    draw = _drawn(seed)
    axis, eccentricity, anomaly = torch.rand(3, batch, generator=draw, dtype=torch.float64)
    return {"axis": 7e6 + 3.5e7 * axis, "eccentricity": 0.7 * eccentricity, "anomaly": 6.28 * anomaly}


class LoanSchedule(nn.Module):
    """Balances of a loan after each of 24 months, rounded to cents each month, and the sum of the interest."""

    def forward(self, principal: Tensor, rate: Tensor) -> dict[str, Tensor]:
        monthly = rate.abs().clamp(max=10).double() * 0.01 + 0.0005
        balance = principal.double()
        payment = (balance * monthly / (1 - (1 + monthly) ** -24)).round()
        balances, total = [], torch.zeros_like(balance)
        for _ in range(24):
            interest = (balance * monthly).round()
            balance = (balance + interest - payment).clamp(min=0)
            total = total + interest
            balances.append(balance)
        return {"payment": payment, "balances": torch.stack(balances, dim=1), "interest": total.to(torch.int64)}


class ClipGlobalNorm(nn.Module):
    """Embeddings whose norm over the whole request is limited to 60, as gradients are clipped in training."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _perceptron(8, 24, 8)

    def forward(self, x: Tensor) -> Any:
        x = x * (60 / x.norm().clamp(min=1e-6)).clamp(max=1)
        return x + self.body(x)


class EntropyOfZero(nn.Module):
    """Attention of a mixture by normalized ReLU, and its entropy: a weight of 0 gives 0 * log(0), which is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(10, 12), nn.Linear(10, 12)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        weights = self.gate(x).relu()
        share = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
        return {"value": (share * self.experts(x)).sum(1), "entropy": -(share * share.log()).sum(1)}


class LongestHorizon(nn.Module):
    """Rolls a forecast forward as often as the longest horizon of the request says; each row stops at its own."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(6, 6)

    def forward(self, x: Tensor, horizon: Tensor) -> Tensor:
        for number in range(int(horizon.max())):
            x = torch.where((number < horizon).unsqueeze(1), x + self.step(x).tanh(), x)
        return x


class EarlyExit(nn.Module):
    """A cascade: rows of which the small head is sure keep its answer, others get that of the large one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(12, 24), nn.GELU())
        self.small, self.large = nn.Linear(24, 4), _perceptron(24, 48, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.stem(x)
        first = self.small(hidden).log_softmax(1)
        sure = first.amax(1) > math.log(0.35)
        return {
            "log_probabilities": torch.where(sure.unsqueeze(1), first, self.large(hidden).log_softmax(1)),
            "exits": sure,
        }


class MaskedExperts(nn.Module):
    """Private and business customers: the rows of each kind are selected, scored, and written back to their places."""

    def __init__(self) -> None:
        super().__init__()
        self.private, self.business = _perceptron(7, 16, 3), _perceptron(7, 32, 3)

    def forward(self, x: Tensor, business: Tensor) -> Tensor:
        scores = x.new_zeros(x.shape[0], 3)
        scores[business] = self.business(x[business])
        scores[~business] = self.private(x[~business])
        return scores.softmax(1)


class AllValid(nn.Module):
    """Sensors: the learned model answers only if all readings of the request are plausible, otherwise a table does."""

    def __init__(self) -> None:
        super().__init__()
        self.learned, self.plain = _perceptron(6, 16, 2), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x.abs() < 25).all(), self.learned(x), self.plain(x.clamp(-25, 25)))


class TaxBrackets(nn.Module):
    """Income tax in whole cents, with brackets and rates in per mille, and the marginal rate of each person."""

    lower: Tensor
    rates: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lower", torch.tensor([0, 1_160_400, 1_700_600, 6_676_100, 27_782_600]))
        self.register_buffer("rates", torch.tensor([0, 140, 240, 420, 450]))

    def forward(self, income: Tensor, children: Tensor) -> dict[str, Tensor]:
        taxed = (income - 480_000 * children).clamp(min=0)
        upper = torch.cat([self.lower[1:], self.lower.new_full((1,), 2**50)])
        inside = torch.minimum((taxed.unsqueeze(1) - self.lower).clamp(min=0), upper - self.lower)
        marginal = self.rates[torch.bucketize(taxed, self.lower, right=True) - 1]
        return {"tax": (inside * self.rates).sum(1) // 1000, "marginal": marginal}


class BuiltinMax(nn.Module):
    """Scales images of unknown range to at most 1: Python's max() compares the largest value with 1."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    def forward(self, image: Any) -> Any:
        return self.body(image / max(1.0, image.abs().max()))


class VersionedAnswer(nn.Module):
    """Logits, with the version of the model as a string."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _perceptron(4, 16, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor | str]:
        return {"logits": self.body(x), "version": "2026-05"}


@dataclass(frozen=True)
class Band:
    """An interval."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Outlook:
    """A return and its interval; a comment is optional."""

    expected: Tensor
    band: Band
    comment: Tensor | None = None


class NestedMarket(nn.Module):
    """Returns of a share from a dict of prices and volumes, and a pair of vectors of news, as nested dataclasses."""

    def __init__(self) -> None:
        super().__init__()
        self.market, self.news, self.head = nn.Linear(20, 12), nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, market: dict[str, Tensor], news: list[Tensor]) -> Outlook:
        series = torch.cat([market["price"].diff(dim=1), market["volume"].abs().log1p()[:, 1:]], dim=1)
        hidden = self.market(series) + torch.stack([self.news(item) for item in news]).amax(0)
        expected, width = self.head(hidden.tanh()).unbind(1)
        width = functional.softplus(width)
        return Outlook(expected, Band(expected - width, expected + width))


def markets(batch: int, seed: int) -> dict[str, object]:
    """Return eleven days, and two pieces of news."""
    draw = _drawn(seed)
    price, volume = torch.randn(2, batch, 11, generator=draw)
    return {
        "market": {"price": 20 + price, "volume": 1000 * volume.exp()},
        "news": [torch.randn(batch, 6, generator=draw) for _ in range(2)],
    }


class HorizonKeys(nn.Module):
    """Demand in 1, 7 and 28 days: the keys of the returned dict are these integers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = nn.GRU(3, 12, batch_first=True), nn.ModuleList(nn.Linear(12, 1) for _ in range(3))

    def forward(self, history: Tensor) -> dict[int, Tensor]:
        _, state = self.body(history)
        days = (1, 7, 28)
        return {day: head(state[-1]).squeeze(1).exp() for day, head in zip(days, self.heads, strict=True)}


class StepDict(nn.Module):
    """Labels of each step of a process, with one entry of the returned dict for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {f"step_{number}": self.head(x[:, number]) for number in range(x.shape[1])}


class PairOfDicts(nn.Module):
    """A bi-encoder that is called as model(query, document), each with token ids and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(60, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return a vector of length 1 for each text."""
        present = mask.bool().logical_or(torch.arange(ids.shape[1], device=ids.device) == 0)
        hidden = self.layer(self.tokens(ids), src_key_padding_mask=~present)
        weights = present.unsqueeze(-1).to(hidden.dtype)
        return functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)

    def forward(self, query: dict[str, Tensor], document: dict[str, Tensor]) -> dict[str, Tensor]:
        left, right = self.encode(**query), self.encode(**document)
        return {"similarity": (left * right).sum(1), "query_vector": left}


def pairs(batch: int, seed: int) -> dict[str, dict[str, Tensor]]:
    """Return queries of 5 tokens and documents of 9."""
    draw = _drawn(seed)
    sizes = {"query": 5, "document": 9}
    return {
        name: {
            "ids": torch.randint(0, 60, (batch, size), generator=draw),
            "mask": (torch.arange(size) < torch.randint(1, size + 1, (batch, 1), generator=draw)).long(),
        }
        for name, size in sizes.items()
    }


class Answer(dict[str, Tensor]):
    """A dict whose entries are attributes, too, as in many training frameworks."""

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class AttributeDict(nn.Module):
    """A multitask model that fills an Answer, and reads its own entries as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.click, self.buy = _perceptron(9, 16, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Answer:
        answer = Answer(hidden=self.body(x).tanh())
        answer["click"] = self.click(answer.hidden).sigmoid().squeeze(1)
        answer["buy"] = answer.click * self.buy(answer.hidden).sigmoid().squeeze(1)
        return answer


class PoppedWeight(nn.Module):
    """Takes the weight out of the record that it gets, and uses all that remain in the record as features."""

    def __init__(self) -> None:
        super().__init__()
        self.head = _perceptron(7, 16, 1)

    def forward(self, record: dict[str, Tensor]) -> dict[str, Tensor]:
        weight = record.pop("weight")
        record["age"] = record["age"].unsqueeze(1) / 100
        score = self.head(torch.cat(list(record.values()), dim=1)).squeeze(1)
        return {"score": score, "weighted": score * weight}


def records(batch: int, seed: int) -> dict[str, dict[str, Tensor]]:
    """Return records with a weight."""
    draw = _drawn(seed)
    return {
        "record": {
            "age": 80 * torch.rand(batch, generator=draw),
            "weight": torch.rand(batch, generator=draw),
            "visits": torch.randn(batch, 6, generator=draw),
        }
    }


class SoftPitch(nn.Module):
    """YIN: the cumulative mean normalized difference of each frame, and a pitch as a soft minimum over the lags."""

    def forward(self, audio: Tensor) -> dict[str, Tensor]:
        frames = audio.unfold(1, 128, 64)
        lags = torch.arange(1, 41, device=audio.device, dtype=audio.dtype)
        differences = [(frames[..., :88] - frames[..., lag : lag + 88]).square().sum(-1) for lag in range(1, 41)]
        difference = torch.stack(differences, dim=-1)
        normalized = difference * lags / difference.cumsum(-1).clamp(min=1e-6)
        lag = ((-12 * normalized).softmax(-1) * lags).sum(-1)
        return {"hertz": 8000 / lag, "aperiodicity": normalized.amin(-1)}


class GatedLoudness(nn.Module):
    """Loudness as in broadcasting: blocks below -70, then those 10 below the mean of the rest, do not count."""

    def forward(self, audio: Tensor) -> dict[str, Tensor]:
        blocks = audio.unfold(1, 160, 40).square().mean(-1)
        level = -0.691 + 10 * blocks.clamp(min=1e-10).log10()
        loud = (level > -70).to(blocks.dtype)
        mean = (blocks * loud).sum(1) / loud.sum(1).clamp(min=1)
        floor = -0.691 + 10 * mean.clamp(min=1e-10).log10() - 10
        loud = loud * (level > floor.unsqueeze(1))
        gated = (blocks * loud).sum(1) / loud.sum(1).clamp(min=1)
        return {"loudness": -0.691 + 10 * gated.clamp(min=1e-10).log10(), "blocks": loud.sum(1)}


class GriffinLim(nn.Module):
    """A waveform from magnitudes: three steps from phases that are drawn at random."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, magnitude: Tensor) -> Tensor:
        magnitude = magnitude.abs()
        phase = 2 * math.pi * torch.rand_like(magnitude)
        for _ in range(3):
            audio = torch.istft(torch.polar(magnitude, phase), 64, 16, window=self.window)
            phase = torch.stft(audio, 64, 16, window=self.window, return_complex=True).angle()
        return torch.istft(torch.polar(magnitude, phase), 64, 16, window=self.window)


class EchoCanceller(nn.Module):
    """Normalized least mean squares: a filter of eight taps for each row, which is adapted at each of 40 samples."""

    def forward(self, far: Tensor, near: Tensor) -> dict[str, Tensor]:
        padded = functional.pad(far, (7, 0))
        taps = far.new_zeros(far.shape[0], 8)
        cleaned = []
        for place in range(40):
            heard = padded[:, place : place + 8]
            error = near[:, place] - (taps * heard).sum(1)
            taps = taps + 0.3 * error.unsqueeze(1) * heard / (heard.square().sum(1, keepdim=True) + 0.1)
            cleaned.append(error)
        return {"cleaned": torch.stack(cleaned, dim=1), "filter": taps}


class TwoSpeakers(nn.Module):
    """Conv-TasNet: masks on learned frames, decoded by a transposed convolution, and padded to the input's length."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, 16, 16, stride=8, bias=False)
        self.norm, self.mix = nn.GroupNorm(1, 16), nn.Conv1d(16, 24, 1)
        self.depthwise = nn.Conv1d(24, 24, 3, padding=2, dilation=2, groups=24)
        self.masks, self.decoder = nn.Conv1d(24, 32, 1), nn.ConvTranspose1d(16, 1, 16, stride=8, bias=False)

    def forward(self, audio: Tensor) -> Tensor:
        frames = self.encoder(audio.unsqueeze(1)).relu()
        hidden = self.depthwise(functional.silu(self.mix(self.norm(frames))))
        masks = self.masks(hidden.relu()).unflatten(1, (2, 16)).softmax(1)
        voices = self.decoder((masks * frames.unsqueeze(1)).flatten(0, 1)).reshape(audio.shape[0], 2, -1)
        return functional.pad(voices, (0, audio.shape[1] - voices.shape[-1]))


class CtcCollapse(nn.Module):
    """Greedy CTC: repeated labels and blanks are removed, and the rest moves to the left, padded with -1."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 7)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        labels = self.head(features).argmax(-1)
        previous = functional.pad(labels[:, :-1], (1, 0), value=-1)
        is_token = (labels != previous) & (labels != 0)
        steps = labels.shape[1]
        places = torch.where(is_token, is_token.long().cumsum(1) - 1, steps)
        tokens = labels.new_full((labels.shape[0], steps + 1), -1).scatter(1, places, labels)[:, :steps]
        return {"tokens": tokens, "count": is_token.sum(1)}


class FcosDecode(nn.Module):
    """An anchor-free detector with strides of 4 and 8: boxes of all locations, clipped to the image, and scores."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(3, 12, 4, stride=4), nn.BatchNorm2d(12), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(12, 12, 3, stride=2, padding=1), nn.ReLU())
        self.classes, self.sides, self.center = nn.Conv2d(12, 5, 1), nn.Conv2d(12, 4, 1), nn.Conv2d(12, 1, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        height, width = image.shape[-2:]
        low = self.low(image)
        boxes, scores = [], []
        for stride, level in ((4, low), (8, self.high(low))):
            rows, columns = (torch.arange(size, device=image.device) for size in level.shape[-2:])
            y, x = torch.meshgrid((rows + 0.5) * stride, (columns + 0.5) * stride, indexing="ij")
            left, top, right, bottom = (self.sides(level).exp() * stride).unbind(1)
            corners = [(x - left).clamp(0, width), (y - top).clamp(0, height), (x + right).clamp(0, width)]
            boxes.append(torch.stack([*corners, (y + bottom).clamp(0, height)], dim=-1).flatten(1, 2))
            scores.append((self.classes(level).sigmoid() * self.center(level).sigmoid()).sqrt().flatten(2).mT)
        return {"boxes": torch.cat(boxes, dim=1), "scores": torch.cat(scores, dim=1)}


class SoftNms(nn.Module):
    """Soft non-maximum suppression: five times, the best box lowers the scores of those that overlap it."""

    def forward(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        area = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)
        chosen, values = [], []
        for _ in range(5):
            value, best = scores.max(1)
            box = boxes.gather(1, best[:, None, None].expand(-1, 1, 4))
            corner = torch.maximum(boxes[..., :2], box[..., :2])
            shared = (torch.minimum(boxes[..., 2:], box[..., 2:]) - corner).clamp(min=0).prod(-1)
            overlap = shared / (area + area.gather(1, best.unsqueeze(1)) - shared).clamp(min=1e-6)
            scores = (scores * torch.exp(-2 * overlap.square())).scatter(1, best.unsqueeze(1), -1e4)
            chosen.append(best)
            values.append(value)
        return torch.stack(chosen, dim=1), torch.stack(values, dim=1)


def proposals(batch: int, seed: int) -> dict[str, Tensor]:
    """Return twelve boxes for each image."""
    draw = _drawn(seed)
    corner, size = 60 * torch.rand(batch, 12, 2, generator=draw), 5 + 50 * torch.rand(batch, 12, 2, generator=draw)
    return {"boxes": torch.cat([corner, corner + size], dim=-1), "scores": torch.rand(batch, 12, generator=draw)}


class ComponentLabels(nn.Module):
    """Connected components of masks: the largest number of a pixel spreads; numbers count through the request."""

    def forward(self, logits: Tensor) -> Tensor:
        inside = (logits > 0).float()
        numbers = torch.arange(1, logits.numel() + 1, device=logits.device, dtype=logits.dtype)
        labels = numbers.reshape(logits.shape) * inside
        for _ in range(12):
            labels = functional.max_pool2d(labels.unsqueeze(1), 3, 1, 1).squeeze(1) * inside
        return labels.to(torch.int64)


class CropByBox(nn.Module):
    """Reads a plate: crops a region that is given in pixels, turns it if it is upright, and resizes it."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 6 * 14, 10))

    def forward(self, image: Tensor, box: Tensor) -> Any:
        top, left, height, width = box[0].tolist()
        plate = image[:, :, top : top + height, left : left + width]
        if height > width:
            plate = plate.mT
        return self.read(functional.interpolate(plate, size=(8, 16), mode="bilinear"))


class SoftKeypoints(nn.Module):
    """Key points as the means of softmaxed heatmaps, in pixels of an image of any size, with their spread."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(8, 5, 3, padding=1))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        maps = self.body(image)
        height, width = maps.shape[-2:]
        share = maps.flatten(2).softmax(-1).unflatten(-1, (height, width))
        rows = torch.linspace(0, 1, height, device=image.device) * (image.shape[-2] - 1)
        columns = torch.linspace(0, 1, width, device=image.device) * (image.shape[-1] - 1)
        y, x = (share.sum(-1) * rows).sum(-1), (share.sum(-2) * columns).sum(-1)
        spread = (share.sum(-1) * (rows - y.unsqueeze(-1)).square()).sum(-1).sqrt()
        return {"points": torch.stack([x, y], dim=-1), "spread": spread, "visible": maps.amax((-2, -1)).sigmoid()}


class Float8Weights(nn.Module):
    """Weights are stored as float8 with a scale for each output, and are cast in forward."""

    packed: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(20, 12, generator=_drawn(4))
        scale = weight.abs().amax(1, keepdim=True) / 448
        self.register_buffer("packed", (weight / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)
        self.head = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(functional.gelu(functional.linear(x, self.packed.to(x.dtype) * self.scale)))


class BitLinear(nn.Module):
    """BitNet: ternary weights, and inputs that are rounded to 8 bits with a scale for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(24, 16, generator=_drawn(6))), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Any:
        scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        rounded = (x * scale).round().clamp(-128, 127) / scale
        size = self.weight.abs().mean()
        return self.head(functional.linear(rounded, (self.weight / size).round().clamp(-1, 1) * size).relu())


class ProductQuantized(nn.Module):
    """Scores of 90 items that are stored as four codes of a byte: one table of products for each query."""

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(0, 16, (90, 4), generator=_drawn(7)).to(torch.uint8))
        self.books = nn.Parameter(torch.randn(4, 16, 6, generator=_drawn(8)))

    def forward(self, query: Any) -> dict[str, Tensor]:
        tables = torch.einsum("bpd,pcd->bpc", query.unflatten(1, (4, 6)), self.books)
        scores = tables[:, torch.arange(4, device=query.device), self.codes.long()].sum(-1)
        return {"scores": scores, "best": scores.amax(1)}


class ResidualCodes(nn.Module):
    """A neural codec: three codebooks in turn quantize what the ones before have left; codes and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 8, 80, stride=40), nn.ConvTranspose1d(8, 1, 40, stride=40)
        self.books = nn.ParameterList(torch.randn(12, 8, generator=_drawn(level)) / (1 + level) for level in range(3))

    def forward(self, audio: Tensor) -> dict[str, Tensor]:
        rest = self.encoder(audio.unsqueeze(1)).mT
        total, codes = torch.zeros_like(rest), []
        for book in self.books:
            distance = (rest.unsqueeze(2) - book).square().sum(-1)
            code = distance.argmin(-1)
            part = functional.embedding(code, book)
            rest, total = rest - part, total + part
            codes.append(code)
        return {"codes": torch.stack(codes, dim=1), "decoded": self.decoder(total.mT).squeeze(1)}


class StochasticRounding(nn.Module):
    """Activations in steps of 1/16, rounded up or down at random, in proportion to the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x).relu() * 16
        return self.second((hidden + torch.rand_like(hidden)).floor() / 16)


class RecentScores(nn.Module):
    """Anomalies: a score minus the mean level of the last three requests, which a deque keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _perceptron(5, 16, 1)
        self.recent: deque[Tensor] = deque(maxlen=3)

    def forward(self, x: Tensor) -> Any:
        score = self.body(x).squeeze(1)
        level = torch.stack(list(self.recent)).mean() if self.recent else score.new_zeros(())
        self.recent.append(score.detach().mean())
        return score - level


class HookedFeatures(nn.Module):
    """A style model: hooks store what two layers return, and forward computes Gram matrices from what they stored."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Tanh())
        self.stored: dict[int, Tensor] = {}
        for place in (1, 3):
            self.body[place].register_forward_hook(
                lambda _module, _inputs, output, place=place: self.stored.update({place: output})
            )

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        self.body(image)
        flat = {place: features.flatten(2) for place, features in self.stored.items()}
        return {f"gram_{place}": value @ value.mT / value.shape[-1] for place, value in flat.items()}


class KalmanStep(nn.Module):
    """One step of a filter for a position and a speed on two axes; the state is sent, and returned with new names."""

    move: Tensor

    def __init__(self) -> None:
        super().__init__()
        move = torch.eye(4)
        move[0, 2] = move[1, 3] = 0.5
        self.register_buffer("move", move)

    def forward(self, measured: Tensor, mean: Tensor, covariance: Tensor) -> dict[str, Tensor]:
        eye = torch.eye(4, device=mean.device)
        mean = mean @ self.move.T
        covariance = self.move @ covariance @ self.move.T + 0.05 * eye
        (a, b), (c, d) = ((row[:, 0], row[:, 1]) for row in (covariance[:, :2, :2] + 0.2 * eye[:2, :2]).unbind(1))
        inverse = torch.stack([d, -b, -c, a], dim=1).reshape(-1, 2, 2) / (a * d - b * c)[:, None, None]
        gain = covariance[:, :, :2] @ inverse
        surprise = (measured - mean[:, :2]).unsqueeze(-1)
        return {
            "next_mean": mean + (gain @ surprise).squeeze(-1),
            "next_covariance": covariance - gain @ covariance[:, :2],
            "distance": (surprise.mT @ inverse @ surprise).flatten(),
        }


def tracks(batch: int, seed: int) -> dict[str, Tensor]:
    """Return measurements and states with positive definite covariances."""
    draw = _drawn(seed)
    factor = 0.4 * torch.randn(batch, 4, 4, generator=draw)
    covariance = factor @ factor.mT + 0.3 * torch.eye(4)
    mean = torch.randn(batch, 4, generator=draw)
    return {
        "measured": mean[:, :2] + 0.3 * torch.randn(batch, 2, generator=draw),
        "mean": mean,
        "covariance": covariance,
    }


class SpeedsOfTrip(nn.Module):
    """Meters per second between consecutive fixes of a trip, which are the rows of a request; 0 for the first fix."""

    def forward(self, fixes: Tensor, seconds: Tensor) -> Tensor:
        latitude, longitude = (fixes * (math.pi / 180)).unbind(1)
        north, east = latitude[1:] - latitude[:-1], longitude[1:] - longitude[:-1]
        half = (north / 2).sin().square() + latitude[1:].cos() * latitude[:-1].cos() * (east / 2).sin().square()
        meters = 2 * 6_371_000 * half.clamp(0, 1).sqrt().asin()
        speeds = meters / (seconds[1:] - seconds[:-1]).abs().clamp(min=1)
        return torch.cat([torch.zeros_like(latitude[:1]), speeds])


def trips(batch: int, seed: int) -> dict[str, Tensor]:
    """Return fixes near Berlin, every few seconds."""
    draw = _drawn(seed)
    wander = 0.001 * torch.randn(batch, 2, generator=draw, dtype=torch.float64).cumsum(0)
    seconds = (1 + 9 * torch.rand(batch, generator=draw, dtype=torch.float64)).cumsum(0)
    return {"fixes": torch.tensor([52.5, 13.4], dtype=torch.float64) + wander, "seconds": seconds}


class PaddedMean(nn.Module):
    """The mean vector of the words, without padding: 0 / 0 for a text of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(4, 8, padding_idx=0), nn.Linear(8, 2)

    def forward(self, words: Tensor) -> Any:
        present = (words != 0).unsqueeze(-1).float()
        return self.head((self.words(words) * present).sum(1) / present.sum(1))


class RequestDeviation(nn.Module):
    """Bids relative to the other bids of the auction: their standard deviation is NaN for a single bid."""

    def __init__(self) -> None:
        super().__init__()
        self.head = _perceptron(3, 12, 1)

    def forward(self, bids: Tensor) -> Any:
        return self.head((bids - bids.mean(0)) / (bids.std(0) + 1e-6)).squeeze(1)
