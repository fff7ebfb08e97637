"""Models of a thirteenth set, written from the documentation alone: scales, branches, containers, state, tables."""
# ruff: noqa: D102, D107 - each class's docstring says what its forward computes

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class CreditLoss(nn.Module):
    """Exposures of 1e6, losses, and probabilities of default of 1e-8 or less, in one tensor, as a risk report has."""

    def __init__(self, ratios: int = 10, segments: int = 5) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(ratios)
        self.segment = nn.Embedding(segments, 4)
        self.body = nn.Sequential(nn.Linear(ratios + 4, 32), nn.SiLU(), nn.Linear(32, 16), nn.SiLU())
        self.odds, self.severity, self.usage = nn.Linear(16, 1), nn.Linear(16, 1), nn.Linear(16, 1)
        nn.init.constant_(self.odds.bias, -19.0)

    def forward(self, ratios: Tensor, segment: Tensor, limit: Tensor) -> dict[str, Tensor]:
        hidden = self.body(torch.cat([self.norm(ratios), self.segment(segment)], dim=1))
        log_odds = self.odds(hidden).squeeze(1)
        log_default = -nn.functional.softplus(-log_odds)
        default = log_default.exp()
        within_five = -torch.expm1(5 * torch.log1p(-default.clamp(max=0.999)))
        given_default = 0.1 + 0.8 * self.severity(hidden).squeeze(1).sigmoid()
        exposure = limit * (0.5 + 0.5 * self.usage(hidden).squeeze(1).sigmoid())
        loss = default * given_default * exposure
        report = torch.stack([exposure, given_default, default, within_five, loss, loss / limit], dim=1)
        return {"report": report, "log_default": log_default}


def loans(batch: int, seed: int) -> dict[str, Tensor]:
    """Return loans of 1e5 to 1e7."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "ratios": torch.randn(batch, 10, generator=draw),
        "segment": torch.randint(0, 5, (batch,), generator=draw),
        "limit": 10 ** (5 + 2 * torch.rand(batch, generator=draw)),
    }


class ReversibleNorm(nn.Module):
    """RevIN: removes the level and scale of each series, and restores them; keeps them in attributes in between."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(channels))
        self.bias = nn.Parameter(0.1 * torch.randn(channels))

    def forward(self, x: Tensor, mode: str) -> Tensor:
        if mode == "norm":
            self.mean = x.mean(1, keepdim=True).detach()
            self.deviation = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
            return (x - self.mean) / self.deviation * self.weight + self.bias
        return (x - self.bias) / self.weight * self.deviation + self.mean


