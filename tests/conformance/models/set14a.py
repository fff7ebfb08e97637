"""Models of a fourteenth set, written from the documentation alone: scales, branches, containers, state, graphs."""
# ruff: noqa: D102, D107 - each class's docstring says what its forward computes

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn


class ReactionRates(nn.Module):
    """Arrhenius rates of six reactions, from 1e-30 to 1e14 in one tensor, with a learned correction."""

    factor: Tensor
    exponent: Tensor
    energy: Tensor

    def __init__(self, species: int = 5) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor([31.0, 28.5, 22.0, 14.0, 6.0, -3.0]))
        self.register_buffer("exponent", torch.tensor([0.0, 0.5, -1.0, 1.5, 0.0, 2.0]))
        self.register_buffer("energy", torch.tensor([2.5e5, 1.8e5, 9.0e4, 6.0e4, 2.0e5, 1.2e4]))
        self.correction = nn.Sequential(nn.Linear(species, 16), nn.Tanh(), nn.Linear(16, 6), nn.Tanh())

    def forward(self, kelvin: Tensor, composition: Tensor) -> dict[str, Tensor]:
        kelvin = kelvin.clamp(min=300).unsqueeze(1)
        log_rate = self.factor + self.exponent * (kelvin / 298).log() - self.energy / (8.314 * kelvin)
        log_rate = log_rate + 0.1 * self.correction(composition)
        return {"rate": log_rate.exp(), "log_rate": log_rate}


