"""Writes ``labels.npz``: the mean embedding of a few sentences for each label.

Run it from this directory: ``python make_labels.py``. It generated the committed file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer

sys.path.insert(0, str(Path(__file__).parent.parent / "minilm"))
from models import build

SENTENCES = {
    "cooking": ["Chop the onions and fry them in butter.", "Bake the bread for forty minutes.", "Season the soup."],
    "finance": ["Shares fell after the earnings report.", "Inflation rose to three percent.", "The bank raised rates."],
    "sports": ["The team won the final.", "She broke the world record in the marathon.", "He scored a goal."],
    "weather": ["It will snow in the mountains.", "A storm is coming.", "Sunny spells with light winds tomorrow."],
}


def main() -> None:
    """Compute the mean embedding of each label's sentences, and save them."""
    here = Path(__file__).parent
    tokenizer = BertWordPieceTokenizer(str(here / "vocab.txt"), lowercase=True)
    tokenizer.enable_padding()
    model, centers = build(), []
    for sentences in SENTENCES.values():
        encoded = tokenizer.encode_batch(sentences)
        ids, mask = (torch.tensor([getattr(each, key) for each in encoded]) for key in ("ids", "attention_mask"))
        with torch.no_grad():
            center = model(ids, mask).mean(0).numpy()
        centers.append(center / np.linalg.norm(center))
    np.savez(here / "labels.npz", names=np.array(list(SENTENCES)), centers=np.stack(centers).astype(np.float32))


if __name__ == "__main__":
    main()