class PatchForecaster(nn.Module):
    """Patches of each channel, an encoder, and quantiles of the forecast by their levels: 0.1, 0.5, 0.9."""

    def __init__(self, channels: int = 3, length: int = 32, horizon: int = 8, width: int = 16) -> None:
        super().__init__()
        self.norm = ReversibleNorm(channels)
        self.levels, self.horizon = (0.1, 0.5, 0.9), horizon
        self.patch = nn.Linear(8, width)
        self.positions = nn.Parameter(0.1 * torch.randn((length - 8) // 4 + 1, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(self.positions.numel(), horizon * len(self.levels))

    def forward(self, history: Tensor) -> dict[float, Tensor]:
        normal = self.norm(history, "norm").transpose(1, 2)
        patches = self.patch(normal.unfold(2, 8, 4)) + self.positions
        encoded = self.encoder(patches.flatten(0, 1))
        raw = self.head(encoded.flatten(1)).unflatten(0, (history.shape[0], -1))
        by_level = raw.unflatten(-1, (len(self.levels), self.horizon)).sort(dim=2).values
        return {
            level: self.norm(by_level[:, :, number].transpose(1, 2), "denorm")
            for number, level in enumerate(self.levels)
        }


class KnownMerchants(nn.Module):
    """Merchants have numbers of up to 4e9: 48 known ones have their own vector, and others share 256 hash buckets."""

    numbers: Tensor

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(11)
        self.register_buffer("numbers", torch.randint(0, 4_000_000_000, (48,), generator=draw))
        self.own, self.shared = nn.Embedding(48, width), nn.Embedding(256, width)
        self.deep = nn.Sequential(nn.Linear(width + 5, 24), nn.ReLU(), nn.Linear(24, 2))

    @staticmethod
    def bucket(number: Tensor) -> Tensor:
        """Return a hash from 0 to 255."""
        mixed = (number ^ (number >> 15)) * 2_246_822_519 & 0xFFFFFFFF
        mixed = (mixed ^ (mixed >> 13)) * 3_266_489_917 & 0xFFFFFFFF
        return (mixed ^ (mixed >> 16)) % 256

    def forward(self, merchant: Tensor, payment: Tensor) -> dict[str, Tensor]:
        same = merchant.unsqueeze(1) == self.numbers
        is_known = same.any(1)
        place = same.to(torch.int64).argmax(1)
        bucket = self.bucket(merchant)
        vector = torch.where(is_known.unsqueeze(1), self.own(place), self.shared(bucket))
        logits = self.deep(torch.cat([vector, payment], dim=1))
        return {"logits": logits, "bucket": torch.where(is_known, -1, bucket), "is_known": is_known}


class PowerTransform(nn.Module):
    """Yeo-Johnson, fitted for each column, with the special cases of 0 and 2; then a network with skips."""

    power: Tensor
    center: Tensor
    scale: Tensor

    def __init__(self, columns: int = 8, width: int = 24) -> None:
        super().__init__()
        self.register_buffer("power", torch.tensor([0.0, 0.5, 1.0, 2.0, -0.4, 1.7, 0.0, 2.0])[:columns])
        self.register_buffer("center", torch.linspace(-0.2, 0.4, columns))
        self.register_buffer("scale", torch.linspace(0.6, 1.4, columns))
        self.first = nn.Linear(columns, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(2))
        self.head = nn.Linear(width, 3)

    def transform(self, x: Tensor) -> Tensor:
        """Return the transformed columns."""
        above = torch.where(self.power == 0, x.log1p(), ((x + 1) ** self.power - 1) / self.power)
        rest = 2 - self.power
        below = torch.where(self.power == 2, -(-x).log1p(), -((1 - x) ** rest - 1) / rest)
        return (torch.where(x >= 0, above, below) - self.center) / self.scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        columns = self.transform(x)
        hidden = self.first(columns)
        for block in self.blocks:
            hidden = hidden + nn.functional.silu(block(hidden))
        return self.head(hidden), columns


class BranchyText(nn.Module):
    """Three exits: each text takes the first exit that is certain enough; its number is returned as well."""

    thresholds: Tensor

    def __init__(self, vocabulary: int = 200, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.classes = classes
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.stages = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(3))
        self.register_buffer("thresholds", torch.tensor([0.55, 0.45, 0.0]))

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        mask = (tokens != 0).unsqueeze(1).float()
        hidden = self.embedding(tokens).transpose(1, 2)
        answer = hidden.new_zeros(tokens.shape[0], self.classes)
        place = torch.full((tokens.shape[0],), -1, dtype=torch.int64, device=tokens.device)
        for number, (stage, exit_) in enumerate(zip(self.stages, self.exits, strict=True)):
            hidden = hidden + stage(hidden * mask).tanh()
            pooled = (hidden * mask).sum(2) / mask.sum(2).clamp(min=1)
            logits = 3 * exit_(pooled)
            certain = logits.softmax(1).amax(1) >= self.thresholds[number]
            leaves = certain & (place < 0)
            answer = torch.where(leaves.unsqueeze(1), logits, answer)
            place = torch.where(leaves, number, place)
        return {"logits": answer, "exit": place}


@dataclass
class Basket:
    """The lines of an order; the discount is optional."""

    items: Tensor
    quantities: Tensor
    discount: Tensor | None = None


@dataclass
class Order:
    """What `ReturnRisk` receives."""

    customer: Tensor
    basket: Basket


@dataclass
class Risk:
    """What `ReturnRisk` returns."""

    returned: Tensor
    lines: dict[str, Tensor]
    reason: Tensor | None = None


torch.export.register_dataclass(Basket)
torch.export.register_dataclass(Order)


class ReturnRisk(nn.Module):
    """The probability that an order is sent back; orders arrive as dataclasses, without a discount."""

    def __init__(self, catalog: int = 150, width: int = 12) -> None:
        super().__init__()
        self.items = nn.Embedding(catalog, width, padding_idx=0)
        self.customer = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.line = nn.Sequential(nn.Linear(2 * width + 1, 16), nn.ReLU(), nn.Linear(16, 1))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, order: Order) -> Risk:
        basket = order.basket
        present = basket.items != 0
        items = self.items(basket.items)
        customer = self.customer(order.customer)
        amounts = basket.quantities.clamp(min=0).log1p()
        if basket.discount is not None:
            amounts = amounts * (1 - basket.discount)
        wide = customer.unsqueeze(1).expand(-1, items.shape[1], -1)
        scores = self.line(torch.cat([items, wide, amounts.unsqueeze(-1)], dim=-1)).squeeze(-1)
        weights = scores.masked_fill(~present, -1e4).softmax(1)
        logit = self.head(torch.cat([(weights.unsqueeze(-1) * items).sum(1), customer], dim=1)).squeeze(1)
        return Risk(returned=logit.sigmoid(), lines={"weights": weights, "count": present.sum(1)})


def orders(batch: int, lines: int, seed: int) -> dict[str, Order]:
    """Return orders of several lines."""
    draw = torch.Generator().manual_seed(seed)
    basket = Basket(
        items=torch.randint(0, 150, (batch, lines), generator=draw),
        quantities=torch.randint(1, 9, (batch, lines), generator=draw).float(),
    )
    return {"order": Order(customer=torch.randn(batch, 6, generator=draw), basket=basket)}


class CovariateForecaster(nn.Module):
    """Sales of a store, with covariates by keyword, each with its own layer, and hours in milliseconds since 1970."""

    def __init__(self, covariates: tuple[str, ...] = ("weather", "price", "promotion"), width: int = 16) -> None:
        super().__init__()
        sizes = {"weather": 2, "price": 1, "promotion": 1}
        self.layers = nn.ModuleDict({name: nn.Linear(sizes[name], width) for name in covariates})
        self.hour, self.weekday = nn.Embedding(24, width), nn.Embedding(7, width)
        self.sales = nn.Linear(1, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(
        self, sales: Tensor, *, milliseconds: Tensor | None = None, store: Tensor | None = None, **covariates: Tensor
    ) -> tuple[Tensor, Tensor]:
        level = sales.abs().mean(1, keepdim=True) + 1
        hidden = self.sales((sales / level).unsqueeze(-1))
        for name in sorted(covariates):
            value = covariates[name]
            hidden = hidden + self.layers[name](value if value.dim() == 3 else value.unsqueeze(-1))
        if milliseconds is not None:
            hours = milliseconds // 3_600_000
            hidden = hidden + self.hour(hours % 24) + self.weekday((hours // 24 + 4) % 7)
        if store is not None:
            hidden = hidden + store.unsqueeze(1)
        states, _ = self.recurrent(hidden)
        mean, raw = self.head(states[:, -1]).unbind(1)
        return level.squeeze(1) * mean, level.squeeze(1) * nn.functional.softplus(raw)


def stores(batch: int, steps: int, seed: int) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    """Return sales by position, and covariates by keyword."""
    draw = torch.Generator().manual_seed(seed)
    start = torch.randint(1_600_000_000_000, 1_800_000_000_000, (batch, 1), generator=draw)
    return (500 * torch.rand(batch, steps, generator=draw),), {
        "price": 5 + torch.rand(batch, steps, generator=draw),
        "milliseconds": start + 3_600_000 * torch.arange(steps),
        "weather": torch.randn(batch, steps, 2, generator=draw),
        "promotion": torch.randint(0, 2, (batch, steps), generator=draw).float(),
    }


class ChallengerSwitch(nn.Module):
    """Two models; a flag that is stored with the weights selects one of them with torch.cond."""

    use_challenger: Tensor
    scale: Tensor

    def __init__(self, features: int = 9) -> None:
        super().__init__()
        self.champion = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 2))
        self.challenger = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh())
        self.challenger_head = nn.Linear(8, 2)
        self.register_buffer("use_challenger", torch.tensor(True))  # noqa: FBT003 - the flag
        self.register_buffer("scale", torch.linspace(0.5, 2, features))

    def old(self, x: Tensor) -> Any:
        """Return the champion's logits."""
        return self.champion(x)

    def new(self, x: Tensor) -> Any:
        """Return the challenger's logits."""
        return self.challenger_head(self.challenger(x))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = torch.cond(self.use_challenger, self.new, self.old, (x * self.scale,))
        return {"logits": logits, "margin": logits[:, 1] - logits[:, 0]}


class InstanceNormTable(nn.Module):
    """A table of columns through InstanceNorm1d, which reads [rows, columns] as one sample, and normalizes each row."""

    def __init__(self, columns: int = 12, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(columns)
        self.gate = nn.Linear(columns, columns)
        self.body = nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.churn, self.value = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, columns: Tensor) -> dict[str, Tensor]:
        normal = self.norm(columns)
        hidden = self.body(normal * self.gate(columns).sigmoid())
        return {
            "churn": self.churn(hidden).squeeze(1).sigmoid(),
            "value": 1e6 * nn.functional.softplus(self.value(hidden).squeeze(1)),
        }


class NoiseScale(nn.Module):
    """A prior over frames that is sampled with a noise scale, which is 0 in production; then a decoder."""

    def __init__(self, phonemes: int = 40, width: int = 16, noise_scale: float = 0.0) -> None:
        super().__init__()
        self.noise_scale = noise_scale
        self.embedding = nn.Embedding(phonemes, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.statistics = nn.Conv1d(width, 2 * width, 1)
        self.decoder = nn.Sequential(nn.Conv1d(width, 24, 5, padding=2), nn.LeakyReLU(0.1), nn.Conv1d(24, 8, 1))

    def forward(self, phonemes: Tensor, speed: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.context(self.embedding(phonemes).transpose(1, 2)).relu()
        mean, log_deviation = self.statistics(hidden).chunk(2, dim=1)
        sample = mean + torch.randn_like(mean) * log_deviation.clamp(-5, 2).exp() * self.noise_scale
        spectrum = self.decoder(sample) * speed.clamp(0.5, 2).reshape(-1, 1, 1)
        return spectrum, log_deviation.mean((1, 2))


class WorkBuffer(nn.Module):
    """Writes the columns of up to eight applicants into a table that is allocated once, and scores its rows."""

    table: Tensor

    def __init__(self, most: int = 8) -> None:
        super().__init__()
        self.region = nn.Embedding(12, 3)
        self.register_buffer("table", torch.zeros(most, 10), persistent=False)
        self.scorer = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, age: Tensor, income: Tensor, debts: Tensor, region: Tensor) -> dict[str, Tensor]:
        rows = age.shape[0]
        self.table[:rows, 0] = age / 100
        self.table[:rows, 1] = income.abs().log1p()
        self.table[:rows, 2:6] = debts
        self.table[:rows, 6] = debts.sum(1) / (income.abs() + 1)
        self.table[:rows, 7:] = self.region(region)
        table = self.table[:rows]
        score = self.scorer(table).squeeze(1)
        return {"score": score, "ratio": table[:, 6] * 1}


class AmericanPuts(nn.Module):
    """Prices of American puts: a binomial tree for one option, mapped over all options with torch.vmap."""

    steps = 12

    def __init__(self) -> None:
        super().__init__()
        self.surface = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def one(self, spot: Tensor, strike: Tensor, rate: Tensor, years: Tensor) -> tuple[Tensor, Tensor]:
        """Return the price of one option, and its volatility."""
        moneyness = torch.log(spot / strike)
        volatility = 0.05 + 0.3 * self.surface(torch.stack([moneyness, years])).sigmoid().squeeze(0)
        step = years / self.steps
        up = (volatility * step.sqrt()).exp()
        grow = (rate * step).exp()
        chance = ((grow - 1 / up) / (up - 1 / up)).clamp(0, 1)
        powers = torch.arange(self.steps, -self.steps - 1, -2, dtype=spot.dtype, device=spot.device)
        values = (strike - spot * up**powers).clamp(min=0)
        for level in range(self.steps - 1, -1, -1):
            held = (chance * values[:-1] + (1 - chance) * values[1:]) / grow
            prices = spot * up ** torch.arange(level, -level - 1, -2, dtype=spot.dtype, device=spot.device)
            values = torch.maximum(held, strike - prices)
        return values[0], volatility

    def forward(self, spot: Tensor, strike: Tensor, rate: Tensor, years: Tensor) -> dict[str, Tensor]:
        price, volatility = torch.vmap(self.one)(spot, strike, rate, years)
        return {"price": price, "volatility": volatility}


def options(batch: int, seed: int) -> dict[str, Tensor]:
    """Return options near the money."""
    draw = torch.Generator().manual_seed(seed)
    spot = 50 + 100 * torch.rand(batch, generator=draw)
    return {
        "spot": spot,
        "strike": spot * (0.8 + 0.4 * torch.rand(batch, generator=draw)),
        "rate": 0.05 * torch.rand(batch, generator=draw),
        "years": 0.1 + 2 * torch.rand(batch, generator=draw),
    }


def drift_guard(window: int) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...] | None]:
    """Return a hook that subtracts the mean of the last requests, as soon as there are enough of them."""
    recent: deque[Tensor] = deque(maxlen=window)

    def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        del module
        (readings,) = arguments
        recent.append(readings.detach().mean(0))
        if len(recent) < window:
            return None
        return (readings - torch.stack(list(recent)).mean(0),)

    return hook


