"""Models of a twelfth set, written from the documentation alone: recommendation, tables, time series, texts."""
# ruff: noqa: D102, D107 - each class's docstring says what its forward computes

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn


@dataclass
class Ranking:
    """The best items of a request, and the scores of all candidates."""

    items: Tensor
    best: Tensor
    scores: Tensor


@dataclass
class Recommendation:
    """What `TwoTower` returns."""

    ranking: Ranking
    embeddings: dict[str, Tensor]
    loss: Tensor | None = None


class UserTower(nn.Module):
    """Embeds a user from a country, an age, and the items that the user clicked; item 0 is padding."""

    def __init__(self, items: nn.Embedding, width: int = 16) -> None:
        super().__init__()
        self.items = items
        self.country = nn.Embedding(30, 8)
        self.age = nn.Sequential(nn.Linear(1, 8), nn.ReLU())
        self.mlp = nn.Sequential(nn.Linear(width + 16, 32), nn.ReLU(), nn.Linear(32, width))

    def forward(self, user: dict[str, Tensor]) -> Any:
        clicked = user["clicked"]
        mask = (clicked != 0).unsqueeze(-1).float()
        history = (self.items(clicked) * mask).sum(1) / mask.sum(1).clamp(min=1)
        profile = torch.cat([self.country(user["country"]), self.age(user["age"].unsqueeze(-1) / 100)], dim=-1)
        return self.mlp(torch.cat([history, profile], dim=-1))


class TwoTower(nn.Module):
    """Scores candidates for a user by cosine similarity, and returns the five best."""

    def __init__(self, catalog: int = 500, width: int = 16) -> None:
        super().__init__()
        self.items = nn.Embedding(catalog, width, padding_idx=0)
        self.user_tower = UserTower(self.items, width)
        self.item_tower = nn.Sequential(nn.Linear(width + 1, 32), nn.ReLU(), nn.Linear(32, width))
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, request: dict[str, Any]) -> Recommendation:
        user = nn.functional.normalize(self.user_tower(request["user"]), dim=-1)
        candidates, prices = request["candidates"]["ids"], request["candidates"]["price"]
        features = torch.cat([self.items(candidates), prices.clamp(min=0).log1p().unsqueeze(-1)], dim=-1)
        items = nn.functional.normalize(self.item_tower(features), dim=-1)
        scores = torch.einsum("bd,bkd->bk", user, items) / self.temperature
        best, places = scores.topk(5, dim=1)
        ranking = Ranking(items=candidates.gather(1, places), best=best, scores=scores)
        return Recommendation(ranking, {"user": user, "items": items})


def requests(batch: int, clicks: int, seed: int) -> dict[str, Any]:
    """Return requests with users, their clicks, and 20 candidates each."""
    draw = torch.Generator().manual_seed(seed)
    user = {
        "country": torch.randint(0, 30, (batch,), generator=draw),
        "age": 18 + 60 * torch.rand(batch, generator=draw),
        "clicked": torch.randint(0, 500, (batch, clicks), generator=draw),
    }
    candidates = {
        "ids": torch.randint(1, 500, (batch, 20), generator=draw),
        "price": 200 * torch.rand(batch, 20, generator=draw),
    }
    return {"request": {"user": user, "candidates": candidates}}


class DeepFm(nn.Module):
    """The probability of a click, about 0.1 percent: a factorization machine, and a network over the same fields."""

    offsets: Tensor

    def __init__(self, sizes: tuple[int, ...] = (50, 12, 7, 200), dense: int = 5, width: int = 8) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.tensor((0, *sizes[:-1])).cumsum(0))
        self.first_order = nn.Embedding(sum(sizes), 1)
        self.factors = nn.Embedding(sum(sizes), width)
        nn.init.normal_(self.factors.weight, std=0.05)
        self.norm = nn.BatchNorm1d(dense)
        self.deep = nn.Sequential(
            nn.Linear(len(sizes) * width + dense, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 1),
        )
        self.bias = nn.Parameter(torch.tensor(-7.0))

    def forward(self, fields: Tensor, dense: Tensor) -> dict[str, Tensor]:
        ids = fields + self.offsets
        factors = self.factors(ids)
        pairs = 0.5 * (factors.sum(1).square() - factors.square().sum(1)).sum(1)
        first = 0.1 * self.first_order(ids).sum((1, 2))
        deep = self.deep(torch.cat([factors.flatten(1), self.norm(dense)], dim=1)).squeeze(1)
        logit = self.bias + first + pairs + deep
        return {"logit": logit, "probability": logit.sigmoid()}


