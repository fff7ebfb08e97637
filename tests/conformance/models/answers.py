"""Models whose answers are no single tensor."""
# ruff: noqa: D102, D107 - the classes say what their forward answers

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput


class _Two(nn.Module):
    """Two layers on one input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(4, 2)


class Nested(_Two):
    """A tuple of a tensor, a list and a dict of a tuple."""

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        left, right = self.left(x), self.right(x)
        return left, [right, left + 1], {"deep": (right * 2, {"deeper": left - right.sum(1, keepdim=True)})}


class Dict(_Two):
    """A dict."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"left": self.left(x), "right": self.right(x)}


@dataclass
class Scores:
    """What `AsDataclass` answers."""

    left: Tensor
    right: Tensor
    loss: Tensor | None = None


class AsDataclass(_Two):
    """A dataclass of ours, which PyTorch's own trees do not know."""

    def forward(self, x: Tensor) -> Scores:
        return Scores(self.left(x), self.right(x))


@dataclass
class Output(ModelOutput):
    """What `AsModelOutput` answers."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class AsModelOutput(_Two):
    """A ModelOutput with a field that is None, and one that is a tuple."""

    def forward(self, x: Tensor) -> Output:
        return Output(logits=self.left(x), hidden_states=(x * 2, self.right(x)))


class Pair(NamedTuple):
    """What `AsNamedTuple` answers."""

    mean: Tensor
    spread: Tensor


class AsNamedTuple(_Two):
    """A named tuple."""

    def forward(self, x: Tensor) -> Pair:
        return Pair(self.left(x), self.right(x).exp())


class NumbersAndNone(_Two):
    """Tensors between None, Python numbers and a string-free dict of them."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"logits": self.left(x), "loss": None, "classes": 3, "info": {"temperature": 0.5, "done": True}}


class SameTwice(_Two):
    """One tensor under two names."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        left = self.left(x)
        return {"logits": left, "scores": left}


class Echo(_Two):
    """Its input among its outputs."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(x), "features": x}


class Integers(_Two):
    """The best class and its rank."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = self.left(x)
        best = scores.topk(2, dim=1)
        return {"best": scores.argmax(1), "top": best.indices, "value": best.values, "sure": scores.amax(1) > 0}


class OneNumberEach(_Two):
    """A number a row: outputs of rank 1."""

    def forward(self, x: Tensor) -> Any:
        return self.left(x).sum(1)


class Constant(_Two):
    """Its anchors beside the logits, however many rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = nn.Parameter(torch.linspace(0, 1, 20).reshape(5, 4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(x), "anchors": self.anchors}


class Scalar(_Two):
    """One number for the whole batch."""

    def forward(self, x: Tensor) -> Any:
        return self.left(x).mean()


class LogitsAndLoss(_Two):
    """Logits, and a penalty over the whole batch."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.left(x)
        return {"logits": logits, "penalty": logits.square().mean()}
