"""A small model that uses the operator."""

from __future__ import annotations

import torch
from ops import clipped_cube


class Cubes(torch.nn.Module):
    """A linear layer with a clipped cube as activation."""

    def __init__(self) -> None:
        """Seed the layer."""
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[batch, 4]``."""
        return clipped_cube(self.linear(x), 0.5)


def build() -> Cubes:
    """Return the model."""
    return Cubes().eval()
