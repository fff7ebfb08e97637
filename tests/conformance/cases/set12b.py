"""Audio, detection, quantization, attention and point clouds, as the owners of such models write them."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, signature


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set12b.py:{factory}", entry), expected, why)


_PCM = signature({"samples": (400, 1600)}, pcm="int16 batch samples -32768..32767")
_CHUNK: Entry = {
    "examples": "set12b.py:chunk_and_caches",
    "dims": {"batch": {"min": 1, "max": 8}, "frames": {"min": 1, "max": 20}},
}
_PHONEMES = signature(
    {"phonemes": (1, 14)},
    hidden="float32 batch phonemes 16",
    durations="int64 batch phonemes 0..3",
    speaker="int64 batch 0..3",
)
_IMAGE = signature(image="float32 batch 3 height width")
_MASKS: Entry = {
    "examples": "set12b.py:boxes_and_prototypes",
    "dims": {
        "batch": {"min": 1, "max": 8},
        "height": {"min": 6, "max": 20},
        "width": {"min": 6, "max": 20},
        "instances": {"min": 1, "max": 7},
    },
}
_TEXT = signature(x="float32 batch sequence 32", lengths="int64 batch 1..24")
_STEP = signature(
    {"step": (1, 4), "past": (1, 16)},
    ids="int64 batch step 0..49",
    past_key="float32 batch 2 past 8",
    past_value="float32 batch 2 past 8",
)
_CACHE: Entry = {
    "examples": "set12b.py:token_and_cache",
    "dims": {"batch": {"min": 1, "max": 8}, "past": {"min": 1, "max": 16}},
}
_BOXES: Entry = {"examples": "set12b.py:boxes_and_scores", "dims": {"batch": {"min": 1, "max": 8}}}

CASES = (
    _case("pcm_vad", "PcmVad", "batch", "each row has its own spectrogram, mean and GRU", _PCM),
    _case("causal_stream", "CausalStream", "batch", "each row has its own caches, which are inputs", _CHUNK),
    _case("vits_decoder", "VitsDecoder", "batch", "durations of each row give a path over 24 frames", _PHONEMES),
    _case("anchor_boxes", "AnchorBoxes", "batch", "the six best of each image; anchors depend on its size", _IMAGE),
    _case("center_keypoints", "CenterKeypoints", "batch", "the five highest peaks of each image", _IMAGE),
    _case("prototype_masks", "PrototypeMasks", "batch", "masks of each image's own boxes", _MASKS),
    _case("alibi_groups", "AlibiGroups", "batch", "attention within each row, up to its length", _TEXT),
    _case("rotary_cache", "RotaryCache", "batch", "positions are counted from the size of the cache", _STEP),
    _case(
        "attention_dropout",
        "ScoresWithDropout",
        "rejected:source.random",
        "scaled_dot_product_attention applies dropout_p in every mode",
        signature(x="float32 batch sequence 16"),
    ),
    _case(
        "masked_cache",
        "MaskedCache",
        "rejected:source.derived-dim",
        "the mask is one longer than the cache, which config.pbtxt cannot express",
        _CACHE,
    ),
    _case(
        "quantized_residual",
        "quantized_residual",
        "batch",
        "static quantization is exported, and all scales are fixed",
        signature(image="float32 batch 3 16 16"),
    ),
    _case(
        "observing_quantizers",
        "observing_quantizers",
        "rejected:source.stateful",
        "observers that are enabled change the scales in each call, even in evaluation mode",
        signature(image="float32 batch 3 16 16"),
    ),
    _case(
        "outlier_columns",
        "OutlierColumns",
        "single",
        "a large value in one row changes how all rows are rounded, and no random row has one",
        signature(x="float32 batch 32"),
    ),
    _case(
        "look_back_windows",
        "LookBackWindows",
        "batch",
        "windows of eight within each row, for any length",
        signature({"time": (1, 40)}, x="float32 batch time 16"),
    ),
    _case(
        "farthest_points",
        "FarthestPoints",
        "batch",
        "eight of each cloud's own points",
        signature({"points": (8, 60)}, points="float32 batch points 3", intensity="float32 batch points"),
    ),
    _case(
        "photo_intake",
        "PhotoIntake",
        "batch",
        "photos as uint8, each with its own contrast",
        signature(photo="uint8 batch height width 3 0..255"),
    ),
    _case(
        "late_interaction",
        "LateInteraction",
        "batch",
        "a score for each pair of a query and a passage, whose lengths are independent",
        signature(
            {"words": (1, 12), "tokens": (1, 30)},
            query="float16 batch words 16",
            passage="float16 batch tokens 16",
            keep="bool batch tokens",
        ),
    ),
    _case("shared_offsets", "SharedOffsets", "single", "wide images overlap with the next ones", _BOXES),
    _case(
        "statistics_pooling",
        "StatisticsPooling",
        "rejected:parity.not-finite",
        "the deviation of one frame is NaN, and the declared lengths include 1",
        signature({"time": (1, 40)}, features="float32 batch time 8"),
    ),
    _case(
        "frozen_backbone",
        "FrozenBackbone",
        "rejected:source.training-mode",
        "train() does not call that of the parent class, so dropout stays on",
        _IMAGE,
    ),
)
