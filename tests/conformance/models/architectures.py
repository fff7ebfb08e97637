"""Small models of transformers' config classes, with seeded random weights, and matching inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import nn

Ints = npt.NDArray[np.int64]
# The configs accept more keywords than their types declare.
_hub: Any = transformers
_DEEP = frozenset({"efficientnet", "mobilenet"})

_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_labels": 3,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False}
_IMAGE = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 3,
}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3}
_SPEECH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4],
    "conv_kernel": [8, 8],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
    "classifier_proj_size": 16,
    "num_labels": 3,
}
_MAMBA = {"vocab_size": 99, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}
_T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False}
_BART = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
}
_TOWERS = {
    "text_config": {**_TEXT, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1},
    "vision_config": {**_IMAGE, "projection_dim": 16},
}
_SEGFORMER = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [16, 32],
    "sr_ratios": [2, 1],
    "num_attention_heads": [1, 2],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
    "num_labels": 3,
}
_GLPN = {
    "num_encoder_blocks": 4,
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 8, 16, 16],
    "sr_ratios": [4, 2, 2, 1],
    "num_attention_heads": [1, 1, 2, 2],
    "mlp_ratios": [2, 2, 2, 2],
    "decoder_hidden_size": 8,
}

# Name: model class, config class, the config's arguments.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", _TEXT),
    "bert_base": ("BertModel", "BertConfig", _TEXT),
    "bert_masked": ("BertForMaskedLM", "BertConfig", _TEXT),
    "distilbert": (
        "DistilBertForTokenClassification",
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "num_labels": 3},
    ),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _TEXT),
    "xlm_roberta": ("XLMRobertaForQuestionAnswering", "XLMRobertaConfig", {**_TEXT, "num_labels": 2}),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", {**_TEXT, "embedding_size": 16}),
    "electra": ("ElectraForTokenClassification", "ElectraConfig", {**_TEXT, "embedding_size": 16}),
    "deberta": (
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        {**_TEXT, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
    ),
    "mpnet": ("MPNetForSequenceClassification", "MPNetConfig", _TEXT),
    "fnet": ("FNetForSequenceClassification", "FNetConfig", {k: v for k, v in _TEXT.items() if "attention" not in k}),
    "modernbert": (
        "ModernBertForTokenClassification",
        "ModernBertConfig",
        {**_TEXT, "local_attention": 8, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "layoutlm": ("LayoutLMForTokenClassification", "LayoutLMConfig", {**_TEXT, "max_2d_position_embeddings": 128}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False},
    ),
    "gpt2_cached": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "gpt2_classes": (
        "GPT2ForSequenceClassification",
        "GPT2Config",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "pad_token_id": 0},
    ),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
            "use_cache": False,
        },
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_TEXT, "use_cache": False}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_DECODER, "sliding_window": 8}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _DECODER),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", _DECODER),
    "phi": ("PhiForCausalLM", "PhiConfig", {k: v for k, v in _DECODER.items() if k != "head_dim"}),
    "mamba": ("MambaForCausalLM", "MambaConfig", _MAMBA),
    "mamba_fixed": ("MambaForCausalLM", "MambaConfig", _MAMBA),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**_T5, "decoder_start_token_id": 0}),
    "t5_encoder": ("T5EncoderModel", "T5Config", _T5),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "vit": ("ViTForImageClassification", "ViTConfig", _IMAGE),
    "deit": ("DeiTForImageClassification", "DeiTConfig", _IMAGE),
    "beit": ("BeitForImageClassification", "BeitConfig", {**_IMAGE, "use_relative_position_bias": True}),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", _IMAGE),
    "swin": (
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "num_labels": 3,
        },
    ),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", {**_STAGES, "num_stages": 2}),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {**_STAGES, "embedding_size": 8}),
    "regnet": ("RegNetForImageClassification", "RegNetConfig", {**_STAGES, "embedding_size": 8, "groups_width": 4}),
    "efficientnet": (
        "EfficientNetForImageClassification",
        "EfficientNetConfig",
        {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "num_labels": 3},
    ),
    "mobilenet": (
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        {"image_size": 32, "depth_multiplier": 0.25, "num_labels": 3},
    ),
    "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", _SEGFORMER),
    "glpn": ("GLPNForDepthEstimation", "GLPNConfig", _GLPN),
    "dpt": (
        "DPTForDepthEstimation",
        "DPTConfig",
        {
            **_IMAGE,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 8, 8],
            "fusion_hidden_size": 8,
        },
    ),
    "yolos": ("YolosForObjectDetection", "YolosConfig", {**_IMAGE, "image_size": [32, 32], "num_detection_tokens": 5}),
    "wav2vec2": ("Wav2Vec2ForCTC", "Wav2Vec2Config", _SPEECH),
    "wav2vec2_classes": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _SPEECH),
    "ast": (
        "ASTForAudioClassification",
        "ASTConfig",
        {**_IMAGE, "max_length": 64, "num_mel_bins": 32, "time_stride": 8, "frequency_stride": 8},
    ),
    "clip": ("CLIPModel", "CLIPConfig", {**_TOWERS, "projection_dim": 16}),
    "clip_vision": (
        "CLIPVisionModelWithProjection",
        "CLIPVisionConfig",
        {**_IMAGE, "projection_dim": 16},
    ),
    "siglip": ("SiglipModel", "SiglipConfig", _TOWERS),
}


def build(name: str) -> nn.Module:
    """Return an architecture of the table, in evaluation mode."""
    model, config, arguments = MODELS[name]
    torch.manual_seed(0)
    network = _trained(getattr(_hub, model)(getattr(_hub, config)(**arguments)))
    return _calibrated(network) if name in _DEEP else network


def _trained(module: nn.Module) -> nn.Module:
    """Scale weights as training would: with initial weights, all outputs are nearly equal."""
    for parameter in module.parameters():
        if parameter.dim() > 2:
            nn.init.kaiming_normal_(parameter)
        elif parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
    return module.eval()


def _calibrated(module: nn.Module) -> nn.Module:
    """Set the statistics of batch norms from a batch; without them, the outputs of a deep CNN are close to zero."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 1.0
            nn.init.ones_(norm.weight)
    with torch.no_grad():
        module.train()(torch.randn(16, 3, 64, 64))
    return module.eval()


