"""Models of a fourteenth set, written from the documentation alone; each verdict was fixed before the first build."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set14a.py:{factory}", entry), expected, why)


def _examples(function: str) -> Entry:
    """Return an entry whose inputs come from a function."""
    return {"examples": f"set14a.py:{function}", **ranges("batch")}


CASES = (
    _case(
        "reaction_rates",
        "ReactionRates",
        "batch",
        "rates of 1e-9 and 1e9 of each row, in one tensor",
        _examples("flames"),
    ),
    _case(
        "molecule_graph",
        "MoleculeGraph",
        "batch",
        "messages along the bonds of each molecule only",
        signature({"atoms": (2, 10)}, atoms="int64 batch atoms 0..9", bonds="int64 batch atoms atoms 0..4"),
    ),
    _case(
        "impute_when_missing",
        "ImputeWhenMissing",
        "batch",
        "one branch for all rows, but both branches return the same for a row without gaps",
        signature(x="float32 batch 10"),
    ),
    _case(
        "decode_with_cache",
        "DecodeWithCache",
        "batch",
        "each call empties the cache before it reads it",
        signature(prompt="int64 batch 6 0..29"),
    ),
    _case(
        "cached_positions",
        "CachedPositions",
        "batch",
        "what functools.cache keeps depends only on the length",
        signature(events="int64 batch sequence 0..49"),
    ),
    _case(
        "bounded_embedding",
        "BoundedEmbedding",
        "rejected:source.stateful",
        "max_norm writes to the weights, and no exporter translates it",
        signature(user="int64 batch 0..79", item="int64 batch 0..119"),
    ),
    _case(
        "deduplicated_items",
        "DeduplicatedItems",
        "batch",
        "rows share only the computation of equal items",
        signature(history="int64 batch 10 0..199", target="int64 batch 0..199"),
    ),
    _case(
        "event_list",
        "EventList",
        "batch",
        "a list of dicts with different keys as input, and a list of dicts as output",
        _examples("sessions"),
    ),
    _case(
        "macro_forecast",
        "MacroForecast",
        "batch",
        "values of 1e13 and 0.02 of each row, in one tensor of float64",
        _examples("economies"),
    ),
    _case(
        "isotonic_calibration",
        "IsotonicCalibration",
        "batch",
        "a continuous curve of each row's logit",
        signature(x="float32 batch 9"),
    ),
    _case(
        "light_gcn",
        "LightGcn",
        "batch",
        "the graph is stored with the model; rows only look up their user",
        signature(user="int64 batch 0..39"),
    ),
    _case(
        "diverse_slate",
        "DiverseSlate",
        "batch",
        "the greedy choice runs within each row",
        signature({"items": (5, 20)}, candidates="float32 batch items 8", relevance="float32 batch items"),
    ),
    _case(
        "head_of_country",
        "HeadOfCountry",
        "rejected:export.data-dependent",
        "the value of an input selects a module in Python",
        signature(x="float32 batch 6", country="int64 batch 0..3"),
    ),
    _case(
        "tied_max_norm",
        "TiedMaxNorm",
        "rejected:source.stateful",
        "a lookup with max_norm changes the weights that later calls use to compute scores",
        signature(session="int64 batch 6 0..149"),
    ),
    _case(
        "rank_in_request",
        "RankInRequest",
        "single",
        "a row's gain depends on how many other rows are better",
        signature(candidate="float32 batch 7"),
    ),
    _case(
        "unbatched_gru",
        "UnbatchedGru",
        "single",
        "a recurrent layer reads two axes as one sequence, so rows depend on the rows before them",
        signature(figures="float32 batch 10"),
    ),
    _case(
        "count_sketch",
        "CountSketch",
        "single",
        "rows of one device, or of one bucket, are added up",
        signature(device="int64 batch 0..999999999", amount="float32 batch", features="float32 batch 4"),
    ),
    _case(
        "forecast_distribution",
        "ForecastDistribution",
        "rejected:source.output-type",
        "an object of torch.distributions is not a tensor",
        signature(history="float32 batch time"),
    ),
    _case(
        "recurrent_state",
        "RecurrentState",
        "rejected:source.shared-name",
        "the paths of the returned state are those of the state that is sent",
        _examples("readings"),
    ),
    _case(
        "epsilon_greedy",
        "EpsilonGreedy",
        "rejected:source.random",
        "a random choice that affects only one of 500 rows",
        signature(context="float32 batch 12"),
    ),
)
