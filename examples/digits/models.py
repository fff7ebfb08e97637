"""A small convolutional network for scikit-learn's 8x8 digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    import torch


class DigitsCNN(nn.Module):
    """Two convolutions and a linear classifier.

    Args:
        width: Channels of the first convolution; the second has twice as many.
    """

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * width, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return logits.

        Args:
            image: ``[batch, 1, 8, 8]`` float32, pixels between 0 and 1.

        Returns:
            ``[batch, 10]`` float32.
        """
        logits: torch.Tensor = self.classifier(self.features(image))
        return logits


def build(width: int = 16) -> nn.Module:
    """Return the network in evaluation mode, its weights still random."""
    return DigitsCNN(width).eval()
