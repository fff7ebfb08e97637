"""A tiny example model; put your own in its place."""

import torch
from torch import nn


class TinyClassifier(nn.Module):
    """Four features in, three logits out."""

    def __init__(self, hidden: int) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map [batch, 4] float32 to [batch, 3] float32."""
        logits: torch.Tensor = self.layers(features)
        return logits


def build(hidden: int = 16) -> nn.Module:
    """Return the model. repogen calls this in a process of its own, with the spec's kwargs."""
    torch.manual_seed(0)
    return TinyClassifier(hidden).eval()
