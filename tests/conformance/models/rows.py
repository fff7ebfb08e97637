"""Models whose rows depend on each other, or are not on axis 0."""
# ruff: noqa: D102, D107 - each docstring says what happens to the rows

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class _Rows(nn.Module):
    """A linear layer, followed by a function of its output."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


def centred() -> nn.Module:
    """Subtracts the batch's mean."""
    return _Rows(lambda y: y - y.mean(0))


def softmax() -> nn.Module:
    """Normalizes over the batch."""
    return _Rows(lambda y: y.softmax(0))


def largest() -> nn.Module:
    """Divides by the largest number of the batch."""
    return _Rows(lambda y: y / y.abs().max())


def sorted_rows() -> nn.Module:
    """Sorts each feature over the batch."""
    return _Rows(lambda y: y.sort(0).values)


def running_sum() -> nn.Module:
    """Adds the preceding rows to each row."""
    return _Rows(lambda y: y.cumsum(0))


def from_first() -> nn.Module:
    """Subtracts the first row from each row."""
    return _Rows(lambda y: y - y[:1])


def numbered() -> nn.Module:
    """Adds each row's index in the batch, which is 0 for a row alone."""
    return _Rows(lambda y: y + torch.arange(y.shape[0], dtype=y.dtype).unsqueeze(1))


def turned() -> nn.Module:
    """Returns the features on axis 0."""
    return _Rows(lambda y: y.t())


def similarities() -> nn.Module:
    """Scores every row against every row."""
    return _Rows(lambda y: y @ y.t())


def batch_norm() -> nn.Module:
    """Normalizes images by the statistics of the batch, also in evaluation mode."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()


def batch_norm_of_rows() -> nn.Module:
    """Normalizes rows by the statistics of the batch, for which PyTorch requires at least two rows."""
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()


class TimeMajor(nn.Module):
    """An LSTM that accepts batch-first tensors and returns time-first tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.lstm(x.transpose(0, 1))[0]


class TimeFirst(nn.Module):
    """An LSTM that accepts and returns time-first tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.lstm(x)[0]


class LastState(nn.Module):
    """Returns the last state of an LSTM in PyTorch's layout, [layers, batch, size]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.lstm(x)[1][0]


class Flattened(nn.Module):
    """Returns one row for each step: [batch * time, classes]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x).flatten(0, 1)


class Graph(nn.Module):
    """Passes messages along edges: axis 0 has the nodes, and a second input has the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(4, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Any:
        sent = self.message(x).index_select(0, edges[0])
        return torch.relu(x + torch.zeros_like(x).index_add(0, edges[1], sent))


def graph(nodes: int, edges: int, seed: int = 0) -> dict[str, Tensor]:
    """Return nodes, and the edges between them, for `Graph`."""
    torch.manual_seed(seed)
    return {"x": torch.randn(nodes, 4), "edges": torch.randint(0, nodes, (2, edges))}


class Adjacency(nn.Module):
    """A graph convolution with a dense adjacency matrix: axis 0 of every tensor has the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, adjacency: Tensor) -> Any:
        return torch.tanh(adjacency @ self.linear(x))


class NodeClasses(nn.Module):
    """Attention between all nodes of one graph, which are on axis 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return (x @ self.linear(x).t()).softmax(-1) @ x


class Suppress(nn.Module):
    """A fast NMS: keeps the boxes that do not overlap a better one, so the number of outputs depends on the values."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Any:
        order = scores.argsort(descending=True)
        boxes = boxes[order]
        low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
        high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        overlap = torch.triu(shared / (area[:, None] + area[None] - shared), diagonal=1)
        return boxes[overlap.amax(0) < 0.3]


def boxes(batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return valid boxes and their scores, for `Suppress`."""
    torch.manual_seed(seed)
    low = torch.rand(batch, 2)
    return {"boxes": torch.cat([low, low + 0.2 + torch.rand(batch, 2)], 1), "scores": torch.rand(batch)}


class Selected(nn.Module):
    """Returns the rows whose score is positive, so their number depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Any:
        return x[self.score(x).squeeze(1) > 0]


class Indices(nn.Module):
    """Returns the positions at which its input is positive."""

    def forward(self, x: Tensor) -> Any:
        return torch.nonzero(x > 0)


class Conditional(nn.Module):
    """Chooses one of two branches for the whole batch, with torch.cond."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        scored = self.linear(x)
        return torch.cond(scored.sum() > 0, lambda y: y * 2, lambda y: y - 1, (scored,))


class Tempered(nn.Module):
    """Accepts one scalar temperature for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, temperature: Tensor) -> Any:
        return self.linear(x) * (1 + temperature * temperature)


class LookUp(nn.Module):
    """Scores rows against a table that is part of every request."""

    def forward(self, x: Tensor, table: Tensor) -> Any:
        return x @ table.t()


class Fixed(nn.Module):
    """Accepts a single image without a batch axis."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, image: Tensor) -> Any:
        return self.convolution(image)


def from_sixth() -> nn.Module:
    """Adds the first row to the sixth and all later rows."""
    return _Rows(lambda y: y + (torch.arange(y.shape[0]) >= 5).float()[:, None] * y[:1])


class Capacity(nn.Module):
    """Two experts, each of which processes at most three rows of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Any:
        chosen = nn.functional.one_hot(self.gate(x).argmax(-1), 2)
        accepted = ((chosen.cumsum(0) <= 3) & (chosen > 0)).float()
        return sum(accepted[:, e : e + 1] * expert(x) for e, expert in enumerate(self.experts))
