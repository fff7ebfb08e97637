"""Models of a twelfth set, written from the documentation alone; each verdict was fixed before the first build."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set12a.py:{factory}", entry), expected, why)


_REQUESTS: Entry = {
    "examples": "set12a.py:requests",
    "dims": {"batch": {"min": 1, "max": 8}, "clicks": {"min": 1, "max": 20}},
}
_READINGS = signature(
    {"hours": (1, 48)}, readings="float32 batch hours", observed="bool batch hours", station="int64 batch 0..39"
)
_DOCUMENTS = signature({"sentences": (1, 6), "words": (1, 14)}, tokens="int64 batch sentences words 0..299")

CASES = (
    _case("two_tower", "TwoTower", "batch", "each request has its own user and candidates", _REQUESTS),
    _case(
        "deep_fm",
        "DeepFm",
        "batch",
        "batch norm uses its running statistics; probabilities of about 0.001",
        signature(fields="int64 batch 4 0..6", dense="float32 batch 5"),
    ),
    _case(
        "n_beats",
        "NBeats",
        "batch",
        "every series has its own level; outputs in a tuple with a dict and a list",
        {"examples": "set12a.py:sales", **ranges("batch")},
    ),
    _case("quantile_forecast", "QuantileForecaster", "batch", "means of each row over its observed hours", _READINGS),
    _case("document_attention", "DocumentAttention", "batch", "sentences are flattened and restored", _DOCUMENTS),
    _case(
        "oblivious_trees",
        "ObliviousTrees",
        "batch",
        "each row's leaves are computed without branches",
        signature(x="float32 batch 10"),
    ),
    _case(
        "level_in_hook",
        "DriftDetector",
        "rejected:source.stateful",
        "a hook subtracts the level of earlier calls",
        signature(signal="float32 batch 32"),
    ),
    _case(
        "query_groups",
        "QueryGroups",
        "single",
        "rows of one query are compared with their mean",
        signature(query="int64 batch 0..999999", features="float32 batch 12"),
    ),
    _case(
        "adaptive_steps",
        "AdaptiveSteps",
        "rejected:export.data-dependent",
        "a loop that ends when all rows have halted",
        signature(x="float32 batch 6"),
    ),
    _case(
        "empty_rows",
        "EmptyRows",
        "rejected:parity.not-finite",
        "a row whose mask is all zero is 0 / 0",
        signature(input_ids="int64 batch sequence 0..99", attention_mask="int64 batch sequence 0..1"),
    ),
    _case(
        "holt_winters_step",
        "HoltWintersStep",
        "batch",
        "the state of each series is sent and returned",
        {"examples": "set12a.py:smoothed_series", **ranges("batch")},
    ),
    _case(
        "kept_attention",
        "KeptAttention",
        "batch",
        "the weights that it keeps are never read",
        signature(input_ids="int64 batch sequence 0..399"),
    ),
    _case(
        "hmm_evidence",
        "HmmEvidence",
        "batch",
        "logarithms until the end; probabilities of 1e-15 are a separate output",
        signature(events="int64 batch 12 0..15"),
    ),
    _case(
        "premiums",
        "premiums",
        "batch",
        "amounts of 1e8 in float64; limits and referrals of each row",
        {"examples": "set12a.py:risks", **ranges("batch")},
    ),
    _case(
        "next_basket",
        "NextBasket",
        "batch",
        "-inf at padding and at the items of the row's own history",
        signature({"length": (1, 20)}, history="int64 batch length 0..119"),
    ),
    _case(
        "ft_transformer",
        "FtTransformer",
        "batch",
        "prices of 250,000; a note states that the second output is always zero",
        signature(
            numbers="float32 batch 6", rooms="int64 batch 0..3", state="int64 batch 0..8", region="int64 batch 0..24"
        ),
    ),
    _case(
        "step_by_step",
        "StepByStep",
        "rejected:source.outputs",
        "one output for each step of a dynamic length",
        signature(series="float32 batch time 5"),
    ),
    _case(
        "rare_event",
        "RareEvent",
        "rejected:parity.drift",
        "sigmoid of -21, for which ONNX Runtime returns 0",
        signature(telemetry="float32 batch 9"),
    ),
    _case(
        "forgotten_batch_first",
        "ForgottenBatchFirst",
        "single",
        "attention between the rows of a batch, because batch_first is missing",
        signature(tokens="int64 batch sequence 0..249"),
    ),
    _case(
        "monte_carlo_dropout",
        "UncertainDemand",
        "rejected:source.training-mode|source.random",
        "dropout that ignores model.eval()",
        signature(past="float32 batch 14"),
    ),
)
