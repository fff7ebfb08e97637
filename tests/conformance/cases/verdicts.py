"""Models whose verdicts were once wrong: one for each class of fault."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature, written


def _case(name: str, factory: str, expected: str, why: str, entry: Entry | None = None, **source: object) -> Case:
    return Case(name, of_factory(f"verdicts.py:{factory}", entry, **source), expected, why)


def _file(name: str, expected: str, why: str, *writer: object, entry: Entry | None = None) -> Case:
    source = {"kind": "onnx", "path": f"{name}/model.onnx"}
    return Case(name, {"source": source, **(entry or {})}, expected, why, written("onnx_files", *writer))  # type: ignore[arg-type]


def _archive(name: str, source: Entry, writer: str, entry: Entry) -> Case:
    path = f"{name}/model.{'pt' if writer.endswith('script') else 'pt2'}"
    document = {"source": {**source, "path": path}, **entry}
    return Case(name, document, "batch", "bfloat16 inside an archive", written("archives", writer))


_TARGETS = signature(x="float32 batch 4", target="int64 batch 0..4")
_BAGS = signature(ids="int64 batch 6 0..19", weights="float32 batch 6")
_IDS = signature(x="int32 batch 12 0..3")
_LARGE_IDS = signature(ids=f"int64 batch 3 0..{1 << 40}")
_TIME = signature(x="float32 batch time 4")
_RAGGED: Entry = {
    "max_batch_size": 8,
    "input": {"values": {"allow_ragged_batch": True}},
    "batch_input": [{"kind": "BATCH_ELEMENT_COUNT", "target_name": ["counts"], "source_input": ["values"]}],
    "batch_output": [{"target_name": ["y"], "source_input": ["values"]}],
}
_RAGGED_MEANS: Entry = {
    "inputs": {
        "values": {"dtype": "float32", "shape": ["elements"]},
        "counts": {"dtype": "int32", "shape": ["requests"]},
    },
    "dims": {"elements": {"max": 512}, "requests": {"max": 8}},
    "outputs": ["mean", "centered"],
    "triton": {
        "max_batch_size": 8,
        "input": {"values": {"allow_ragged_batch": True}},
        "batch_input": [
            {"kind": "BATCH_ELEMENT_COUNT", "target_name": ["counts"], "source_input": ["values"]},
        ],
        "batch_output": [{"target_name": ["centered"], "source_input": ["values"]}],
    },
}
_POINTS = signature({"points": (10, 80)}, x="float32 batch points 4")
_WINDOW_OF_FOUR = signature({"time": (1, 40)}, x="float32 batch time 4")
_STEPS_OF_FOUR = signature({"time": (3, 40)}, x="float32 batch time 4")
_WINDOW = signature({"time": (2, 40)}, x="float32 batch time")
_MANY_IDS = signature({"items": (1, 20)}, ids="int64 batch items 0..1099511627776")
_TWO_ROWS = signature({"batch": (2, 8)}, x="float32 batch 4")
_STEPS = signature({"time": (2, 64)}, x="float32 batch time")
_MISSING: Entry = {"examples": "verdicts.py:with_missing", **ranges("batch")}
_SIGNAL = signature({"time": (24, 200)}, x="float32 batch time")
_LONGER: Entry = {**_WINDOW_OF_FOUR, "export": {"exporter": "dynamo"}}
_STREAM: Entry = {
    "examples": "verdicts.py:frames",
    **signature(frame="float32 batch 4", buffer="float32 batch 12", level="float32 batch 1"),
    "outputs": ["score", "next_buffer", "next_level"],
}
_IMAGE = signature({"height": (8, 40), "width": (8, 40)}, image="float32 batch 1 height width")
_FRAME = signature({"height": (8, 130), "width": (8, 130)}, image="float32 batch 1 height width")
_TORCHSCRIPT: Entry = {"export": {"exporter": "torchscript"}}
_FROZEN = "parity.drift|export.specialized-dim"

CASES = (
    _case("tiny_frozen", "FrozenBranch", f"rejected:{_FROZEN}", "outputs of 1e-7", _TIME, kwargs={"magnitude": 1e-7}),
    _case("tiny_mixed", "MixedRows", "single", "rows of 1e-7 minus their mean", kwargs={"magnitude": 1e-7}),
    _case("columns_of_scales", "ColumnsOfScales", "single", "rows mix in the column of 1e-4 next to columns of 1000"),
    _case("loudest_row", "LoudestRow", "single", "values are clamped to at least 1e-8 of the batch's largest value"),
    _case("large_sums", "LargeSums", "single", "another branch for a large sum over the batch"),
    Case(
        "lazy",
        of_factory("verdicts.py:Lazy", weights="lazy/weights.safetensors"),
        "batch",
        "the weights give lazy modules their shapes",
        written("archives", "lazy_weights"),
    ),
    _case("lazy_without_weights", "Lazy", "rejected:source.meta", "the first forward would initialize random weights"),
    _case("stable_sort", "StableSort", "batch", "equal values keep their order", _IDS),
    _case("large_ids", "Hashed", "batch", "identifiers beyond int32", _LARGE_IDS),
    _case("saturated_scores", "Saturated", "batch", "constant labels; large inputs make all scores equal"),
    _case("nearest", "Nearest", "batch", "distances to stored vectors, and a vote"),
    _case("tiny", "Scaled", "batch", "outputs of 1e-7, correct", kwargs={"magnitude": 1e-7}),
    _case("huge_rounded", "Rounded", "batch", "rounding of outputs of 1000", signature(x="float32 batch 64")),
    _case("masked_logits", "Masked", "batch", "-inf at the same places"),
    _case(
        "positive_examples",
        "SignOfTheSum",
        "single",
        "one branch for the whole batch; no example takes the other one",
        {"examples": "verdicts.py:positive"},
    ),
    _case(
        "fused_in_the_target",
        "Normed",
        "batch",
        "only one exporter's graph loads in ONNX Runtime 1.19.2",
        signature(x="float32 batch 3 4"),
    ),
    _case(
        "packed_gru",
        "PackedGru",
        "single",
        "padded to the longest row of a batch",
        {"examples": "verdicts.py:padded", **ranges("batch", "time")},
    ),
    _case(
        "packed_last_state",
        "PackedLastState",
        "batch",
        "packed rows, of which only the last state is used",
        {"examples": "verdicts.py:padded", **ranges("batch", "time")},
    ),
    _case("statically_quantized", "statically_quantized", "batch", "fixed scales are exported"),
    _case(
        "any_keywords",
        "AnyKeywords",
        "batch",
        "forward(**batch)",
        signature(x="float32 batch 4", scale="float32 batch 1"),
    ),
    _case("autocast_bf16", "Autocast", "batch", "bfloat16 inside becomes float32"),
    _case("casts_to_bf16", "CastsToBfloat16", "batch", "weights and explicit casts in bfloat16"),
    _case("inverse_fft", "InverseFft", "batch", "a filter in the frequency domain", signature(x="float32 batch 16")),
    _case("inverse_stft", "InverseStft", "batch", "stft and istft", signature(x="float32 batch 256")),
    _case("bytes", "Bytes", "batch", "arithmetic on uint8", {"examples": "verdicts.py:images"}),
    _case("argmax_of_ids", "ArgmaxOfIds", "batch", "ArgMax of int64", {"examples": "verdicts.py:token_ids"}),
    _case("narrow_fake_quantize", "NarrowFakeQuantize", "batch", "fake quantization from -127 to 127"),
    _case("quantization_aware", "quantization_aware", "batch", "FakeQuantize modules whose observers are off"),
    _case(
        "gru_with_state",
        "GruWithState",
        "batch",
        "the exporter declares wrong sizes of outputs",
        signature({"time": (1, 20)}, x="float32 batch time 4", state="float32 batch 2 6"),
    ),
    _case(
        "ragged_counts",
        "SoftmaxOfRows",
        "batch",
        "rows of different lengths, whose lengths Triton provides",
        {
            **signature({"elements": (1, 64), "rows": (1, 8)}, values="float32 elements", counts="int32 rows 1..4"),
            "outputs": ["y"],
            "triton": _RAGGED,
        },
    ),
    _case(
        "complex_inverse", "ComplexInverse", "rejected:export.no-translation", "ONNX has no inverse of complex matrices"
    ),
    _case("compiled_part", "compiled_part", "batch", "a layer behind torch.compile"),
    _case(
        "shared_name_after_retry",
        "SharedName",
        "rejected:source.shared-name",
        "an output has the name of an input; forward rejects the first sizes that are tried",
        signature({"time": (17, 64)}, x="float32 batch time"),
    ),
    _case(
        "bf16_examples",
        "compiled_part",
        "batch",
        "examples in bfloat16 are cast to float32",
        {"examples": "verdicts.py:bfloat16_examples"},
    ),
    _case("repeated_rows", "Repeated", "single", "a row that equals an earlier one is set to zero"),
    _case("quota_of_large_rows", "Quota", "single", "the third and later large rows are set to zero"),
    _case("peak_so_far", "Peak", "rejected:source.stateful", "a maximum over all requests, which examples stay below"),
    _case("label_smoothing", "Smoothed", "batch", "the exporter ignores label_smoothing", _TARGETS),
    _case("padded_bags", "PaddedBags", "batch", "padding_idx of an EmbeddingBag", _BAGS),
    _case(
        "spectrum_of_400",
        "Spectrum",
        "batch",
        "ONNX Runtime's transform of 400 values has an error of 2e-3",
        signature(x="float32 batch 400"),
    ),
    _case(
        "quiet_signal",
        "Levelled",
        "batch",
        "an exporter's rewrite would drop + 1e-8",
        {"examples": "verdicts.py:quiet", **ranges("batch")},
    ),
    _case("integer_division", "Buckets", "batch", "quotients beyond float32", _LARGE_IDS),
    _case(
        "bins",
        "Bins",
        "batch",
        "quotients and remainders of multiples of the divisor",
        {"examples": "verdicts.py:grid", **ranges("batch")},
    ),
    _case(
        "exact_bins",
        "Bins",
        "batch",
        "quotients and remainders of multiples of the divisor, in float64",
        {"examples": "verdicts.py:exact_grid", **ranges("batch")},
    ),
    _case(
        "fno",
        "FourierOperator",
        "batch",
        "complex weights, an einsum, and slices of a spectrum",
        signature(x="float32 batch 16 2"),
    ),
    _case(
        "complex_rotation",
        "Rotary",
        "batch",
        "pairs of values as complex numbers",
        signature(x="float32 batch time 8"),
    ),
    _case(
        "largest_id",
        "LargestId",
        "batch",
        "ONNX Runtime's maximum of int64 is wrong for some rows",
        signature(ids=f"int64 batch 9 0..{1 << 40}"),
    ),
    _case(
        "adaptive_pooling",
        "Pooled",
        "rejected:export.no-translation|export.specialized-dim|parity.drift",
        "windows of several sizes, which depend on the size of the image",
        signature({"height": (16, 40), "width": (16, 40)}, image="float32 batch 3 height width"),
    ),
    _case("lstm_projection", "Projected", "rejected:export.no-translation", "ONNX has no LSTM with proj_size", _TIME),
    _case("forces", "Forces", "rejected:export.dynamo|export.no-translation", "a gradient inside forward"),
    _case(
        "heading",
        "Heading",
        "batch",
        "atan2 of (0, -1) is pi, and exporters write -pi",
        signature(track="int32 batch time 2 -3..3"),
    ),
    _case(
        "cache_by_position",
        "PositionCache",
        "rejected:source.stateful",
        "a call reads cache positions that earlier calls wrote; the examples might not show this, if they write only "
        "to higher positions",
        signature(x="float32 batch 4", position="int64 1 1..63"),
    ),
    _case("ragged_means", "RowMeans", "batch", "each row has at least one element", _RAGGED_MEANS),
    _case("shared_scale", "SharedScale", "single", "all rows are rounded with one scale"),
    _case("counted_points", "CountedPoints", "batch", "len() of a tensor of a derived size", _TIME),
    _case("log_density", "LogDensity", "batch", "torch.distributions checks its arguments with branches on values"),
    _case(
        "squeezed",
        "Squeezed",
        "rejected:source.declared-size",
        "squeeze() also removes a batch of 1: no output shape fits",
    ),
    _case(
        "hour_of_day",
        "HourOfDay",
        "rejected:parity.non-deterministic",
        "the hour of the build would be a constant of the graph",
    ),
    _case("faint_counter", "FaintCounter", "rejected:source.stateful", "outputs of 1e-7 depend on the number of calls"),
    _case(
        "nearest_pixels",
        "NearestPixels",
        "batch",
        "ONNX Runtime's Resize returns other rows for some sizes, such as 42",
        signature({"height": (8, 47), "width": (8, 47)}, image="float32 batch 1 height width"),
    ),
    _case(
        "optical_depth",
        "OpticalDepth",
        "batch",
        "log1p and expm1 of 1e-8, which exporters write as log(1 + x) and exp(x) - 1",
        {"examples": "verdicts.py:transmitted", **ranges("batch")},
    ),
    _case("log_odds", "LogOdds", "batch", "logsigmoid and logaddexp of -100, for which the formulas are infinite"),
    _case(
        "best_points", "BestPoints", "batch", "at most 50 of 10 to 80 points: min() is exported as an operator", _POINTS
    ),
    _case("rolling_hash", "RollingHash", "batch", "powers of 31 beyond 2^53, which ONNX Runtime rounds", _MANY_IDS),
    _case(
        "pressure",
        "Pressure",
        "batch",
        "ONNX Runtime 1.19.2's LayerNormalization is inexact for values of 101325 plus or minus 50",
        {"examples": "verdicts.py:pascals", **ranges("batch"), "parity": {"atol": 1e-3}},
    ),
    _case("ordered_classes", "OrderedClasses", "batch", "logcumsumexp far below the maximum of a row"),
    _case(
        "strain",
        "Strain",
        "batch",
        "hypot of 1e-22, whose square is not exact in float32",
        {"examples": "verdicts.py:waves", **ranges("batch")},
    ),
    _case("robust_window", "RobustWindow", "batch", "median, kthvalue, cumprod and cummax are expressible", _WINDOW),
    _case(
        "new_users",
        "NewUsers",
        "batch",
        "a query whose keys are all masked returns zeros, and exporters write an average",
        signature({"history": (1, 6)}, candidate="int64 batch 0..19", history="int64 batch history 0..1"),
    ),
    _case(
        "proportions",
        "Proportions",
        "batch",
        "sizes from int(), and linspace of a size, which exporters make constant",
        signature({"height": (12, 24), "width": (12, 24)}, image="float32 batch 1 height width"),
    ),
    _case(
        "scaled_sums",
        "ScaledSums",
        "batch",
        "float() and math.sqrt of a size, which exporters make constant",
        _WINDOW_OF_FOUR,
    ),
    _case("list_of_rows", "ListOfRows", "rejected:source.outputs", "one output for each row", _TWO_ROWS),
    _case("tenths", "Tenths", "batch", "arange(0, n * 0.1, 0.1), whose length exporters compute in float32", _STEPS),
    _case("missing_values", "MissingValues", "batch", "NaN in the examples, which forward replaces", _MISSING),
    _case(
        "largest_of_missing",
        "LargestOfMissing",
        "rejected:parity.drift",
        "ONNX Runtime's ArgMax skips the NaN of the examples",
        _MISSING,
    ),
    _case("left_tail", "LeftTail", "batch", "log_ndtr of -30, which exporters write as log of 1 - erf(x)"),
    _case(
        "certain_logits",
        "CertainLogits",
        "batch",
        "TorchScript's binary_cross_entropy_with_logits is NaN for 20",
        {**signature(x="float32 batch 4", target="float32 batch 4"), **_TORCHSCRIPT},
    ),
    _case(
        "barrier",
        "Barrier",
        "batch",
        "ONNX Runtime's Clip replaces infinities with 3.4e38",
        {**signature(x="float32 batch 4"), **_TORCHSCRIPT},
    ),
    _case(
        "few_pixels",
        "FewPixels",
        "batch",
        "3 pixels at a scale of 5 / 3 give 5 pixels, but 4 if the scale was rounded to float32",
        signature({"height": (1, 9), "width": (1, 9)}, image="float32 batch 1 height width"),
    ),
    _case(
        "written_view",
        "WrittenView",
        "batch",
        "a score is written into a view of the input, which torch.export rejects if gradients are enabled",
    ),
    _case("kept_grid", "KeptGrid", "batch", "the grid that it keeps depends only on the size of the image", _IMAGE),
    _case("kept_mask", "KeptMask", "batch", "the mask that it keeps in a buffer depends only on the length", _TIME),
    _case("letterbox", "Letterbox", "batch", "round() of sizes, and the smaller of two ratios of sizes", _FRAME),
    _case("level_sizes", "LevelSizes", "batch", "torch.as_tensor of sizes is a constant for torch.export", _IMAGE),
    _case(
        "traced_level_sizes",
        "LevelSizes",
        "batch",
        "torch.as_tensor of sizes is a constant in a trace",
        {**_IMAGE, **_TORCHSCRIPT},
    ),
    _case("dropped_rows", "DroppedRows", "single", "rows with NaN are dropped, and no example has NaN"),
    _case("filled_gaps", "FilledGaps", "single", "NaN becomes the mean of the batch, and no example has NaN"),
    _case(
        "same_card",
        "SameCard",
        "single",
        "rows of one card in different shops affect each other: random rows share no card, and copies share the shop",
        signature(card="int64 batch 0..999999", shop="int64 batch 0..999", x="float32 batch 4"),
    ),
    _case("default_argument", "FirstScale", "rejected:source.stateful", "a default argument keeps the first scale"),
    _case("stream_state", "Stream", "batch", "a state whose fields the spec names", _STREAM),
    _case("noise_gate", "NoiseGate", "batch", "istft of frames of 40 values, to the length of the input", _SIGNAL),
    _case("single_frame", "Recursion", "batch", "the example has one frame, and longer signals have more", _SIGNAL),
    _case("growing_table", "GrowingTable", "batch", "a table of positions that the example does not fill", _LONGER),
    _case("limited", "Limited", "single", "a branch on the largest value of the batch, which torch.cond keeps"),
    _case(
        "strided_gru", "StridedGru", "batch", "a GRU and an RNN over a number of steps that is computed", _STEPS_OF_FOUR
    ),
    _case("spectrogram_gru", "Spectrogram", "batch", "a GRU over the frames of an STFT", _SIGNAL),
    _case("packed_weights", "PackedWeights", "batch", ">> of uint8, which exporters write as int8"),
    _case(
        "sun",
        "Sun",
        "batch",
        "cosines and inverse functions in float64, which ONNX Runtime does not have",
        {"examples": "verdicts.py:moments", **ranges("batch")},
    ),
    _case(
        "level_after_layer",
        "Offset",
        "batch",
        "ONNX Runtime 1.19.2's LayerNormalization is inexact for values of 30 plus or minus 0.5",
    ),
    _case("call_budget", "CallBudget", "rejected:source.stateful", "an object in a list counts the calls"),
    _case("counted_requests", "CountedRequests", "batch", "counters in objects have no effect on outputs"),
    _case("time_ordered", "TimeOrdered", "single", "rows mix only if they are in order"),
    _case("log_length", "LogLength", "batch", "math.log and windows of a size, which exporters make constant", _LONGER),
    _archive("script_bf16", {"kind": "torchscript"}, "bf16_script", signature(x="float32 batch 4")),
    _archive("pt2_bf16", {"kind": "torch_export"}, "bf16_program", {}),
    _file("onnx_minus_one", "batch", "three axes of size -1", "pooled", [-1, 3, -1, -1]),
    _file("onnx_question_marks", "batch", "three axes named ?", "pooled", ["?", 3, "?", "?"]),
    _file("onnx_size_zero", "rejected:source.onnx-type", "an axis of size 0", "pooled", ["N", 3, 0, 0]),
    _file(
        "onnx_products",
        "batch",
        "ONNX Runtime rounds products of int64 beyond 2^53, or has no kernel",
        "products",
        entry={"inputs": {"x": {"dtype": "int64", "shape": ["N", 6], "range": [1, 2000]}}, "dims": {"N": {"max": 8}}},
    ),
    _file("onnx_labels", "batch", "the other output is a sequence of maps", "labels", entry={"outputs": ["label"]}),
    _file(
        "onnx_narrowed_dims",
        "single",
        "one size for all images; the spec sets the dims of an input that `inputs:` omits",
        "resized",
        entry={
            "inputs": {"size": {"dtype": "int64", "shape": [2], "range": [6, 24]}},
            "dims": {"batch": {"min": 1, "max": 4}, "height": {"min": 6, "max": 16}, "width": {"min": 6, "max": 16}},
        },
    ),
    _file("onnx_inferred_dims", "batch", "an output declared [N, M] that is [N, 3]", "inferred_dims"),
)
"""One case for each class of fault."""