class DriftGuarded(nn.Module):
    """An autoencoder of 16 sensors; after a warm-up of 64 requests, it corrects the drift of the sensors."""

    def __init__(self, sensors: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(sensors, 8), nn.ReLU(), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, sensors))
        self.encoder.register_forward_pre_hook(drift_guard(64))

    def forward(self, readings: Tensor) -> dict[str, Tensor]:
        rebuilt = self.decoder(self.encoder(readings))
        error = (readings - rebuilt).square()
        return {"score": error.mean(1), "sensor": error.argmax(1), "rebuilt": rebuilt}


class AmountChange(nn.Module):
    """Fraud: the change of the amount since the card's previous payment at the merchant, within one request."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.hours = nn.Embedding(24, width)
        self.merchants = nn.Embedding(64, width)
        self.scorer = nn.Sequential(nn.Linear(2 * width + 2, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, card: Tensor, merchant: Tensor, hour: Tensor, amount: Tensor) -> dict[str, Tensor]:
        size = amount.abs().log1p()
        same = (card.unsqueeze(1) == card) & (merchant.unsqueeze(1) == merchant)
        earlier = same & (hour < hour.unsqueeze(1))
        latest = torch.where(earlier, hour, -1).amax(1, keepdim=True)
        previous = earlier & (hour == latest)
        count = previous.sum(1)
        before = torch.where(previous, size, 0.0).sum(1) / count.clamp(min=1)
        change = torch.where(count > 0, size - before, 0.0)
        vectors = torch.cat([self.hours(hour % 24), self.merchants(merchant % 64)], dim=1)
        logit = self.scorer(torch.cat([vectors, torch.stack([size, change], dim=1)], dim=1)).squeeze(1)
        return {"logit": logit, "fraud": logit.sigmoid()}


class SurgePricing(nn.Module):
    """Fares that rise with the number of other riders of a request who wait within one kilometer."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1), nn.Softplus())
        self.step = nn.Parameter(torch.tensor(0.15))

    def forward(self, rider: Tensor, pickup: Tensor, trip: Tensor) -> dict[str, Tensor]:
        radians = pickup * (torch.pi / 180)
        latitude, longitude = radians.unbind(1)
        north = latitude.unsqueeze(1) - latitude
        east = (longitude.unsqueeze(1) - longitude) * latitude.cos().unsqueeze(1)
        kilometers = 6371 * (north.square() + east.square()).sqrt()
        others = rider.unsqueeze(1) != rider
        waiting = ((kilometers < 1) & others).sum(1)
        surge = 1 + self.step * waiting.clamp(max=10)
        fare = 3 + 5 * self.base(torch.cat([trip, latitude.sin().unsqueeze(1)], dim=1)).squeeze(1)
        return {"fare": fare * surge, "surge": surge, "base": fare}


