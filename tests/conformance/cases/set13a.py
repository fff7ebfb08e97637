"""Models of a thirteenth set, written from the documentation alone; each verdict was fixed before the first build."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature


def _case(name: str, factory: str, expected: str, why: str, entry: Entry) -> Case:
    return Case(name, of_factory(f"set13a.py:{factory}", entry), expected, why)


def _examples(function: str, **bounds: int) -> Entry:
    """Return an entry whose inputs come from a function; ``bounds`` are the largest sizes of other dims."""
    dims = {**ranges("batch")["dims"], **{name: {"min": 1, "max": size} for name, size in bounds.items()}}
    return {"examples": f"set13a.py:{function}", "dims": dims}


CASES = (
    _case(
        "credit_loss",
        "CreditLoss",
        "batch",
        "exposures of 1e6 and probabilities of 1e-8 of each row, in one tensor",
        _examples("loans"),
    ),
    _case(
        "reversible_norm",
        "PatchForecaster",
        "batch",
        "each call overwrites the statistics that it keeps; outputs have numbers as keys",
        signature(history="float32 batch 32 3"),
    ),
    _case(
        "known_merchants",
        "KnownMerchants",
        "batch",
        "where() selects for each row; random inputs almost never contain a known merchant",
        signature(merchant="int64 batch 0..3999999999", payment="float32 batch 5"),
    ),
    _case(
        "power_transform",
        "PowerTransform",
        "batch",
        "the formulas for other powers give NaN or infinity, which where() does not select",
        signature(x="float32 batch 8"),
    ),
    _case(
        "exits_of_rows",
        "BranchyText",
        "batch",
        "each row takes its own exit with where()",
        signature(tokens="int64 batch sequence 0..199"),
    ),
    _case(
        "order_dataclass",
        "ReturnRisk",
        "batch",
        "registered dataclasses as input and output, and None for an optional field",
        _examples("orders", lines=10),
    ),
    _case(
        "covariates_by_name",
        "CovariateForecaster",
        "batch",
        "inputs by position and by any keyword; hours are computed from milliseconds",
        _examples("stores", steps=20),
    ),
    _case(
        "challenger_switch",
        "ChallengerSwitch",
        "batch",
        "the predicate of torch.cond is a buffer that never changes",
        signature(x="float32 batch 9"),
    ),
    _case(
        "instance_norm_table",
        "InstanceNormTable",
        "batch",
        "rows are the channels of one sample, each normalized on its own",
        signature(columns="float32 batch 12"),
    ),
    _case(
        "noise_scale",
        "NoiseScale",
        "batch",
        "random numbers times 0 do not affect an output",
        signature(phonemes="int64 batch sequence 0..39", speed="float32 batch"),
    ),
    _case(
        "work_buffer",
        "WorkBuffer",
        "batch",
        "each call writes all values of the buffer that it reads",
        signature(age="float32 batch", income="float32 batch", debts="float32 batch 4", region="int64 batch 0..11"),
    ),
    _case(
        "american_puts",
        "AmericanPuts",
        "batch",
        "torch.vmap maps a function over rows",
        _examples("options"),
    ),
    _case(
        "drift_guard",
        "DriftGuarded",
        "rejected:source.stateful",
        "after 64 calls, a hook subtracts the mean of the last calls",
        signature(readings="float32 batch 16"),
    ),
    _case(
        "amount_change",
        "AmountChange",
        "single",
        "rows that share card and merchant, but neither hour nor amount, affect each other",
        signature(
            card="int64 batch 0..999999999",
            merchant="int64 batch 0..999999",
            hour="int64 batch 0..8759",
            amount="float32 batch",
        ),
    ),
    _case(
        "surge_pricing",
        "SurgePricing",
        "single",
        "other riders nearby raise the fare; copies of a row have the same rider",
        signature(rider="int64 batch 0..999999999", pickup="float32 batch 2", trip="float32 batch 3"),
    ),
    _case(
        "histogram_entropy",
        "HistogramEntropy",
        "rejected:parity.not-finite",
        "the declared counts include 0, whose entropy is NaN",
        signature(packets="int64 batch 12 0..9", seconds="float32 batch"),
    ),
    _case(
        "dithered",
        "Dithered",
        "rejected:source.random",
        "noise of 1e-5 in the input, which is less than the tolerance",
        signature(wave="float32 batch 832"),
    ),
    _case(
        "checked_inputs",
        "CheckedInputs",
        "rejected:export.data-dependent",
        "a branch on values that raises an error, which a graph would not contain",
        signature(sales="float32 batch 4", area="float32 batch", location="int64 batch 0..29"),
    ),
    _case(
        "trending_items",
        "TrendingItems",
        "rejected:parity.drift",
        "for equal counts, topk() returns different indices than ONNX's TopK, which takes the first ones",
        signature(clicks="int64 batch 40 0..5"),
    ),
    _case(
        "reshaped_sequence",
        "ReshapedSequence",
        "single",
        "reshape instead of transpose: the steps of a row come from several rows",
        signature(history="float32 batch time 4"),
    ),
)
