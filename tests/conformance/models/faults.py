"""Models that must be rejected, each for a different reason."""
# ruff: noqa: D102, D107 - each docstring says what is wrong with the model

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
    """A linear layer, followed by a function of its output."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


class Counter(nn.Module):
    """Counts its calls in a buffer, on which its output depends."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.linear(x) * self.calls


class Remembers(nn.Module):
    """Keeps a state from one request to the next."""

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
    """Drops values in every mode, because F.dropout has training=True by default."""
    return _Of(lambda y: functional.dropout(y, 0.5))


def python_random() -> nn.Module:
    """Multiplies by a number of Python's random module, which is not visible as an operator."""
    return _Of(lambda y: y * random.random())  # noqa: S311 - the model must be random


class SeededNoise(nn.Module):
    """Seeds the generator in forward: it is deterministic, but no ONNX operator computes the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        torch.manual_seed(0)
        scored = self.linear(x)
        return scored + torch.randn(scored.shape)


class Branch(nn.Module):
    """Branches on the values of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        scored = self.linear(x)
        if scored.sum() > 0:
            return scored * 2
        return scored - 1


class Greedy(nn.Module):
    """Computes NMS in a Python loop over values."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Any:
        selected: list[Tensor] = []
        remaining = scores.argsort(descending=True).tolist()
        while remaining:
            best = remaining.pop(0)
            selected.append(boxes[best])
            remaining = [i for i in remaining if (boxes[i] - boxes[best]).abs().max().item() > 0.5]
        return torch.stack(selected)


class BakedBatch(nn.Module):
    """Reshapes with a hard-coded batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x.reshape(2, -1))


class FixedLength(nn.Module):
    """Flattens an axis of time, so its weights fit only one length."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x.flatten(1))


class LengthSwitch(nn.Module):
    """Uses a different layer for long rows; both lengths are declared, and a graph keeps only one branch."""

    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Linear(4, 3)
        self.long = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.long(x) if x.shape[1] > 8 else self.short(x)


class BatchSwitch(nn.Module):
    """Subtracts the mean if the batch is large."""

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
    """Return a number instead of a module."""
    return 42


def raises() -> nn.Module:
    """Raise an exception."""
    raise FileNotFoundError("tokenizer.json")


def leaves() -> nn.Module:
    """Exit the process."""
    sys.exit(3)


def on_meta() -> nn.Module:
    """Return a module on the meta device, whose weights have no values."""
    with torch.device("meta"):
        return nn.Linear(4, 3)


def mixing() -> nn.Module:
    """Return a module that mixes rows."""
    return _Of(lambda y: y - y.mean(0))


def plain() -> nn.Module:
    """Return a correct module."""
    return nn.Linear(4, 3)


class Needs(nn.Module):
    """Accepts two inputs."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return x * mask


class LateCounter(nn.Module):
    """Returns different outputs after eight calls, which it counts in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.linear(x) * (2.0 if self.calls <= 8 else 3.0)


class FirstLength(nn.Module):
    """Divides by the length of the input of its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.length: int | None = None

    def forward(self, x: Tensor) -> Any:
        if self.length is None:
            self.length = x.shape[1]
        return self.linear(x) / self.length


class FirstScale(nn.Module):
    """Divides by the deviation of the input of its first call, which it keeps in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.statistics: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Any:
        if "scale" not in self.statistics:
            self.statistics["scale"] = x.std()
        return self.linear(x / self.statistics["scale"])


class FirstBatch(nn.Module):
    """Sets scale and bias from its first batch, as Glow's ActNorm does unless weights are loaded."""

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
    """Computes something else for rows of ten steps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) + (5 if x.shape[1] == 10 else 0)


class TwiceLength(nn.Module):
    """Computes something else for one length, which is far from every number in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) + (5 if x.shape[1] * 2 == 28 else 0)


class Uneven(nn.Module):
    """Computes something else for lengths that are not multiples of four."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x) * 2 if x.shape[1] % 4 else self.linear(x) + 1


class Paired(nn.Module):
    """Accepts two values for each step."""

    def forward(self, x: Tensor, pairs: Tensor) -> Any:
        return x + pairs.reshape(pairs.shape[0], -1, 2).sum(-1)


def paired(batch: int, time: int) -> dict[str, Tensor]:
    """Return steps, and twice as many values."""
    return {"x": torch.randn(batch, time), "pairs": torch.randn(batch, 2 * time)}