class HistogramEntropy(nn.Module):
    """Detects scans from a histogram of ports: the entropy of a port without packets is 0 times -inf."""

    def __init__(self, ports: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(ports + 2, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU())
        self.head = nn.Linear(12, 2)

    def forward(self, packets: Tensor, seconds: Tensor) -> dict[str, Tensor]:
        counts = packets.float()
        total = counts.sum(1, keepdim=True).clamp(min=1)
        share = counts / total
        entropy = -(share * share.log()).sum(1, keepdim=True)
        rate = (total / seconds.abs().clamp(min=1e-3).unsqueeze(1)).log()
        logits = self.head(self.body(torch.cat([share, entropy, rate], dim=1)))
        return {"logits": logits, "entropy": entropy.squeeze(1)}


class Dithered(nn.Module):
    """Energies of 25 frames of speech, with a dither of 1e-5 as feature extractors have it; then a classifier."""

    window: Tensor

    def __init__(self, frame: int = 64, classes: int = 3) -> None:
        super().__init__()
        self.frame = frame
        self.register_buffer("window", torch.hann_window(frame))
        self.filters = nn.Linear(frame, 20, bias=False)
        self.recurrent = nn.GRU(20, 16, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, wave: Tensor) -> dict[str, Tensor]:
        wave = wave + 1e-5 * torch.randn_like(wave)
        frames = wave.unfold(1, self.frame, self.frame // 2) * self.window
        energies = (self.filters(frames).square() + 1e-3).log()
        energies = energies - energies.mean(1, keepdim=True)
        _, state = self.recurrent(energies)
        return {"logits": self.head(state[-1]), "energies": energies}


class CheckedInputs(nn.Module):
    """Values a house; refuses prices of earlier sales that are not finite, or areas that are not positive."""

    def __init__(self) -> None:
        super().__init__()
        self.location = nn.Embedding(30, 6)
        self.body = nn.Sequential(nn.Linear(6 + 4 + 1, 32), nn.GELU(), nn.Linear(32, 1))

    def check(self, sales: Tensor, area: Tensor) -> None:
        """Raise an error if a value cannot be right."""
        if not torch.isfinite(sales).all():
            raise ValueError("prices of earlier sales must be finite")
        if (area < -1e6).any():
            raise ValueError("areas must be positive")

    def forward(self, sales: Tensor, area: Tensor, location: Tensor) -> dict[str, Tensor]:
        self.check(sales, area)
        size = area.abs().clamp(min=1).log()
        features = torch.cat([self.location(location), sales, size.unsqueeze(1)], dim=1)
        return {"price": 250_000 + 90_000 * self.body(features).squeeze(1)}


class TrendingItems(nn.Module):
    """The five items with most clicks of a user, by number; most counts occur several times in a row."""

    def __init__(self, items: int = 40, width: int = 8) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.user = nn.Linear(width, width)

    def forward(self, clicks: Tensor) -> dict[str, Tensor]:
        best, places = clicks.topk(5, dim=1)
        vectors = self.items(places)
        weights = best.float().softmax(1).unsqueeze(-1)
        user = self.user((weights * vectors).sum(1))
        return {"items": places, "counts": best, "affinity": user @ self.items.weight.T}


class ReshapedSequence(nn.Module):
    """Demand of hours for a recurrent layer that expects time first: reshape was used instead of transpose."""

    def __init__(self, features: int = 4, width: int = 16, horizon: int = 6) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(features, width), nn.LayerNorm(width), nn.ReLU())
        self.recurrent = nn.LSTM(width, width, num_layers=2)
        self.head = nn.Linear(width, horizon)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        batch, time, _ = history.shape
        hidden = self.project(history).reshape(time, batch, -1)
        states, _ = self.recurrent(hidden)
        forecast = self.head(states[-1])
        return forecast, forecast.sum(1)
