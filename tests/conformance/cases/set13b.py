"""Models of a thirteenth set, written from the documentation alone; each verdict was fixed before the first build."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, signature, written


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set13b.py:{factory}", entry), expected, why)


def _onnx(name: str, writer: str, expected: str, why: str) -> Case:
    source = {"kind": "onnx", "path": f"{name}/model.onnx"}
    return Case(name, {"source": source}, expected, why, written("set13b", writer))


_STEREO = signature({"samples": (30, 500)}, stereo="float32 batch 2 samples")
_CHUNK = signature(chunk="float32 batch 32", filters="float32 batch 3 2", envelope="float32 batch")
_TRANSDUCER = signature(
    frame="float32 batch 20",
    symbol="int64 batch 0..31",
    last="float32 batch 24",
    hidden="float32 batch 2 24",
    cell="float32 batch 2 24",
)
_CLICKS = signature(
    {"height": (4, 12), "width": (4, 12), "points": (1, 6)},
    features="float32 batch 16 height width",
    points="float32 batch points 2",
    labels="int64 batch points -1..1",
)
_MASKS = signature(
    {"height": (6, 20), "width": (6, 20)},
    masks="float32 batch 12 height width",
    logits="float32 batch 12",
    labels="int64 batch 12 0..2",
)
_SUMMARY = signature(
    {"words": (1, 20)},
    source="int64 batch words 0..57",
    previous="int64 batch 0..57",
    context="float32 batch 24",
    state="float32 batch 24",
    covered="float32 batch words",
)
_REGIONS: Entry = {
    "examples": "set13b.py:features_and_rois",
    "dims": {
        "batch": {"min": 1, "max": 4},
        "height": {"min": 6, "max": 16},
        "width": {"min": 6, "max": 16},
        "rois": {"min": 1, "max": 12},
    },
}

CASES = (
    _case(
        "pcen_keywords",
        "PcenKeywords",
        "batch",
        "averages over earlier frames of the same row, as a product with powers of 0.9",
        signature({"samples": (400, 1600)}, wave="float32 batch samples"),
    ),
    _case("sinc_resampler", "SincResampler", "batch", "two thirds of the length, rounded up, of each row", _STEREO),
    _case("biquad_stream", "BiquadStream", "batch", "a loop over 32 samples; each row sends its own state", _CHUNK),
    _case("transducer_step", "TransducerStep", "batch", "each row keeps or replaces its own states", _TRANSDUCER),
    _case("mask_decoder", "MaskDecoder", "batch", "attention between an image and its own clicks", _CLICKS),
    _case("matrix_nms", "MatrixNms", "batch", "pairs of masks within each image, and the four best of them", _MASKS),
    _case(
        "int4_block",
        "Int4Block",
        "batch",
        "constants of int32 are shifted right and masked, so that the sign does not matter",
        signature(hidden="float32 batch sequence 32"),
    ),
    _case(
        "fx_commands",
        "fx_commands",
        "batch",
        "static quantization by FX has fixed scales",
        signature({"time": (4, 40)}, mel="float32 batch 20 time"),
    ),
    _case(
        "viterbi_tags",
        "ViterbiTags",
        "batch",
        "a path over 12 steps within each row, which ends at its length",
        signature(tokens="int64 batch 12 1..79", lengths="int64 batch 1..12"),
    ),
    _case(
        "beam_of_three",
        "BeamOfThree",
        "batch",
        "each beam is a row of the batch during the search, but is chosen only among the beams of one row of the input",
        signature(encoded="float32 batch 16"),
    ),
    _case(
        "pointer_generator",
        "PointerGenerator",
        "batch",
        "values are added into the flattened batch, at the offset of each row",
        _SUMMARY,
    ),
    _onnx("onnx_keras_lstm", "keras_lstm", "batch", "the transposed LSTM has time on axis 0, but the model does not"),
    _onnx(
        "onnx_dynamic_quantized",
        "dynamic_quantized",
        "single",
        "DynamicQuantizeLinear has one scale for the whole batch",
    ),
    _case(
        "proposal_budget",
        "ProposalBudget",
        "single",
        "rows affect each other if a batch has more than 100 positive scores; "
        "a batch of images with 20 anchors each seldom has that many",
        signature(deltas="float32 batch 20 4", logits="float32 batch 20"),
    ),
    _case("rois_of_images", "RoisOfImages", "single", "axis 0 of regions is not that of images", _REGIONS),
    _case(
        "relative_lengths",
        "RelativeLengths",
        "single",
        "the longest row of the batch determines where the other rows end",
        signature(mel="float32 batch sequence 12", lengths="int64 batch 1..24"),
    ),
    _case(
        "kept_embedding",
        "KeptEmbedding",
        "rejected:source.stateful",
        "another image of the same size gets the mask of the first one",
        signature(
            {"height": (16, 40), "width": (16, 40)}, image="float32 batch 3 height width", click="float32 batch 2"
        ),
    ),
    _case(
        "median_of_speech",
        "MedianOfSpeech",
        "rejected:export.data-dependent|export.dynamo|export.torchscript|export.no-translation",
        "SciPy computes a part, and a graph cannot call it: the result of that part would be a constant",
        signature({"time": (2, 30)}, mel="float32 batch time 12"),
    ),
    _case(
        "quantized_words",
        "quantized_words",
        "rejected:source.quantized|export.no-translation",
        "the packed weights of a quantized embedding are not tensors",
        signature(ids="int64 batch sequence 0..199"),
    ),
    _case(
        "speaker_affinity",
        "SpeakerAffinity",
        "rejected:parity.not-finite",
        "rounding makes the squared distance of a segment to itself negative, so its root is NaN",
        signature({"segments": (2, 16)}, segments="float32 batch segments 16"),
    ),
)
