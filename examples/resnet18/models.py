"""ResNet-18 from transformers at full size, with seeded random weights; no download."""

from __future__ import annotations

import torch
from transformers import ResNetConfig, ResNetForImageClassification


def build(seed: int = 0) -> torch.nn.Module:
    """Return ResNet-18 for 1000 labels: ``pixel_values [batch, 3, height, width]`` -> ``logits [batch, 1000]``."""
    torch.manual_seed(seed)
    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return ResNetForImageClassification(config).eval()
