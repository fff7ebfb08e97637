"""Models with unusual calling conventions, and wrapped models."""
# ruff: noqa: D102, D107 - each class's docstring says how it is called

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class KeywordOnly(nn.Module):
    """Accepts its second input only by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, *, shift: Tensor) -> Any:
        return self.linear(x) + 2 * shift


class Optional(nn.Module):
    """Accepts an optional mask."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        scored = self.linear(x)
        return scored if mask is None else scored * mask.unsqueeze(1)


class Unused(nn.Module):
    """Accepts an input that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, position: Tensor) -> Any:
        del position
        return self.linear(x)


class OfDict(nn.Module):
    """Accepts one dict of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, features: dict[str, Tensor]) -> Any:
        return self.linear(features["numbers"]) + features["bias"]


class OfTuple(nn.Module):
    """Accepts a tensor, and a tuple of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        hidden, cell = self.cell(x, state)
        return hidden, cell


class OfList(nn.Module):
    """Accepts a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 3)

    def forward(self, parts: list[Tensor]) -> Any:
        return self.linear(torch.cat(parts, dim=1))


class Settings(nn.Module):
    """Has parameters that are Python numbers, which must not become inputs of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, logits_to_keep: int = 0, scale: float = 2.0, mask: Tensor | None = None) -> Any:
        scored = self.linear(x)[:, -logits_to_keep:] * scale
        return scored if mask is None else scored * mask


class TakesAll(nn.Module):
    """Accepts `*args`, so its inputs have no names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, *parts: Tensor) -> Any:
        return self.linear(parts[0]) + self.linear(parts[1])


def plain() -> nn.Module:
    """Return the module that the functions below wrap."""
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()


def compiled() -> Any:
    """Return a module that torch.compile wraps."""
    return torch.compile(plain())


def data_parallel() -> nn.Module:
    """Return a module in DataParallel, as after training on several GPUs."""
    return nn.DataParallel(plain())


def compiled_data_parallel() -> Any:
    """Return a module in two wrappers, torch.compile and DataParallel."""
    return torch.compile(nn.DataParallel(plain()))


def scripted() -> Any:
    """Return a ScriptModule that was scripted."""
    return torch.jit.script(plain())


def traced() -> Any:
    """Return a ScriptModule that was traced with a batch of 5."""
    trace: Any = torch.jit.trace
    return trace(plain(), (torch.zeros(5, 4),))


def hooked() -> nn.Module:
    """Return a module whose forward hook changes the output."""
    module = plain()
    module.register_forward_hook(lambda _module, _args, answer: answer * 3)
    return module


class Encoder(nn.Module):
    """PyTorch's TransformerEncoder, which uses a fast path with nested tensors if rows are padded."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Any:
        return self.encoder(x, src_key_padding_mask=padding)


def padded(batch: int, sequence: int, seed: int = 0) -> dict[str, Tensor]:
    """Return rows of different lengths for `Encoder`; the first row is full, and True marks padding."""
    torch.manual_seed(seed)
    lengths = torch.randint(1, sequence + 1, (batch, 1))
    lengths[0] = sequence
    return {"x": torch.randn(batch, sequence, 16), "padding": torch.arange(sequence) >= lengths}


def tensor(batch: int) -> Tensor:
    """Return the example of a module with one input."""
    torch.manual_seed(batch)
    return torch.randn(batch, 4)


def of_dict(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs for `OfDict`."""
    torch.manual_seed(batch)
    return ({"numbers": torch.randn(batch, 4), "bias": torch.randn(batch, 3)},), {}


def of_tuple(batch: int) -> tuple[Any, ...]:
    """Return args for `OfTuple`."""
    torch.manual_seed(batch)
    return (torch.randn(batch, 4), (torch.randn(batch, 3), torch.randn(batch, 3))), {}


def of_list(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs for `OfList`."""
    torch.manual_seed(batch)
    return ([torch.randn(batch, 4), torch.randn(batch, 3)],), {}


def settings(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs for `Settings`, only one of which is a tensor."""
    torch.manual_seed(batch)
    return (torch.randn(batch, 4),), {"logits_to_keep": 2, "scale": 0.5, "mask": None}


def a_string(batch: int) -> str:
    """Return a string, which is not a valid example."""
    return f"{batch} rows, please"


def seeded() -> nn.Module:
    """Return the module of `plain` with the same weights in every call."""
    torch.manual_seed(0)
    return plain()


def seeded_otherwise() -> nn.Module:
    """Return the module of `seeded` with different weights."""
    torch.manual_seed(1)
    return plain()
