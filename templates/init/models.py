"""An example model; replace it with your own."""

import torch
from torch import nn


class TinyClassifier(nn.Module):
    """Classifies four features into three classes."""

    def __init__(self, hidden: int) -> None:
        """Create the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 3] float32 of features [batch, 4] float32."""
        logits: torch.Tensor = self.layers(features)
        return logits


def build(hidden: int = 16) -> nn.Module:
    """Return the model. repogen calls this in a separate process, with the spec's kwargs."""
    torch.manual_seed(0)
    return TinyClassifier(hidden).eval()