def flames(batch: int, seed: int) -> dict[str, Tensor]:
    """Return temperatures of 500 to 2500 K, and compositions."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "kelvin": 500 + 2000 * torch.rand(batch, generator=draw),
        "composition": torch.rand(batch, 5, generator=draw).softmax(1),
    }


class MoleculeGraph(nn.Module):
    """Message passing on padded molecules with matrices of bonds: an energy, and charges that add up to zero."""

    def __init__(self, elements: int = 10, kinds: int = 5, width: int = 16) -> None:
        super().__init__()
        self.atom = nn.Embedding(elements, width, padding_idx=0)
        self.bond = nn.Embedding(kinds, width)
        self.send = nn.Linear(width, width)
        self.update = nn.GRUCell(width, width)
        self.energy, self.charge = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, atoms: Tensor, bonds: Tensor) -> tuple[Tensor, Tensor]:
        batch, count = atoms.shape
        present = (atoms != 0).float()
        bonds = torch.maximum(bonds, bonds.transpose(1, 2))
        pairs = ((bonds != 0) * present.unsqueeze(1) * present.unsqueeze(2)).unsqueeze(-1)
        gates = self.bond(bonds).sigmoid() * pairs
        hidden = self.atom(atoms)
        for _ in range(3):
            messages = (gates * self.send(hidden).unsqueeze(1)).sum(2)
            hidden = self.update(messages.flatten(0, 1), hidden.flatten(0, 1)).reshape(batch, count, -1)
        energy = (self.energy(hidden).squeeze(-1) * present).sum(1)
        charge = self.charge(hidden).squeeze(-1) * present
        excess = charge.sum(1, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)
        return energy, (charge - excess) * present


class ImputeWhenMissing(nn.Module):
    """A table whose gaps are filled with fitted means, in a branch of torch.cond that runs only if there are gaps."""

    means: Tensor

    def __init__(self, columns: int = 10, width: int = 24) -> None:
        super().__init__()
        self.register_buffer("means", torch.linspace(-1, 1, columns))
        self.body = nn.Sequential(nn.Linear(2 * columns, width), nn.ReLU(), nn.Linear(width, 3))

    @staticmethod
    def fill(x: Tensor, means: Tensor) -> Tensor:
        """Return the table without gaps."""
        return torch.where(x.isnan(), means, x)

    @staticmethod
    def keep(x: Tensor, means: Tensor) -> Tensor:
        """Return the table as it is."""
        del means
        return x.clone()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        missing = x.isnan()
        filled = torch.cond(missing.any(), self.fill, self.keep, (x, self.means))
        logits = self.body(torch.cat([filled, missing.float()], dim=1))
        return {"logits": logits, "missing": missing.sum(1)}


class DecodeWithCache(nn.Module):
    """Continues a prompt by five tokens; each call starts with an empty cache of keys, and leaves the cache behind."""

    def __init__(self, vocabulary: int = 30, width: int = 16, prompt: int = 6, steps: int = 5) -> None:
        super().__init__()
        self.steps = steps
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.5 * torch.randn(prompt + steps, width))
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary)
        self.cache: list[tuple[Tensor, Tensor]] = []

    def step(self, token: Tensor, position: int) -> Any:
        """Return log-probabilities of the next token."""
        hidden = self.tokens(token) + self.positions[position]
        self.cache.append((self.key(hidden), self.value(hidden)))
        keys = torch.stack([key for key, _ in self.cache], dim=1)
        values = torch.stack([value for _, value in self.cache], dim=1)
        weights = (keys @ self.query(hidden).unsqueeze(-1) / math.sqrt(hidden.shape[-1])).softmax(1)
        return self.head((weights * values).sum(1) + hidden).log_softmax(-1)

    def forward(self, prompt: Tensor) -> dict[str, Tensor]:
        self.cache = []
        for position in range(prompt.shape[1]):
            scores = self.step(prompt[:, position], position)
        chosen: list[Tensor] = []
        total: Any = 0
        for number in range(self.steps):
            best = scores.max(-1)
            total = total + best.values
            chosen.append(best.indices)
            if number + 1 < self.steps:
                scores = self.step(best.indices, prompt.shape[1] + number)
        return {"tokens": torch.stack(chosen, dim=1), "log_probability": total}


@functools.cache
def sinusoid(length: int, width: int) -> Tensor:
    """Return positions as sines and cosines; each length is computed once in a process."""
    angles = torch.arange(length).unsqueeze(1) * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class CachedPositions(nn.Module):
    """A classifier of events of a session; functools.cache keeps the table of positions of each length."""

    def __init__(self, events: int = 50, width: int = 16) -> None:
        super().__init__()
        self.events = nn.Embedding(events, width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu")
        self.head = nn.Linear(width, 4)

    def forward(self, events: Tensor) -> Any:
        hidden = self.events(events) + sinusoid(events.shape[1], self.events.embedding_dim)
        return self.head(self.encoder(hidden).mean(1))


class BoundedEmbedding(nn.Module):
    """A recommender whose embeddings have max_norm: a lookup shortens the vectors that it reads, and returns those."""

    def __init__(self, users: int = 80, items: int = 120, width: int = 8) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width, max_norm=1.0)
        self.items = nn.Embedding(items, width, max_norm=1.0)
        self.deep = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user: Tensor, item: Tensor) -> dict[str, Tensor]:
        left, right = self.users(user), self.items(item)
        rating = 3 + (left * right).sum(1) + self.deep(torch.cat([left, right], dim=1)).squeeze(1)
        return {"rating": rating, "taste": left}


class DeduplicatedItems(nn.Module):
    """Computes the tower of each distinct item of a request once, and gathers the vectors for each history."""

    def __init__(self, items: int = 200, width: int = 12) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.tower = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width))
        self.target = nn.Embedding(items, width)

    def forward(self, history: Tensor, target: Tensor) -> dict[str, Tensor]:
        distinct, places = torch.unique(history, return_inverse=True)
        vectors = self.tower(self.items(distinct))[places]
        query = self.target(target).unsqueeze(1)
        weights = (vectors * query).sum(-1).softmax(1)
        interest = (weights.unsqueeze(-1) * vectors).sum(1)
        return {"score": (interest * query.squeeze(1)).sum(1), "interest": interest}


class EventList(nn.Module):
    """Scores a list of three events, which are dicts with different keys; the profile is optional, and is not sent."""

    def __init__(self, kinds: int = 12, width: int = 10) -> None:
        super().__init__()
        self.kinds = nn.Embedding(kinds, width)
        self.amount, self.text = nn.Linear(1, width), nn.Linear(6, width)
        self.profile = nn.Linear(4, width)
        self.weight, self.head = nn.Linear(width, 1), nn.Linear(width, 2)

    def forward(self, events: list[dict[str, Tensor]], profile: Tensor | None = None) -> dict[str, object]:
        vectors = []
        for event in events:
            vector = self.kinds(event["kind"])
            if (amount := event.get("amount")) is not None:
                vector = vector + self.amount(amount.unsqueeze(-1))
            if "text" in event:
                vector = vector + self.text(event["text"])
            vectors.append(vector.tanh())
        stacked = torch.stack(vectors, dim=1)
        weights = self.weight(stacked).softmax(1)
        summary = (weights * stacked).sum(1)
        if profile is not None:
            summary = summary + self.profile(profile)
        parts = [{"vector": vector, "weight": weights[:, number, 0]} for number, vector in enumerate(vectors)]
        return {"logits": self.head(summary), "parts": parts}


def sessions(batch: int, seed: int) -> dict[str, list[dict[str, Tensor]]]:
    """Return three events for each row."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 12, (3, batch), generator=draw)
    amounts = torch.rand(2, batch, generator=draw)
    return {
        "events": [
            {"kind": kinds[0].clone(), "amount": amounts[0].clone()},
            {"kind": kinds[1].clone(), "text": torch.randn(batch, 6, generator=draw)},
            {"kind": kinds[2].clone(), "amount": amounts[1].clone()},
        ]
    }


