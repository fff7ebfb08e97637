"""transformers directories: inputs, dims and names are derived from the task and the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.conformance.case import Case, Entry, signature, written
from tests.conformance.cases import architectures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SPEECH_WHY = "a row's output depends on that row only"


def _entry(name: str, **source: Any) -> Entry:
    return {"source": {"kind": "huggingface", "model": name, **source}}


def _case(name: str, model: str, twin: Entry, expected: str = "batch", why: str = architectures.LOGITS) -> Case:
    return Case(name, _entry(name), expected, why, written("hub", "saved", model), twin)


def _bad(name: str, code: str, why: str, files: Callable[[Path], None], **source: Any) -> Case:
    return Case(name, _entry(name, **source), f"rejected:{code}", why, files, architectures.TEXT)


CASES = (
    _case("hf_text_classification", "bert", architectures.TEXT),
    _case("hf_token_classification", "distilbert", architectures.TEXT),
    _case("hf_question_answering", "xlm_roberta", architectures.TEXT),
    _case("hf_feature_extraction", "bert_base", architectures.TEXT),
    _case("hf_fill_mask", "roberta", architectures.TEXT),
    _case("hf_deberta", "deberta", architectures.TEXT),
    _case("hf_causal", "gpt2_cached", architectures.TEXT, why="logits without the cache, which its config switches on"),
    _case(
        "hf_decoder_classes",
        "gpt2_classes",
        architectures.TEXT,
        why="the last token before padding determines the class",
    ),
    _case("hf_llama", "llama", architectures.TEXT),
    _case("hf_seq2seq", "t5", architectures.PAIRS, why="the encoder is published"),
    _case("hf_t5_encoder", "t5_encoder", architectures.TEXT),
    _case("hf_layout", "layoutlm", architectures.DOCUMENTS, why="boxes are an input, according to its config"),
    Case(
        "hf_zero_shot",
        _entry("hf_zero_shot", task="zero-shot-classification"),
        "batch",
        "logits of natural language inference, one row per hypothesis",
        written("hub", "zero_shot", "bert"),
        architectures.TEXT,
    ),
    _case("hf_image_classification", "vit", architectures.IMAGE),
    Case(
        "hf_resnet",
        _entry("hf_resnet"),
        "batch",
        "the image size is in the processor's config",
        written("hub", "with_image_size", "resnet", 64),
        architectures.LARGE_IMAGE,
    ),
    _case("hf_segmentation", "segformer", signature(pixel_values="float32 batch 3 224 224")),
    _case("hf_detection", "yolos", architectures.IMAGE, why="boxes and logits of each image"),
    Case(
        "hf_detr",
        _entry("hf_detr"),
        "batch",
        "boxes and logits of each image",
        written("hub", "with_image_size", "detr", 64),
        architectures.LARGE_IMAGE,
    ),
    _case("hf_depth", "dpt", architectures.IMAGE, why="one depth map per image"),
    _case("hf_ctc", "wav2vec2", architectures.SPEECH, why=_SPEECH_WHY),
    _case("hf_audio_classification", "wav2vec2_classes", architectures.SPEECH, why=_SPEECH_WHY),
    _case("hf_ast", "ast", signature(input_values="float32 batch 64 32"), why=_SPEECH_WHY),
    _case("hf_clip", "clip", architectures.CAPTIONS, "single", "every image is scored against every text"),
    _case("hf_siglip", "siglip", architectures.CAPTIONS, "single", "every image is scored against every text"),
    Case(
        "hf_bf16",
        _entry("hf_bf16"),
        "batch",
        "bf16 is served as float32",
        written("hub", "brain", "bert"),
        architectures.TEXT,
    ),
    Case(
        "hf_half",
        _entry("hf_half", dtype="float16"),
        "batch",
        "float16 was requested",
        written("hub", "saved", "vit"),
        architectures.IMAGE,
    ),
    Case(
        "hf_sharded",
        _entry("hf_sharded"),
        "batch",
        "weights in several files",
        written("hub", "sharded", "bert"),
        architectures.TEXT,
    ),
    _bad(
        "hf_weights_missing",
        "source.hf-weights",
        "the classifier would be initialized randomly",
        written("hub", "without_weight", "bert", "classifier"),
    ),
    _bad(
        "hf_head_missing",
        "source.hf-weights",
        "an encoder without a head is used as a classifier",
        written("hub", "saved", "bert_base"),
        task="text-classification",
    ),
    _bad(
        "hf_weights_unexpected",
        "source.hf-weights",
        "an adapter that is not part of the architecture",
        written("hub", "with_extra_weight", "bert"),
    ),
    _bad("hf_remote_code", "source.hf-remote-code", "its code is not trusted", written("hub", "remote_code", "bert")),
    _bad(
        "hf_no_padding",
        "source.hf-files",
        "without pad_token_id, forward accepts only one row",
        written("hub", "without_padding", "gpt2_classes"),
    ),
    _bad("hf_no_config", "source.hf-files", "only weights", written("hub", "without_config", "bert")),
    _bad("hf_empty", "source.hf-files", "an empty directory", written("hub", "nothing")),
    _bad(
        "hf_no_task",
        "source.hf-task",
        "the config does not specify a task",
        written("hub", "without_architecture", "bert"),
    ),
    _bad(
        "hf_unknown_task",
        "source.hf-task",
        "there is no such task",
        written("hub", "saved", "bert"),
        task="mind-reading",
    ),
    _bad(
        "hf_pickle_bomb",
        "source.weights-unsafe",
        "weights that would run code",
        written("hub", "pickled_bomb", "bert"),
    ),
)
