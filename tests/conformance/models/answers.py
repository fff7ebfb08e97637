"""Models that return something other than a single tensor."""
# ruff: noqa: D102, D107 - each class's docstring says what its forward returns

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput


class _Two(nn.Module):
    """Two layers that read the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(4, 2)


class Nested(_Two):
    """Returns a tuple of a tensor, a list, and a dict that contains a tuple."""

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        left, right = self.left(x), self.right(x)
        return left, [right, left + 1], {"deep": (right * 2, {"deeper": left - right.sum(1, keepdim=True)})}


class Dict(_Two):
    """Returns a dict."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"left": self.left(x), "right": self.right(x)}


@dataclass
class Scores:
    """The output of `AsDataclass`."""

    left: Tensor
    right: Tensor
    loss: Tensor | None = None


class AsDataclass(_Two):
    """Returns a dataclass that is not registered as a PyTorch pytree."""

    def forward(self, x: Tensor) -> Scores:
        return Scores(self.left(x), self.right(x))


@dataclass
class Output(ModelOutput):
    """The output of `AsModelOutput`."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class AsModelOutput(_Two):
    """Returns a ModelOutput in which one field is None and one is a tuple."""

    def forward(self, x: Tensor) -> Output:
        return Output(logits=self.left(x), hidden_states=(x * 2, self.right(x)))


class Pair(NamedTuple):
    """The output of `AsNamedTuple`."""

    mean: Tensor
    spread: Tensor


class AsNamedTuple(_Two):
    """Returns a named tuple."""

    def forward(self, x: Tensor) -> Pair:
        return Pair(self.left(x), self.right(x).exp())


class NumbersAndNone(_Two):
    """Returns tensors together with None and Python numbers, also in a dict."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"logits": self.left(x), "loss": None, "classes": 3, "info": {"temperature": 0.5, "done": True}}


class SameTwice(_Two):
    """Returns one tensor under two names."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        left = self.left(x)
        return {"logits": left, "scores": left}


class Echo(_Two):
    """Returns its input as one of its outputs."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(x), "features": x}


class Integers(_Two):
    """Returns integers and booleans: the best classes, and whether any score is positive."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = self.left(x)
        best = scores.topk(2, dim=1)
        return {"best": scores.argmax(1), "top": best.indices, "value": best.values, "sure": scores.amax(1) > 0}


class OneNumberEach(_Two):
    """Returns one number per row: outputs of rank 1."""

    def forward(self, x: Tensor) -> Any:
        return self.left(x).sum(1)


class Constant(_Two):
    """Returns its anchors next to the logits; their shape does not depend on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = nn.Parameter(torch.linspace(0, 1, 20).reshape(5, 4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(x), "anchors": self.anchors}


class Scalar(_Two):
    """Returns one number for the whole batch."""

    def forward(self, x: Tensor) -> Any:
        return self.left(x).mean()


class LogitsAndLoss(_Two):
    """Returns logits, and one penalty for the whole batch."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.left(x)
        return {"logits": logits, "penalty": logits.square().mean()}
