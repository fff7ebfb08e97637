"""A text classifier of a few kilobytes, as ``save_pretrained`` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "a", "text", "example", "why", "?", ".")


def write_text_classifier(directory: Path) -> None:
    """Write a BERT with three labels and its tokenizer."""
    from transformers import BertForSequenceClassification  # noqa: PLC0415 - most tests do not import torch

    _write(directory, BertForSequenceClassification)


def write_text_encoder(directory: Path) -> None:
    """Write a BERT without a head and its tokenizer."""
    from transformers import BertModel  # noqa: PLC0415 - as above

    _write(directory, BertModel)


def _write(directory: Path, kind: Any) -> None:
    import torch  # noqa: PLC0415 - as above
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415 - the same
    from transformers import BertConfig  # noqa: PLC0415 - the same

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, id2label={0: "bad", 1: "neutral", 2: "good"}, pad_token_id=0,
    )  # fmt: skip
    kind(config).save_pretrained(directory)
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