class MacroForecast(nn.Module):
    """An economy in float64: a product of 1e13, an interest rate of 0.02 and a population of 1e8."""

    def __init__(self, quarters: int = 12, width: int = 16) -> None:
        super().__init__()
        self.growth = nn.Sequential(nn.Linear(3 * (quarters - 1), width), nn.Tanh(), nn.Linear(width, 3), nn.Tanh())
        self.double()

    def forward(self, history: Tensor) -> dict[str, Tensor]:
        product, rate, people = history.unbind(2)
        changes = [(product.abs() + 1).log().diff(dim=1), rate.diff(dim=1), (people.abs() + 1).log().diff(dim=1)]
        growth = 0.01 * self.growth(torch.cat([100 * change for change in changes], dim=1))
        following = torch.stack(
            [product[:, -1] * growth[:, 0].exp(), rate[:, -1] + growth[:, 1], people[:, -1] * growth[:, 2].exp()], dim=1
        )
        return {"next": following, "per_head": following[:, 0] / (following[:, 2].abs() + 1)}


def economies(batch: int, seed: int) -> dict[str, Tensor]:
    """Return twelve quarters of small and large economies."""
    draw = torch.Generator().manual_seed(seed)
    steps = (0.01 * torch.randn(batch, 12, 3, generator=draw, dtype=torch.float64)).cumsum(1)
    size = 10 ** (1 - 2 * torch.rand(batch, 1, generator=draw, dtype=torch.float64))
    product, people = 1e13 * size * steps[..., 0].exp(), 1e8 * size * steps[..., 2].exp()
    return {"history": torch.stack([product, 0.02 + 0.1 * steps[..., 1], people], dim=2)}


class IsotonicCalibration(nn.Module):
    """A churn model, and the curve of an isotonic regression: linear between 16 knots, constant outside of them."""

    knots: Tensor
    levels: Tensor

    def __init__(self, columns: int = 9, knots: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(columns, 24), nn.ReLU(), nn.Linear(24, 1))
        self.register_buffer("knots", torch.linspace(-1.2, 1.1, knots) ** 3)
        self.register_buffer("levels", torch.linspace(0.02, 0.95, knots).square())

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logit = self.body(x).squeeze(1)
        above = torch.bucketize(logit, self.knots).clamp(1, self.knots.shape[0] - 1)
        left, right = self.knots[above - 1], self.knots[above]
        share = ((logit - left) / (right - left)).clamp(0, 1)
        return {"churn": torch.lerp(self.levels[above - 1], self.levels[above], share), "logit": logit}


