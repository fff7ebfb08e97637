"""Models of a fifteenth set, written from the documentation alone; each verdict was fixed before the first build."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature

_NAN = "rejected:parity.not-finite"
_DATA = "rejected:export.data-dependent"


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set15.py:{factory}", entry), expected, why)


def _examples(function: str) -> Entry:
    """Return an entry whose inputs come from a function."""
    return {"examples": f"set15.py:{function}", **ranges("batch")}


_audio = signature(audio="float32 batch samples")

CASES = (
    _case("link_budget", "LinkBudget", "batch", "watts of 1e-16 and bits of 1e9, of each row", _examples("links")),
    _case(
        "kepler_orbit",
        "KeplerOrbit",
        "batch",
        "a fixed number of steps on float64, row by row",
        _examples("satellites"),
    ),
    _case(
        "loan_schedule",
        "LoanSchedule",
        "batch",
        "cents of each loan, rounded in float64",
        signature(principal="int64 batch 100000..90000000", rate="float32 batch"),
    ),
    _case(
        "clip_global_norm",
        "ClipGlobalNorm",
        "single",
        "beyond a norm of 60, all rows of the request are scaled together",
        signature(x="float32 batch 8"),
    ),
    _case("entropy_of_zero", "EntropyOfZero", _NAN, "0 * log(0) is NaN", signature(x="float32 batch 10")),
    _case(
        "longest_horizon",
        "LongestHorizon",
        _DATA,
        "the number of iterations of a Python loop is a value of an input",
        signature(x="float32 batch 6", horizon="int64 batch 1..6"),
    ),
    _case("early_exit", "EarlyExit", "batch", "torch.where chooses for each row", signature(x="float32 batch 12")),
    _case(
        "masked_experts",
        "MaskedExperts",
        "batch",
        "rows are selected and written back to their places",
        signature(x="float32 batch 7", business="bool batch"),
    ),
    _case("all_valid", "AllValid", "single", "one implausible row changes all rows", signature(x="float32 batch 6")),
    _case(
        "tax_brackets",
        "TaxBrackets",
        "batch",
        "exact integers of each row",
        signature(income="int64 batch 0..1000000000", children="int64 batch 0..5"),
    ),
    _case(
        "builtin_max",
        "BuiltinMax",
        "single",
        "dynamo exports Python's max() as an operator; the largest value is that of all rows",
        signature(image="float32 batch 1 8 8"),
    ),
    _case(
        "versioned_answer",
        "VersionedAnswer",
        "batch",
        "the string is omitted, with a note",
        signature(x="float32 batch 4"),
    ),
    _case("nested_market", "NestedMarket", "batch", "containers of tensors, row by row", _examples("markets")),
    _case(
        "horizon_keys",
        "HorizonKeys",
        "batch",
        "a dict with integers as keys, which name the outputs",
        signature(history="float32 batch time 3"),
    ),
    _case(
        "step_dict",
        "StepDict",
        "rejected:source.outputs",
        "the number of outputs is that of the steps",
        signature(x="float32 batch time 3"),
    ),
    _case("pair_of_dicts", "PairOfDicts", "batch", "two dicts with the same keys, row by row", _examples("pairs")),
    _case(
        "attribute_dict",
        "AttributeDict",
        "batch",
        "a subclass of dict is a dict of tensors",
        signature(x="float32 batch 9"),
    ),
    _case(
        "popped_weight",
        "PoppedWeight",
        "batch",
        "changes to the dict that it gets do not outlive a call",
        _examples("records"),
    ),
    _case("soft_pitch", "SoftPitch", "batch", "frames and lags of each row", _audio),
    _case("gated_loudness", "GatedLoudness", "batch", "the gates of each row are its own", _audio),
    _case(
        "griffin_lim",
        "GriffinLim",
        "rejected:source.random",
        "the initial phases are random, and three iterations do not converge to one result",
        signature(magnitude="float32 batch 33 10"),
    ),
    _case(
        "echo_canceller",
        "EchoCanceller",
        "batch",
        "each call starts with empty filters, one for each row",
        signature(far="float32 batch 40", near="float32 batch 40"),
    ),
    _case("two_speakers", "TwoSpeakers", "batch", "normalized and masked within each row", _audio),
    _case(
        "ctc_collapse",
        "CtcCollapse",
        "batch",
        "the tokens of each row move within the row",
        signature(features="float32 batch time 5"),
    ),
    _case(
        "fcos_decode",
        "FcosDecode",
        "batch",
        "all locations of each image, with no choice between them",
        signature(image="float32 batch 3 height width"),
    ),
    _case("soft_nms", "SoftNms", "batch", "a fixed number of choices within each row", _examples("proposals")),
    _case(
        "component_labels",
        "ComponentLabels",
        "single",
        "the numbers of a row continue those of the rows before it",
        signature(logits="float32 batch 12 12"),
    ),
    _case(
        "crop_by_box",
        "CropByBox",
        _DATA,
        "sizes and a branch in Python depend on values of an input",
        signature(image="float32 batch 3 32 32", box="int64 batch 4 4..14"),
    ),
    _case(
        "soft_keypoints",
        "SoftKeypoints",
        "batch",
        "means over the pixels of each image",
        signature(image="float32 batch 1 height width"),
    ),
    _case("float8_weights", "Float8Weights", "batch", "only the weights are float8", signature(x="float32 batch 12")),
    _case("bit_linear", "BitLinear", "batch", "each row has its own scale", signature(x="float32 batch 16")),
    _case(
        "product_quantized",
        "ProductQuantized",
        "batch",
        "each query has its own tables",
        signature(query="float32 batch 24"),
    ),
    _case("residual_codes", "ResidualCodes", "batch", "the nearest code of each frame", _audio),
    _case(
        "stochastic_rounding",
        "StochasticRounding",
        "rejected:source.random",
        "rounding is random",
        signature(x="float32 batch 6"),
    ),
    _case(
        "recent_scores",
        "RecentScores",
        "rejected:source.stateful",
        "a deque keeps levels of earlier requests",
        signature(x="float32 batch 5"),
    ),
    _case(
        "hooked_features",
        "HookedFeatures",
        "batch",
        "in each call, the hooks overwrite their stored values before the call reads them",
        signature(image="float32 batch 3 12 12"),
    ),
    _case("kalman_step", "KalmanStep", "batch", "the state is an input and an output", _examples("tracks")),
    _case("speeds_of_trip", "SpeedsOfTrip", "single", "a row is compared with the row before it", _examples("trips")),
    _case(
        "padded_mean",
        "PaddedMean",
        "batch",
        "a text that is only padding gives NaN, even in PyTorch; no sample has such a text",
        signature(words="int64 batch sequence 0..3"),
    ),
    _case(
        "request_deviation",
        "RequestDeviation",
        _NAN,
        "the deviation of one row is NaN, and a batch of 1 is allowed",
        signature(bids="float32 batch 3"),
    ),
)
