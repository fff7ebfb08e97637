"""DistilBERT sequence classification from transformers at full size, with seeded random weights; no download."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification


def build(seed: int = 0, labels: int = 2) -> torch.nn.Module:
    """Return DistilBERT: ``input_ids`` and ``attention_mask [batch, sequence]`` -> ``logits [batch, labels]``."""
    torch.manual_seed(seed)
    return DistilBertForSequenceClassification(DistilBertConfig(num_labels=labels)).eval()


def examples(batch: int, sequence: int, seed: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return token IDs and masks: rows have random lengths and are padded, except for the first one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, sequence, batch, endpoint=True)
    lengths[0] = sequence
    mask = (np.arange(sequence) < lengths[:, None]).astype(np.int64)
    return {"input_ids": rng.integers(1, 30522, (batch, sequence)) * mask, "attention_mask": mask}
