"""Models that must be refused, each for a reason of its own."""
# ruff: noqa: D102, D107 - the functions and classes say what is wrong

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class _Of(nn.Module):
    """A linear layer and a function of its answer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


class Counter(nn.Module):
    """Counts its calls, and answers by the count."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.linear(x) * self.calls


class Remembers(nn.Module):
    """Carries its state from one request to the next."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.register_buffer("state", torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Any:
        answer = self.cell(x, self.state.expand(x.shape[0], -1).contiguous())
        self.state = answer.mean(0, keepdim=True)
        return answer


def noise() -> nn.Module:
    """Adds noise at inference."""
    return _Of(lambda y: y + torch.randn_like(y))


def functional_dropout() -> nn.Module:
    """Drops values whatever the mode: F.dropout trains by default."""
    return _Of(lambda y: functional.dropout(y, 0.5))


def python_random() -> nn.Module:
    """Scales by a number of Python's own generator, which no operator shows."""
    return _Of(lambda y: y * random.random())  # noqa: S311 - that it is random is the point


class SeededNoise(nn.Module):
    """Seeds the generator itself: it agrees with itself, and no ONNX operator agrees with it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        torch.manual_seed(0)
        scored = self.linear(x)
        return scored + torch.randn(scored.shape)


class Branch(nn.Module):
    """Branches on values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        scored = self.linear(x)
        if scored.sum() > 0:
            return scored * 2
        return scored - 1


class Greedy(nn.Module):
    """NMS as a loop in Python, over values."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Any:
        kept: list[Tensor] = []
        left = scores.argsort(descending=True).tolist()
        while left:
            best = left.pop(0)
            kept.append(boxes[best])
            left = [i for i in left if (boxes[i] - boxes[best]).abs().max().item() > 0.5]
        return torch.stack(kept)


class BakedBatch(nn.Module):
    """Reshapes with the batch it was written for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x.reshape(2, -1))


class FixedLength(nn.Module):
    """Flattens a length that its weights were made for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x.flatten(1))


class LengthSwitch(nn.Module):
    """Takes another layer for long rows: both lengths are declared, and a graph keeps one way."""

    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Linear(4, 3)
        self.long = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.long(x) if x.shape[1] > 8 else self.short(x)


class BatchSwitch(nn.Module):
    """Subtracts the mean of larger batches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        scored = self.linear(x)
        return scored - scored.mean(0) if x.shape[0] > 3 else scored


def no_translation() -> nn.Module:
    """Uses an operator that ONNX does not have."""
    return _Of(lambda y: torch.linalg.svdvals(y.reshape(-1, 2, 2)))


def not_a_number() -> nn.Module:
    """Takes the logarithm of negative numbers."""
    return _Of(lambda y: torch.log(-y.abs()))


def number() -> int:
    """Is no module."""
    return 42


def raises() -> nn.Module:
    """Fails on the way."""
    raise FileNotFoundError("tokenizer.json")


def leaves() -> nn.Module:
    """Leaves the process."""
    sys.exit(3)


def on_meta() -> nn.Module:
    """Has no values."""
    with torch.device("meta"):
        return nn.Linear(4, 3)


def mixing() -> nn.Module:
    """Mixes rows."""
    return _Of(lambda y: y - y.mean(0))


def plain() -> nn.Module:
    """Has nothing wrong with it."""
    return nn.Linear(4, 3)


class Needs(nn.Module):
    """Takes two inputs."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return x * mask


class LateCounter(nn.Module):
    """Answers otherwise from its ninth call on, counted in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.linear(x) * (2.0 if self.calls <= 8 else 3.0)


class FirstLength(nn.Module):
    """Divides by the length of whatever came first."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.length: int | None = None

    def forward(self, x: Tensor) -> Any:
        if self.length is None:
            self.length = x.shape[1]
        return self.linear(x) / self.length


class FirstBatch(nn.Module):
    """Takes scale and bias from its first batch, as Glow's ActNorm does until its weights are loaded."""

    is_set: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_set", torch.tensor(0))
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        if self.is_set.item() == 0:
            with torch.no_grad():
                self.bias.copy_(x.mean(0))
            self.is_set.fill_(1)
        return x - self.bias


class OneLength(nn.Module):
    """Treats rows of ten steps otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) + (5 if x.shape[1] == 10 else 0)


class TwiceLength(nn.Module):
    """Treats one length otherwise, which no number in its code is near to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) + (5 if x.shape[1] * 2 == 28 else 0)


class Uneven(nn.Module):
    """Treats lengths that are no multiple of four otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) * 2 if x.shape[1] % 4 else self.linear(x) + 1


class Paired(nn.Module):
    """Takes two values for each step."""

    def forward(self, x: Tensor, pairs: Tensor) -> Any:
        return x + pairs.reshape(pairs.shape[0], -1, 2).sum(-1)


def paired(batch: int, time: int) -> dict[str, Tensor]:
    """Return steps, and twice as many values."""
    return {"x": torch.randn(batch, time), "pairs": torch.randn(batch, 2 * time)}
