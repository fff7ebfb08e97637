"""Small transformers models with random weights, one per task, saved with ``save_pretrained``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {**SIZES, "vocab_size": 99, "max_position_embeddings": 40}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8}
SOUND = {
    **SIZES, "conv_dim": (8, 8), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "vocab_size": 12,
}  # fmt: skip
COLORS = {"id2label": {0: "red", 1: "green", 2: "deep blue"}, "label2id": {"red": 0, "green": 1, "deep blue": 2}}
SEQ2SEQ = {
    "vocab_size": 99, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40,
}  # fmt: skip
PYRAMID = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16,
}  # fmt: skip


def _new(architecture: str, config: str, **settings: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, architecture)(getattr(transformers, config)(**settings))


def _clip() -> Any:
    text = {**TEXT, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=IMAGE, projection_dim=8))


MODELS: dict[str, Callable[[], Any]] = {
    "text-classification": _new("BertForSequenceClassification", "BertConfig", **TEXT, **COLORS),
    "token-classification": _new("RobertaForTokenClassification", "RobertaConfig", **TEXT, num_labels=5),
    "question-answering": _new("DistilBertForQuestionAnswering", "DistilBertConfig", vocab_size=99, dim=16,
                               n_layers=1, n_heads=2, hidden_dim=24, max_position_embeddings=40),
    "fill-mask": _new("BertForMaskedLM", "BertConfig", **TEXT),
    "text-generation": _new("LlamaForCausalLM", "LlamaConfig", **TEXT, num_key_value_heads=1),
    "feature-extraction": _new("MPNetModel", "MPNetConfig", **TEXT),
    "seq2seq-encoder": _new("T5ForConditionalGeneration", "T5Config", vocab_size=99, d_model=16, d_kv=8, d_ff=24,
                           num_layers=1, num_heads=2),
    "zero-shot-classification": _new("BartForSequenceClassification", "BartConfig", **SEQ2SEQ,
                                    id2label={0: "contradiction", 1: "neutral", 2: "entailment"}),
    "image-classification": _new("ViTForImageClassification", "ViTConfig", **IMAGE, **COLORS),
    "image-feature-extraction": _new("ViTModel", "ViTConfig", **IMAGE),
    "any-size-classification": _new("ResNetForImageClassification", "ResNetConfig", embedding_size=4,
                                   hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", **COLORS),
    "image-segmentation": _new("SegformerForSemanticSegmentation", "SegformerConfig", **PYRAMID, image_size=64,
                              num_labels=4),
    "object-detection": _new("YolosForObjectDetection", "YolosConfig", **{**IMAGE, "image_size": [32, 48]},
                            num_detection_tokens=5, num_labels=4),
    "depth-estimation": _new("GLPNForDepthEstimation", "GLPNConfig", **PYRAMID),
    "audio-classification": _new("ASTForAudioClassification", "ASTConfig", **SIZES, max_length=64, num_mel_bins=32,
                                **COLORS),
    "automatic-speech-recognition": _new("Wav2Vec2ForCTC", "Wav2Vec2Config", **SOUND),
    "speech-encoder": _new("WhisperForConditionalGeneration", "WhisperConfig", **{**SEQ2SEQ, "vocab_size": 60},
                          num_mel_bins=8, max_source_positions=20, max_target_positions=20, pad_token_id=0,
                          bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                          begin_suppress_tokens=None),
    "zero-shot-image-classification": _clip,
}  # fmt: skip


def save(name: str, directory: Path, **settings: Any) -> Path:
    """Save one of ``MODELS`` in a directory and return it; ``settings`` are passed to ``save_pretrained``."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.save_pretrained(directory, **settings)
    return directory