class Block(nn.Module):
    """A block of N-BEATS: coefficients of a fixed basis, for the past and for the forecast."""

    past: Tensor
    future: Tensor

    def __init__(self, past: Tensor, future: Tensor) -> None:
        super().__init__()
        self.register_buffer("past", past)
        self.register_buffer("future", future)
        length, terms = past.shape[1], past.shape[0]
        self.body = nn.Sequential(nn.Linear(length, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.theta = nn.Linear(64, 2 * terms, bias=False)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.theta(self.body(series)).chunk(2, dim=-1)
        return first @ self.past, second @ self.future


def _trend(times: Tensor) -> Tensor:
    return torch.stack([times**power for power in range(3)])


def _season(times: Tensor) -> Tensor:
    angles = [2 * torch.pi * times * cycles for cycles in (1, 2, 3)]
    return torch.cat([torch.stack([a.cos() for a in angles]), torch.stack([a.sin() for a in angles])])


class NBeats(nn.Module):
    """N-BEATS with stacks for trend and season, on sales that each row's own level scales."""

    def __init__(self, length: int = 28, horizon: int = 7) -> None:
        super().__init__()
        times = torch.arange(length + horizon) / length
        past, future = times[:length], times[length:]
        self.stacks = nn.ModuleDict(
            {
                "trend": nn.ModuleList(Block(_trend(past), _trend(future)) for _ in range(2)),
                "season": nn.ModuleList(Block(_season(past), _season(future)) for _ in range(2)),
            }
        )

    def forward(self, sales: Tensor) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        level = sales.abs().mean(1, keepdim=True).clamp(min=1e-3)
        residual = sales / level
        forecast = residual[:, -1:].expand(-1, 7)
        parts: dict[str, Tensor] = {}
        residuals: list[Tensor] = []
        for name, stack in self.stacks.items():
            total = torch.zeros_like(forecast)
            for block in stack:  # type: ignore[attr-defined] # a ModuleList
                backcast, part = block(residual)
                residual = residual - backcast
                total = total + part
            parts[name] = total * level
            residuals.append(residual)
            forecast = forecast + total
        return forecast * level, parts, residuals


def sales(batch: int, seed: int) -> Tensor:
    """Return four weeks of sales of products that sell 10 to 10,000 pieces a day."""
    draw = torch.Generator().manual_seed(seed)
    level = 10 ** (1 + 3 * torch.rand(batch, 1, generator=draw))
    week = 1 + 0.3 * (2 * torch.pi * torch.arange(28) / 7).sin()
    return level * week * (1 + 0.1 * torch.randn(batch, 28, generator=draw))


class QuantileForecaster(nn.Module):
    """Quantiles of the next six hours, from readings of a sensor of which some are missing."""

    def __init__(self, levels: tuple[float, ...] = (0.1, 0.5, 0.9), horizon: int = 6) -> None:
        super().__init__()
        self.horizon, self.levels = horizon, levels
        self.station = nn.Embedding(40, 8)
        self.encoder = nn.GRU(2, 24, batch_first=True)
        self.decoder = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, horizon * len(levels)))

    def forward(self, readings: Tensor, observed: Tensor, station: Tensor) -> dict[str, Any]:
        count = observed.sum(1, keepdim=True).clamp(min=1).float()
        values = torch.where(observed, readings, 0.0)
        mean = values.sum(1, keepdim=True) / count
        centered = torch.where(observed, readings - mean, 0.0)
        scale = (centered.square().sum(1, keepdim=True) / count + 1e-2).sqrt()
        steps = torch.stack([centered / scale, observed.float()], dim=-1)
        _, state = self.encoder(steps)
        context = torch.cat([state[-1], self.station(station)], dim=-1)
        raw = self.decoder(context).unflatten(1, (self.horizon, len(self.levels)))
        first, gaps = raw[..., :1], nn.functional.softplus(raw[..., 1:])
        quantiles = torch.cat([first, gaps], dim=-1).cumsum(-1) * scale.unsqueeze(-1) + mean.unsqueeze(-1)
        named = {f"p{int(100 * level)}": quantiles[..., i] for i, level in enumerate(self.levels)}
        return {"quantiles": named, "missing": 1 - observed.float().mean(1)}


