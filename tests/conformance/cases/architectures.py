"""Real architectures, each as a factory with declared inputs."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, signature

_IDS = "int64 batch sequence 3..98"
_MASK = "int64 batch sequence 0..1"
TEXT: Entry = {
    **signature(input_ids=_IDS, attention_mask=_MASK),
    "examples": "architectures.py:text",
}
PAIRS: Entry = {
    **signature(input_ids=_IDS, attention_mask=_MASK, decoder_input_ids="int64 batch target 3..98"),
    "examples": "architectures.py:pairs",
}
DOCUMENTS: Entry = {
    **signature(input_ids=_IDS, attention_mask=_MASK, bbox="int64 batch sequence 4 0..100"),
    "examples": "architectures.py:documents",
}
CAPTIONS: Entry = {
    **signature(input_ids=_IDS, attention_mask=_MASK, pixel_values="float32 batch 3 32 32"),
    "examples": "architectures.py:captions",
}
IMAGE = signature(pixel_values="float32 batch 3 32 32")
ANY_IMAGE = signature(pixel_values="float32 batch 3 height width")
LARGE_IMAGE = signature(pixel_values="float32 batch 3 64 64")
SPEECH = signature(input_values="float32 batch samples")
LOGITS = "a row's logits depend on that row only"


def _built(name: str, entry: Entry, expected: str = "batch", why: str = LOGITS) -> Case:
    return Case(name, of_factory("architectures.py:build", entry, kwargs={"name": name}), expected, why)


_CONTRASTIVE = "every image is scored against every text: logits are [batch, batch]"

CASES = (
    _built("bert", TEXT),
    _built("bert_masked", TEXT),
    _built("distilbert", TEXT),
    _built("roberta", TEXT, why="positions are counted from the row's own padding"),
    _built("xlm_roberta", TEXT, why="start and end logits of each row"),
    _built("albert", TEXT),
    _built("electra", TEXT),
    _built("deberta", TEXT, why="relative positions depend only on the length"),
    _built("mpnet", TEXT),
    _built("fnet", signature(input_ids=_IDS), why="the Fourier transform runs over time and features, not over rows"),
    _built("modernbert", TEXT),
    _built("layoutlm", DOCUMENTS),
    _built("gpt2", TEXT),
    _built("gpt2_cached", TEXT, why="the cache is not an output: logits are exported with use_cache off"),
    _built("opt", TEXT),
    _built("gpt_neox", TEXT),
    _built("llama", TEXT),
    _built("mistral", TEXT, why="a sliding window of 8 within each row"),
    _built("qwen2", TEXT),
    _built("gemma", TEXT),
    _built("phi", TEXT),
    _built(
        "mamba",
        signature(input_ids=_IDS),
        "rejected:export.specialized-dim|parity.drift",
        "its scan is unrolled over the tokens",
    ),
    _built(
        "mamba_fixed",
        signature(input_ids="int64 batch 6 3..98"),
        why="the sequence has the one size that the scan was unrolled for",
    ),
    _built("t5", PAIRS),
    _built("t5_encoder", TEXT),
    _built("bart", PAIRS),
    _built("vit", IMAGE),
    _built("deit", IMAGE),
    _built("beit", IMAGE),
    _built("dinov2", IMAGE),
    _built("swin", IMAGE),
    _built("convnext", ANY_IMAGE),
    _built("resnet", ANY_IMAGE),
    _built("regnet", ANY_IMAGE),
    _built(
        "efficientnet",
        LARGE_IMAGE,
        "rejected:parity.drift",
        "in average pooling with ceil_mode, ONNX Runtime 1.19.2 divides by the size of the whole window; "
        "later versions do not",
    ),
    _built("mobilenet", IMAGE),
    _built("segformer", IMAGE),
    _built("glpn", LARGE_IMAGE),
    _built("dpt", IMAGE),
    _built("yolos", IMAGE),
    Case("detr", of_factory("architectures.py:detr", LARGE_IMAGE), "batch", "boxes and logits of each image"),
    _built("wav2vec2", SPEECH),
    _built("wav2vec2_classes", SPEECH),
    Case(
        "whisper_encoder",
        of_factory("architectures.py:whisper_encoder", signature(input_features="float32 batch 16 64")),
        "batch",
        "hidden states of each row",
    ),
    _built("ast", signature(input_values="float32 batch 64 32")),
    _built("clip", CAPTIONS, "single", _CONTRASTIVE),
    _built("siglip", CAPTIONS, "single", _CONTRASTIVE),
    _built("clip_vision", IMAGE),
)