def detr() -> nn.Module:
    """Return a DETR with a small ResNet, which has a separate config, as backbone."""
    torch.manual_seed(0)
    backbone = _hub.ResNetConfig(**_STAGES, embedding_size=8, out_features=["stage2"])
    config = _hub.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=6,
        num_labels=3,
    )
    return _trained(_hub.DetrForObjectDetection(config))


def whisper_encoder() -> nn.Module:
    """Return only the encoder of a Whisper model: from log-mel features of a fixed length to hidden states."""
    torch.manual_seed(0)
    config = _hub.WhisperConfig(
        vocab_size=99,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return _trained(_hub.WhisperModel(config).get_encoder())


def text(batch: int, sequence: int, seed: int = 0) -> dict[str, Ints]:
    """Return token IDs with masks for padding on the right; all rows but the first are padded, to different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, sequence, batch, endpoint=True)
    lengths[0] = sequence
    mask = (np.arange(sequence) < lengths[:, None]).astype(np.int64)
    return {"input_ids": np.where(mask, rng.integers(3, 99, (batch, sequence)), 1), "attention_mask": mask}


def documents(batch: int, sequence: int, seed: int = 0) -> dict[str, Ints]:
    """Return text with one valid box per token: its first corner is above and to the left of the second."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 50, (batch, sequence, 2))
    high = low + rng.integers(0, 50, (batch, sequence, 2))
    return {**text(batch, sequence, seed), "bbox": np.concatenate([low, high], -1)}


def pairs(batch: int, sequence: int, target: int, seed: int = 0) -> dict[str, Ints]:
    """Return text, and the beginning of its translation."""
    rng = np.random.default_rng(seed + 1)
    return {**text(batch, sequence, seed), "decoder_input_ids": rng.integers(3, 99, (batch, target))}


def captions(batch: int, sequence: int, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Return as many images as texts."""
    rng = np.random.default_rng(seed)
    pixels = rng.standard_normal((batch, 3, 32, 32)).astype(np.float32)
    return {**text(batch, sequence, seed), "pixel_values": pixels}