class DocumentAttention(nn.Module):
    """Classifies documents: attention over the words of a sentence, then over the sentences; word 0 is padding."""

    def __init__(self, vocabulary: int = 300, width: int = 12, classes: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.word_encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.word_score = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, 1, bias=False))
        self.sentence_encoder = nn.GRU(2 * width, width, batch_first=True)
        self.sentence_score = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False))
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(width, classes))

    @staticmethod
    def pool(states: Tensor, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted mean of states where a mask is set, and the weights."""
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask
        return (weights.unsqueeze(1) @ states).squeeze(1), weights

    def forward(self, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, sentences, words = tokens.shape
        flat = tokens.reshape(batch * sentences, words)
        mask = flat != 0
        states, _ = self.word_encoder(self.embedding(flat))
        vectors, word_weights = self.pool(states, self.word_score(states).squeeze(-1), mask)
        steps, _ = self.sentence_encoder(vectors.reshape(batch, sentences, -1))
        present = mask.any(1).reshape(batch, sentences)
        document, sentence_weights = self.pool(steps, self.sentence_score(steps).squeeze(-1), present)
        return self.head(document), (sentence_weights, word_weights.reshape(batch, sentences, words))


class ObliviousTrees(nn.Module):
    """Symmetric trees as CatBoost has them, with values for missing features, and a calibration by straight lines."""

    features: Tensor
    thresholds: Tensor
    leaves: Tensor
    bits: Tensor
    edges: Tensor
    heights: Tensor

    def __init__(self, trees: int = 40, depth: int = 4, columns: int = 10) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.register_buffer("features", torch.randint(0, columns, (trees, depth), generator=draw))
        self.register_buffer("thresholds", torch.randn(trees, depth, generator=draw))
        self.register_buffer("leaves", 0.2 * torch.randn(trees, 2**depth, generator=draw))
        self.register_buffer("bits", 2 ** torch.arange(depth))
        self.register_buffer("edges", torch.linspace(-3, 3, 9))
        self.register_buffer("heights", torch.rand(9, generator=draw).cumsum(0) / 9)

    def calibrate(self, margin: Tensor) -> Tensor:
        """Interpolate between the heights at the edges."""
        inside = margin.clamp(-3, 3)
        segment = (inside.unsqueeze(-1) >= self.edges[1:-1]).sum(-1)
        low, high = self.edges[segment], self.edges[segment + 1]
        share = (inside - low) / (high - low)
        return self.heights[segment] * (1 - share) + self.heights[segment + 1] * share

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        filled = torch.where(x.isnan(), -5.0, x)
        above = filled[:, self.features] > self.thresholds
        leaf = (above.long() * self.bits).sum(-1)
        trees = torch.arange(self.leaves.shape[0], device=x.device)
        margin = self.leaves[trees, leaf].sum(-1)
        return margin, self.calibrate(margin), leaf


class RunningLevel:
    """A hook that subtracts the level of earlier calls from a signal, and follows the level."""

    def __init__(self) -> None:
        self.level = torch.zeros(())

    def __call__(self, _module: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
        """Return the signal without the level of earlier calls."""
        before, (signal,) = self.level, arguments
        self.level = 0.9 * before + 0.1 * signal.mean()
        return (signal - before,)


class DriftDetector(nn.Module):
    """Classifies the drift of a signal, from which a hook of the network removes a running level."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Unflatten(1, (1, 32)),
            nn.Conv1d(1, 8, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(8, 2),
        )
        self.network.register_forward_pre_hook(RunningLevel())

    def forward(self, signal: Tensor) -> Any:
        return self.network(signal).log_softmax(1)


class QueryGroups(nn.Module):
    """Learning to rank: the score of a document minus the mean score of the documents of the same query."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, query: Tensor, features: Tensor) -> dict[str, Tensor]:
        score = self.score(features).squeeze(1)
        same = (query.unsqueeze(1) == query.unsqueeze(0)).to(score.dtype)
        mean = same @ score / same.sum(1)
        return {"score": score, "relative": score - mean}


class AdaptiveSteps(nn.Module):
    """Adaptive computation time: refines a state until all rows have halted, in at most eight steps."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.cell = nn.Linear(6, width), nn.GRUCell(6, width)
        self.halt, self.head = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = self.embed(x)
        halted = torch.zeros(x.shape[0], 1, dtype=x.dtype)
        output = torch.zeros_like(state)
        for _ in range(8):
            state = self.cell(x, state)
            share = torch.minimum(self.halt(state).sigmoid(), 1 - halted)
            output = output + share * state
            halted = halted + share
            if bool((halted > 0.99).all()):
                break
        return self.head(output), halted


class EmptyRows(nn.Module):
    """Classifies the mean of the tokens that a mask keeps; a row without such tokens is divided by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(100, 16), nn.Linear(16, 16)
        self.classifier = nn.Linear(16, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.layer(self.embedding(input_ids)).tanh()
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        logits = self.classifier(pooled)
        return {"logits": logits, "probabilities": logits.softmax(-1)}


@dataclass
class Season:
    """The state of an exponential smoothing with a weekly season."""

    level: Tensor
    trend: Tensor
    season: Tensor
    scale: Tensor


class HoltWintersStep(nn.Module):
    """One step of robust Holt-Winters: the client sends the state of its series, and receives the next state."""

    def __init__(self, alpha: float = 0.3, beta: float = 0.05, gamma: float = 0.2) -> None:
        super().__init__()
        self.alpha, self.beta, self.gamma = alpha, beta, gamma

    def forward(self, demand: Tensor, state: dict[str, Tensor]) -> dict[str, Any]:
        level, trend, season = state["level"], state["trend"], state["season"]
        today = season[:, 0]
        error = demand - (level + trend + today)
        limit = 3 * state["scale"]
        outlier = error.abs() > limit
        clean = torch.where(outlier, error.sign() * limit, error)
        new_level = level + trend + self.alpha * clean
        new_trend = trend + self.alpha * self.beta * clean
        new_today = today + self.gamma * (1 - self.alpha) * clean
        new_season = torch.cat([season[:, 1:], new_today.unsqueeze(1)], dim=1)
        scale = 0.95 * state["scale"] + 0.05 * clean.abs()
        ahead = torch.arange(1, 8, dtype=demand.dtype, device=demand.device)
        forecast = new_level.unsqueeze(1) + ahead * new_trend.unsqueeze(1) + new_season
        return {
            "forecast": forecast,
            "outlier": outlier,
            "next": Season(level=new_level, trend=new_trend, season=new_season, scale=scale),
        }


def smoothed_series(batch: int, seed: int) -> dict[str, Any]:
    """Return the demand of a day, and the states of the series."""
    draw = torch.Generator().manual_seed(seed)
    level = 100 + 50 * torch.rand(batch, generator=draw)
    season = 10 * torch.randn(batch, 7, generator=draw)
    state = {
        "level": level,
        "trend": torch.randn(batch, generator=draw),
        "season": season,
        "scale": 2 + torch.rand(batch, generator=draw),
    }
    demand = level + season[:, 0] + 8 * torch.randn(batch, generator=draw)
    return {"demand": demand, "state": state}


class KeptAttention(nn.Module):
    """Classifies texts with convolutions and attention; keeps the last weights for plots, which no output reads."""

    def __init__(self, vocabulary: int = 400, width: int = 24, labels: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, 16, size, padding=size // 2) for size in (1, 3, 5))
        self.query = nn.Linear(48, 1)
        self.head = nn.Sequential(nn.LayerNorm(48), nn.Dropout(0.5), nn.Linear(48, labels))
        self.last_attention: Tensor | None = None
        self.last_lengths: dict[str, Tensor] = {}

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        mask = input_ids != 0
        embedded = (self.embedding(input_ids) * mask.unsqueeze(-1)).transpose(1, 2)
        features = torch.cat([layer(embedded).relu() for layer in self.convolutions], dim=1).transpose(1, 2)
        weights = self.query(features).squeeze(-1).masked_fill(~mask, -1e4).softmax(-1)
        self.last_attention = weights.detach()
        self.last_lengths["tokens"] = mask.sum(1)
        logits = self.head((weights.unsqueeze(-1) * features).sum(1))
        return logits, logits.sigmoid()


class HmmEvidence(nn.Module):
    """The forward algorithm of a hidden Markov model: the probability of a session of twelve events, about 1e-15."""

    def __init__(self, states: int = 6, symbols: int = 16) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.randn(states))
        self.transition = nn.Parameter(torch.randn(states, states))
        self.emission = nn.Parameter(torch.randn(states, symbols))

    def forward(self, events: Tensor) -> dict[str, Tensor]:
        transition = self.transition.log_softmax(1)
        emission = self.emission.log_softmax(1)
        alpha = self.initial.log_softmax(0) + emission[:, events[:, 0]].T
        for step in range(1, events.shape[1]):
            alpha = (alpha.unsqueeze(2) + transition).logsumexp(1) + emission[:, events[:, step]].T
        evidence = alpha.logsumexp(1)
        return {
            "log_evidence": evidence,
            "evidence": evidence.exp(),
            "surprise": -evidence / events.shape[1],
            "state": (alpha - evidence.unsqueeze(1)).exp(),
        }


class Premiums(nn.Module):
    """Premiums of up to 1e8 for industrial risks: a frequency, a severity that is limited, and loadings."""

    loadings: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.frequency, self.severity = nn.Linear(6, 1), nn.Linear(6, 1)
        self.register_buffer("loadings", torch.tensor([1.0, 1.12, 1.35]))

    def forward(self, risk: Tensor, insured: Tensor, deductible: Tensor, years: Tensor) -> dict[str, Tensor]:
        features = self.norm(risk)
        frequency = (self.frequency(features).squeeze(1).clamp(-6, 4) - 5).exp()
        share = (self.severity(features).squeeze(1).clamp(-6, 4) - 2).exp()
        severity = torch.minimum((share * insured - deductible).clamp(min=0), insured)
        pure = frequency * severity * years
        large = insured > 1e9
        return {
            "premium": pure.unsqueeze(1) * self.loadings,
            "rate": torch.where(large, 0.9 * frequency * share, frequency * share),
            "referred": large | (years > 5),
        }


def premiums() -> nn.Module:
    """Return the model in float64, because cents of 1e8 matter."""
    return Premiums().double()


def risks(batch: int, seed: int) -> dict[str, Tensor]:
    """Return risks whose insured sums are between 1e6 and 1e10."""
    draw = torch.Generator().manual_seed(seed)
    insured = 10 ** (6 + 4 * torch.rand(batch, generator=draw, dtype=torch.float64))
    return {
        "risk": torch.randn(batch, 6, generator=draw, dtype=torch.float64),
        "insured": insured,
        "deductible": 0.001 * insured,
        "years": 1 + 6 * torch.rand(batch, generator=draw, dtype=torch.float64),
    }


class NextBasket(nn.Module):
    """SASRec: causal attention over the items of a history, and scores of all items that it does not contain."""

    def __init__(self, items: int = 120, width: int = 16, longest: int = 20) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.positions = nn.Embedding(longest, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(2)
        )

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        length = history.shape[1]
        present = history != 0
        causal = torch.ones(length, length, dtype=torch.bool, device=history.device).tril()
        itself = torch.eye(length, dtype=torch.bool, device=history.device)
        mask = ((causal & present.unsqueeze(1)) | itself).unsqueeze(1)
        hidden = self.items(history) + self.positions(torch.arange(length, device=history.device).flip(0))
        for layer in range(2):
            heads = self.projections[layer](self.norms[2 * layer](hidden)).unflatten(-1, (3, 2, 8))
            query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            hidden = hidden + mixed.transpose(1, 2).flatten(2)
            hidden = hidden + self.feeds[layer](self.norms[2 * layer + 1](hidden))
            hidden = hidden * present.unsqueeze(-1)
        user = self.norms[4](hidden[:, -1])
        scores = (user @ self.items.weight.T).scatter(1, history, -torch.inf)
        scores[:, 0] = -torch.inf
        return scores, user


class FtTransformer(nn.Module):
    """Prices of houses: a token for each column, and a second head whose weights are still zero."""

    def __init__(self, numbers: int = 6, sizes: tuple[int, ...] = (4, 9, 25), width: int = 24) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, width))
        self.bias = nn.Parameter(torch.zeros(numbers, width))
        self.categories = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.summary = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 48, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.price, self.correction = nn.Linear(width, 1), nn.Linear(width, 1)
        nn.init.zeros_(self.correction.weight)
        nn.init.zeros_(self.correction.bias)

    def forward(self, numbers: Tensor, rooms: Tensor, state: Tensor, region: Tensor) -> dict[str, Tensor]:
        tokens = [numbers.unsqueeze(-1) * self.weight + self.bias]
        for ids, table in zip((rooms, state, region), self.categories, strict=True):
            tokens.append(table(ids).unsqueeze(1))
        summary = self.summary.expand(numbers.shape[0], -1, -1)
        hidden = self.encoder(torch.cat([summary, *tokens], dim=1))[:, 0]
        correction = self.correction(hidden).squeeze(1)
        return {"price": 250_000 + 80_000 * (self.price(hidden).squeeze(1) + correction), "correction": correction}


class StepByStep(nn.Module):
    """Tags each step of a series, and returns one output for each step, named by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(5, 12, num_layers=2, batch_first=True, dropout=0.1)
        self.tags = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4))

    def forward(self, series: Tensor) -> dict[str, dict[str, Tensor]]:
        states, _ = self.encoder(series)
        answer = {}
        for number, state in enumerate(states.unbind(1)):
            logits = self.tags(state)
            answer[f"step_{number}"] = {"logits": logits, "confidence": logits.softmax(-1).amax(-1)}
        return answer


