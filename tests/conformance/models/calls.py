"""Models that are called in ways of their own, and wrapped ones."""
# ruff: noqa: D102, D107 - the classes say how they are called

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class KeywordOnly(nn.Module):
    """Takes its second input by keyword only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, *, shift: Tensor) -> Any:
        return self.linear(x) + 2 * shift


class Optional(nn.Module):
    """Can do with a mask and without one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        scored = self.linear(x)
        return scored if mask is None else scored * mask.unsqueeze(1)


class Unused(nn.Module):
    """Takes an input that it never looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, position: Tensor) -> Any:
        del position
        return self.linear(x)


class OfDict(nn.Module):
    """Takes one dict of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, features: dict[str, Tensor]) -> Any:
        return self.linear(features["numbers"]) + features["bias"]


class OfTuple(nn.Module):
    """Takes a tensor, and a tuple of two."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        hidden, cell = self.cell(x, state)
        return hidden, cell


class OfList(nn.Module):
    """Takes a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 3)

    def forward(self, parts: list[Tensor]) -> Any:
        return self.linear(torch.cat(parts, dim=1))


class Settings(nn.Module):
    """Has Python numbers among its parameters, of which a graph must not make inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, logits_to_keep: int = 0, scale: float = 2.0, mask: Tensor | None = None) -> Any:
        scored = self.linear(x)[:, -logits_to_keep:] * scale
        return scored if mask is None else scored * mask


class TakesAll(nn.Module):
    """Names none of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, *parts: Tensor) -> Any:
        return self.linear(parts[0]) + self.linear(parts[1])


def plain() -> nn.Module:
    """Return what the wrappers below wrap."""
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()


def compiled() -> Any:
    """Return a module behind torch.compile."""
    return torch.compile(plain())


def data_parallel() -> nn.Module:
    """Return a module as training on several GPUs left it."""
    return nn.DataParallel(plain())


def compiled_data_parallel() -> Any:
    """Return a module in two wrappers."""
    return torch.compile(nn.DataParallel(plain()))


def scripted() -> Any:
    """Return a ScriptModule that was scripted."""
    return torch.jit.script(plain())


def traced() -> Any:
    """Return a ScriptModule that was traced, with another batch than it will meet."""
    trace: Any = torch.jit.trace
    return trace(plain(), (torch.zeros(5, 4),))


def hooked() -> nn.Module:
    """Return a module whose hook changes the answer."""
    module = plain()
    module.register_forward_hook(lambda _module, _args, answer: answer * 3)
    return module


class Encoder(nn.Module):
    """PyTorch's own transformer, which takes a fast path with nested tensors when rows are padded."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Any:
        return self.encoder(x, src_key_padding_mask=padding)


def padded(batch: int, sequence: int, seed: int = 0) -> dict[str, Tensor]:
    """Return rows of different lengths for `Encoder`, the first one full; True is padding."""
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
    """Return args and kwargs for `Settings`, among which one is a tensor."""
    torch.manual_seed(batch)
    return (torch.randn(batch, 4),), {"logits_to_keep": 2, "scale": 0.5, "mask": None}


def a_string(batch: int) -> str:
    """Return what is no example."""
    return f"{batch} rows, please"


def seeded() -> nn.Module:
    """Return what `plain` returns, the same one every time."""
    torch.manual_seed(0)
    return plain()


def seeded_otherwise() -> nn.Module:
    """Return what `seeded` returns, with other weights."""
    torch.manual_seed(1)
    return plain()
