"""Audio, detection, quantization, streams, text and vision, as the owners of such models write them."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, signature, written


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set14b.py:{factory}", entry), expected, why)


def _onnx(name: str, writer: str, expected: str, why: str) -> Case:
    source = {"kind": "onnx", "path": f"{name}/model.onnx"}
    return Case(name, {"source": source}, expected, why, written("set14b", writer))


_BATCH = {"batch": {"min": 1, "max": 8}}
_SENTENCES: Entry = {
    "examples": "set14b.py:sentences",
    "dims": {"tokens": {"min": 12, "max": 40}, "count": {"min": 2, "max": 6}},
}
_WORDS = signature({"sequence": (4, 24)}, ids="int64 batch sequence 1..59", lengths="int64 batch 1..24")
_CTC = signature({"time": (1, 20)}, logits="float32 batch time 9", last="int64 batch 0..8", silence="int64 batch 0..30")

CASES = (
    _case(
        "vocos_head",
        "VocosHead",
        "batch",
        "istft of magnitudes and phases that each row's own frames determine",
        signature({"time": (4, 30)}, mel="float32 batch 16 time"),
    ),
    _case(
        "soft_nms_loop",
        "SoftNmsLoop",
        "batch",
        "six rounds within the boxes of each image",
        signature(deltas="float32 batch 15 4", logits="float32 batch 15"),
    ),
    _case(
        "region_growing",
        "RegionGrowing",
        "batch",
        "the pooling that grows regions runs over height and width, not over rows",
        signature({"height": (6, 20), "width": (6, 20)}, logits="float32 batch height width"),
    ),
    _case(
        "power_of_two_scales",
        "PowerOfTwoScales",
        "batch",
        "fake quantization with fixed scales",
        signature(image="float32 batch 3 16 16"),
    ),
    _case(
        "int8_cache",
        "Int8Cache",
        "batch",
        "each row has its own cache, scales and position in the cache",
        {"examples": "set14b.py:token_and_int8_cache", "dims": _BATCH},
    ),
    _case(
        "retention_chunk",
        "RetentionChunk",
        "batch",
        "each row has its own state; GroupNorm has rows and steps on axis 0",
        signature({"time": (1, 16)}, x="float32 batch time 16", state="float32 batch 2 8 8"),
    ),
    _case("ctc_chunks", "CtcChunks", "batch", "symbols and counters of each row; the sort is stable", _CTC),
    _case(
        "span_marker",
        "SpanMarker",
        "batch",
        "spans within each row; the only scores that are equal are those of missing spans, which are -1",
        _WORDS,
    ),
    _case(
        "mask_predict",
        "MaskPredict",
        "batch",
        "a fixed number of rounds, in which each row writes its own least certain words again",
        signature(encoded="float32 batch sequence 16", keep="bool batch sequence"),
    ),
    _case(
        "flexi_patches",
        "FlexiPatches",
        "batch",
        "positions depend only on the size of the image",
        signature(image="float32 batch 3 height width"),
    ),
    _case(
        "unet_skips",
        "UnetSkips",
        "batch",
        "the bounds are multiples of four, and both PyTorch and the graph reject other sizes",
        signature(image="float32 batch 1 height width"),
    ),
    _onnx("onnx_quantized_convolution", "quantized_convolution", "batch", "all scales are constants"),
    _onnx("onnx_suppression", "suppression", "single", "one row of the output for each box that remains"),
    _case(
        "forgotten_unsort",
        "ForgottenUnsort",
        "single",
        "answers are in the order of lengths, not in that of the rows",
        _WORDS,
    ),
    _case(
        "temporal_shift",
        "TemporalShift",
        "single",
        "axis 0 is the frames of a clip, and channels come from the frames before and after",
        signature({"time": (2, 12)}, frames="float32 time 16 6 6"),
    ),
    _case(
        "stacked_state",
        "StackedState",
        "single",
        "axis 0 of the state is hidden state and cell",
        signature(chunk="float32 batch 64", state="float32 2 batch 24"),
    ),
    _case(
        "masked_autoencoder",
        "MaskedAutoencoder",
        "rejected:source.random",
        "torch.rand chooses the patches that remain, even in evaluation mode",
        signature(image="float32 batch 3 32 32"),
    ),
    _case(
        "recent_frames",
        "RecentFrames",
        "rejected:source.stateful",
        "a deque keeps the frames of the last calls",
        signature(frame="float32 1 16"),
    ),
    _case(
        "sentence_means",
        "SentenceMeans",
        "rejected:export.data-dependent",
        "the lengths of the sentences become Python numbers",
        _SENTENCES,
    ),
    _case(
        "padded_overlap",
        "PaddedOverlap",
        "rejected:parity.not-finite",
        "the overlap of two padded boxes is 0 / 0",
        {"examples": "set14b.py:padded_boxes", "dims": _BATCH},
    ),
)