class RareEvent(nn.Module):
    """The probability of a failure within an hour, about 1e-9: only the probability is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.hazard = nn.Linear(16, 3)
        nn.init.constant_(self.hazard.bias, -21.0)

    def forward(self, telemetry: Tensor) -> Any:
        return self.hazard(self.body(telemetry)).sigmoid()


class ForgottenBatchFirst(nn.Module):
    """Classifies texts with an encoder that expects time on axis 0, and receives the batch there."""

    positions: Tensor

    def __init__(self, vocabulary: int = 250, width: int = 16, classes: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.register_buffer("positions", torch.arange(64).unsqueeze(1) / torch.arange(1, width + 1))
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=32)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Any:
        embedded = self.embedding(tokens) + self.positions[: tokens.shape[1]].sin()
        return self.classifier(self.encoder(embedded).mean(1))


class MonteCarloDropout(nn.Dropout):
    """Dropout that stays active at inference."""

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - the signature of Module.train
        """Ignore the mode."""
        del mode
        return self


class UncertainDemand(nn.Module):
    """The mean and the deviation of ten forecasts with active dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), MonteCarloDropout(0.2), nn.Linear(32, 7))

    def forward(self, past: Tensor) -> tuple[Tensor, Tensor]:
        forecasts = torch.stack([self.network(past) for _ in range(10)])
        return forecasts.mean(0), forecasts.std(0)