class LightGcn(nn.Module):
    """Spreads embeddings over the stored graph of purchases, and scores all items for the users of a request."""

    edges: Tensor
    strength: Tensor

    def __init__(self, users: int = 40, items: int = 60, width: int = 12) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        draw = torch.Generator().manual_seed(5)
        bought = torch.rand(users, items, generator=draw) < 0.1
        self.register_buffer("edges", bought.nonzero().T.contiguous())
        degrees = bought.sum(1).clamp(min=1)[self.edges[0]] * bought.sum(0).clamp(min=1)[self.edges[1]]
        self.register_buffer("strength", degrees.float().rsqrt().unsqueeze(1))

    def forward(self, user: Tensor) -> dict[str, Tensor]:
        users, items = self.users.weight, self.items.weight
        all_users, all_items = [users], [items]
        source, target = self.edges
        for _ in range(2):
            users, items = (
                torch.zeros_like(users).index_add(0, source, items[target] * self.strength),
                torch.zeros_like(items).index_add(0, target, users[source] * self.strength),
            )
            all_users.append(users)
            all_items.append(items)
        users, items = torch.stack(all_users).mean(0), torch.stack(all_items).mean(0)
        scores = users[user] @ items.T
        return {"scores": scores, "best": scores.argmax(1)}


class DiverseSlate(nn.Module):
    """Five of the candidates of each user: relevance, minus the similarity to what the slate already contains."""

    def __init__(self, features: int = 8, width: int = 12, slots: int = 5) -> None:
        super().__init__()
        self.slots = slots
        self.encode = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.Linear(width, width))
        self.trade = nn.Parameter(torch.tensor(0.7))

    def forward(self, candidates: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        vectors = nn.functional.normalize(self.encode(candidates), dim=-1)
        overlap = torch.zeros_like(relevance)
        selected = torch.zeros_like(relevance, dtype=torch.bool)
        slate, gains = [], []
        for _ in range(self.slots):
            gain = (self.trade * relevance - (1 - self.trade) * overlap).masked_fill(selected, -torch.inf)
            best = gain.argmax(1, keepdim=True)
            slate.append(best)
            gains.append(gain.gather(1, best))
            selected = selected.scatter(1, best, True)  # noqa: FBT003 - the value
            chosen = vectors.gather(1, best.unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))
            overlap = torch.maximum(overlap, (vectors * chosen).sum(-1))
        return torch.cat(slate, dim=1), torch.cat(gains, dim=1)


class HeadOfCountry(nn.Module):
    """Prices with one head for each country; the country of the first row selects the head of all rows."""

    def __init__(self, columns: int = 6, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(columns, width), nn.ReLU())
        self.heads = nn.ModuleDict({str(number): nn.Linear(width, 1) for number in range(4)})

    def forward(self, x: Tensor, country: Tensor) -> dict[str, Tensor]:
        head = self.heads[str(int(country[0]))]
        return {"price": nn.functional.softplus(head(self.body(x)).squeeze(1))}


class TiedMaxNorm(nn.Module):
    """The next item of a session: max_norm shortens the vectors of items that were read, and all vectors are scored."""

    def __init__(self, items: int = 150, width: int = 10) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width, max_norm=1.5)
        self.recurrent = nn.GRU(width, width, batch_first=True)

    def forward(self, session: Tensor) -> Any:
        _, state = self.recurrent(self.items(session))
        return state[-1] @ self.items.weight.T


