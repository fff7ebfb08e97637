"""Directories of transformers: inputs, dims and names come from task and config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.conformance.case import Case, Entry, signature, written
from tests.conformance.cases import architectures as given

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SPEECH_WHY = "a row's answer hangs on that row alone"


def _entry(name: str, **source: Any) -> Entry:
    return {"source": {"kind": "huggingface", "model": name, **source}}


def _case(name: str, model: str, twin: Entry, expected: str = "batch", why: str = given.LOGITS) -> Case:
    return Case(name, _entry(name), expected, why, written("hub", "saved", model), twin)


def _bad(name: str, code: str, why: str, files: Callable[[Path], None], **source: Any) -> Case:
    return Case(name, _entry(name, **source), f"refused:{code}", why, files, given.TEXT)


CASES = (
    _case("hf_text_classification", "bert", given.TEXT),
    _case("hf_token_classification", "distilbert", given.TEXT),
    _case("hf_question_answering", "xlm_roberta", given.TEXT),
    _case("hf_feature_extraction", "bert_base", given.TEXT),
    _case("hf_fill_mask", "roberta", given.TEXT),
    _case("hf_deberta", "deberta", given.TEXT),
    _case("hf_causal", "gpt2_cached", given.TEXT, why="logits without the cache, which its config switches on"),
    _case("hf_decoder_classes", "gpt2_classes", given.TEXT, why="the last token that is no padding tells the class"),
    _case("hf_llama", "llama", given.TEXT),
    _case("hf_seq2seq", "t5", given.PAIRS, why="its encoder"),
    _case("hf_t5_encoder", "t5_encoder", given.TEXT),
    _case("hf_layout", "layoutlm", given.DOCUMENTS, why="boxes are an input that its config tells of"),
    Case(
        "hf_zero_shot",
        _entry("hf_zero_shot", task="zero-shot-classification"),
        "batch",
        "logits of natural language inference, a row for each hypothesis",
        written("hub", "zero_shot", "bert"),
        given.TEXT,
    ),
    _case("hf_image_classification", "vit", given.IMAGE),
    Case(
        "hf_resnet",
        _entry("hf_resnet"),
        "batch",
        "the size of its images stands in the processor's config",
        written("hub", "with_image_size", "resnet", 64),
        given.LARGE_IMAGE,
    ),
    _case("hf_segmentation", "segformer", signature(pixel_values="float32 batch 3 224 224")),
    _case("hf_detection", "yolos", given.IMAGE, why="boxes and logits of each image"),
    Case(
        "hf_detr",
        _entry("hf_detr"),
        "batch",
        "boxes and logits of each image",
        written("hub", "with_image_size", "detr", 64),
        given.LARGE_IMAGE,
    ),
    _case("hf_depth", "dpt", given.IMAGE, why="one depth map an image"),
    _case("hf_ctc", "wav2vec2", given.SPEECH, why=_SPEECH_WHY),
    _case("hf_audio_classification", "wav2vec2_classes", given.SPEECH, why=_SPEECH_WHY),
    _case("hf_ast", "ast", signature(input_values="float32 batch 64 32"), why=_SPEECH_WHY),
    _case("hf_clip", "clip", given.CAPTIONS, "single", "every image is scored against every text"),
    _case("hf_siglip", "siglip", given.CAPTIONS, "single", "every image is scored against every text"),
    Case(
        "hf_bf16", _entry("hf_bf16"), "batch", "bf16 is served as float32", written("hub", "brain", "bert"), given.TEXT
    ),
    Case(
        "hf_half",
        _entry("hf_half", dtype="float16"),
        "batch",
        "float16 was asked for",
        written("hub", "saved", "vit"),
        given.IMAGE,
    ),
    Case(
        "hf_sharded",
        _entry("hf_sharded"),
        "batch",
        "weights in several files",
        written("hub", "sharded", "bert"),
        given.TEXT,
    ),
    _bad(
        "hf_weights_missing",
        "source.hf-weights",
        "the classifier would be drawn anew",
        written("hub", "without_weight", "bert", "classifier"),
    ),
    _bad(
        "hf_head_missing",
        "source.hf-weights",
        "a bare encoder is asked to classify",
        written("hub", "saved", "bert_base"),
        task="text-classification",
    ),
    _bad(
        "hf_weights_unexpected",
        "source.hf-weights",
        "an adapter that the architecture does not have",
        written("hub", "with_strange_weight", "bert"),
    ),
    _bad("hf_remote_code", "source.hf-remote-code", "its code is not trusted", written("hub", "remote_code", "bert")),
    _bad(
        "hf_no_padding",
        "source.hf-files",
        "without pad_token_id its forward takes one row",
        written("hub", "without_padding", "gpt2_classes"),
    ),
    _bad("hf_no_config", "source.hf-files", "weights alone", written("hub", "without_config", "bert")),
    _bad("hf_empty", "source.hf-files", "an empty directory", written("hub", "nothing")),
    _bad(
        "hf_no_task",
        "source.hf-task",
        "the config does not say what the model is for",
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
