"""Tensors of sizes in a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from repogen.export.number_tensors import traced_numbers

if TYPE_CHECKING:
    from collections.abc import Callable


def sizes(x: torch.Tensor) -> Any:
    """Return tensors of sizes, of quotients of sizes, and of constants."""
    height, width = x.shape
    return (
        torch.tensor([height, width]),
        torch.tensor((height, 2.5), dtype=torch.float64),
        torch.as_tensor([(height, width), (width // 2, 3)], dtype=torch.int32),
        torch.as_tensor([width / height, 1]),
        x.new_tensor([[width], [height]]),
        torch.tensor([1, 2]),
        torch.tensor(height),
    )


@pytest.mark.filterwarnings("ignore")
def test_sizes_in_tensors_are_traced() -> None:
    """They follow the inputs, with the dtypes of PyTorch."""
    originals = torch.tensor, torch.as_tensor, torch.Tensor.new_tensor
    trace: Callable[..., Any] = torch.jit.trace
    with traced_numbers():
        traced = trace(sizes, torch.ones(4, 6), check_trace=False)
    assert (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor) == originals
    x = torch.ones(5, 9)
    for actual, expected in zip(traced(x), sizes(x), strict=True):
        torch.testing.assert_close(actual, expected)