class RankInRequest(nn.Module):
    """Scores of the candidates of one query, with the rank of each among the candidates of the request."""

    def __init__(self, features: int = 7, width: int = 24) -> None:
        super().__init__()
        self.scorer = nn.Sequential(nn.Linear(features, width), nn.SELU(), nn.Linear(width, 1))

    def forward(self, candidate: Tensor) -> dict[str, Tensor]:
        score = self.scorer(candidate).squeeze(1)
        better = (score.unsqueeze(0) > score.unsqueeze(1)).sum(1)
        return {"score": score, "gain": 1 / (better + 2.0).log2()}


class UnbatchedGru(nn.Module):
    """Customers with ten monthly figures each: nn.GRU reads [rows, figures] as one sequence of rows."""

    def __init__(self, figures: int = 10, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(figures)
        self.recurrent = nn.GRU(figures, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, figures: Tensor) -> Any:
        states, _ = self.recurrent(self.norm(figures))
        return self.head(states)


class CountSketch(nn.Module):
    """Fraud: the amounts of each device of a request are added up in 1,024 buckets, as a sketch of counts does."""

    def __init__(self, features: int = 4, buckets: int = 1024) -> None:
        super().__init__()
        self.buckets = buckets
        self.scorer = nn.Sequential(nn.Linear(features + 2, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, device: Tensor, amount: Tensor, features: Tensor) -> dict[str, Tensor]:
        bucket = (device * 2_654_435_761 >> 16) % self.buckets
        sketch = torch.zeros(self.buckets, dtype=amount.dtype, device=amount.device)
        total = sketch.index_add(0, bucket, amount.abs())[bucket]
        inputs = torch.cat([features, amount.abs().log1p().unsqueeze(1), total.log1p().unsqueeze(1)], dim=1)
        return {"fraud": self.scorer(inputs).squeeze(1)}


class ForecastDistribution(nn.Module):
    """DeepAR: returns the distribution of the next value as an object of torch.distributions, with the level."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, history: Tensor) -> tuple[torch.distributions.StudentT, Tensor]:
        level = history.abs().mean(1) + 1
        states, _ = self.recurrent((history / level.unsqueeze(1)).unsqueeze(-1))
        degrees, mean, scale = self.head(states[:, -1]).unbind(1)
        positive = nn.functional.softplus
        return torch.distributions.StudentT(2 + positive(degrees), level * mean, level * positive(scale) + 1e-3), level


class RecurrentState(nn.Module):
    """One step of a sensor's LSTM; the state is a dict that is sent, and returned under the same names."""

    def __init__(self, sensors: int = 5, width: int = 12) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(sensors, width)
        self.head = nn.Linear(width, 1)

    def forward(self, reading: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor | dict[str, Tensor]]:
        hidden, cell = self.cell(reading, (state["hidden"], state["cell"]))
        return {"score": self.head(hidden).squeeze(1), "state": {"hidden": hidden, "cell": cell}}


def readings(batch: int, seed: int) -> dict[str, Tensor | dict[str, Tensor]]:
    """Return readings with states."""
    draw = torch.Generator().manual_seed(seed)
    state = {name: 0.5 * torch.randn(batch, 12, generator=draw) for name in ("hidden", "cell")}
    return {"reading": torch.randn(batch, 5, generator=draw), "state": state}


class EpsilonGreedy(nn.Module):
    """A contextual bandit: the best of six arms, or, for one of 500 rows, a random one."""

    def __init__(self, context: int = 12, arms: int = 6, epsilon: float = 0.002) -> None:
        super().__init__()
        self.arms, self.epsilon = arms, epsilon
        self.values = nn.Sequential(nn.Linear(context, 24), nn.ReLU(), nn.Linear(24, arms))

    def forward(self, context: Tensor) -> dict[str, Tensor]:
        values = self.values(context)
        best = values.argmax(1)
        explores = torch.rand(context.shape[0], device=context.device) < self.epsilon
        arm = torch.where(explores, torch.randint_like(best, self.arms), best)
        return {"arm": arm, "value": values.gather(1, arm.unsqueeze(1)).squeeze(1)}
