"""Parameters that still have random values are named, however the factory computed or replaced them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from repogen.source.torch.initial_values import random_storages

if TYPE_CHECKING:
    from collections.abc import Callable


def linear() -> nn.Module:
    """Return a layer with random values."""
    return nn.Linear(4, 3)


def loaded(*, assign: bool) -> nn.Module:
    """Return a layer with values from a file."""
    stream = io.BytesIO()
    torch.save(linear().state_dict(), stream)
    stream.seek(0)
    module = linear()
    module.load_state_dict(torch.load(stream), assign=assign)
    return module


def trained(*, release: bool) -> nn.Module:
    """Return a layer after a step of training on data that is not random to torch."""
    module = linear()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.from_numpy(np.ones((2, 4), np.float32))).sum().backward()
    optimizer.step()
    if release:
        optimizer.zero_grad()
    return module


def trained_on_random_data() -> nn.Module:
    """Return a layer after a step of training whose gradients were computed from random numbers only."""
    module = linear()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    module(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return module


def with_parameters(**values: Callable[[], torch.Tensor]) -> Callable[[], nn.Module]:
    """Return a factory of a module with parameters."""

    def build() -> nn.Module:
        module = nn.Module()
        for name, value in values.items():
            module.register_parameter(name, nn.Parameter(value()))
        return module

    return build


def padded() -> nn.Module:
    """Return a table with a row of zeros."""
    return nn.Embedding(4, 2, padding_idx=0)


def zeroed() -> nn.Module:
    """Return a layer whose bias is zero."""
    module = linear()
    nn.init.zeros_(module.bias)  # type: ignore[arg-type] # it has one
    return module


def lazy() -> nn.Module:
    """Return a layer without values."""
    return nn.LazyLinear(2)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (linear, ["weight", "bias"]),
        (lambda: linear().half(), ["weight", "bias"]),
        (lambda: loaded(assign=False), []),
        (lambda: loaded(assign=True), []),
        (lambda: trained(release=False), []),
        (lambda: trained(release=True), []),
        (trained_on_random_data, []),
        (with_parameters(a=lambda: torch.randn(3) * 0.02, b=lambda: torch.ones(2)), ["a"]),
        (with_parameters(a=lambda: nn.init.orthogonal_(torch.empty(3, 3)), b=lambda: torch.arange(2.0)), ["a"]),
        (with_parameters(a=lambda: nn.init.trunc_normal_(torch.empty(3, 3))), ["a"]),
        (with_parameters(a=lambda: torch.from_numpy(np.ones(3, np.float32))), []),
        (padded, ["weight"]),
        (zeroed, ["weight"]),
        (lazy, []),
    ],
)
def test_random_parameters(build: Callable[[], Any], names: list[str]) -> None:
    """The note has their number, and the name of the first."""
    with random_storages() as storages:
        module = build()
    total = len(dict(module.named_parameters()))
    expected = (
        [f"{len(names)} of {total} parameters have random initial values, for example {names[0]}"] if names else []
    )
    assert [note.partition(":")[0] for note in storages.note(module)] == expected


def test_freed_storages_do_not_count() -> None:
    """Torch may give a new tensor the address of a freed one, without an operator that a recorder sees."""
    with random_storages() as storages:
        for _ in range(100):
            torch.randn(1000)
        tensors = [torch.from_numpy(np.ones(1000, np.float32)) for _ in range(100)]
    assert not any(tensor.untyped_storage() in storages for tensor in tensors)
