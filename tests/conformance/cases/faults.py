"""Models that must be rejected, each for a different reason."""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Case, Entry, of_factory, ranges, signature, written


def _case(name: str, factory: str, codes: str, why: str, entry: Entry | None = None, **more: Any) -> Case:
    return Case(
        name,
        {**of_factory(factory if ":" in factory else f"faults.py:{factory}", entry), **more},
        f"rejected:{codes}",
        why,
    )


_X = signature(x="float32 batch 4")
_STEPS = signature({"time": (2, 24)}, x="float32 batch time 4")
_BOXES = {**signature(boxes="float32 batch 4", scores="float32 batch"), "examples": "rows.py:boxes"}

CASES = (
    _case("call_counter", "Counter", "source.stateful", "forward counts its calls in a buffer"),
    _case("carried_state", "Remembers", "source.stateful", "the state of one request affects the next"),
    _case(
        "late_counter",
        "LateCounter",
        "source.stateful",
        "an attribute counts the calls, and the ninth call returns a different result",
    ),
    _case(
        "first_length",
        "FirstLength",
        "source.stateful",
        "all later outputs are divided by the length in the first call",
        _STEPS,
    ),
    _case("first_scale", "FirstScale", "source.stateful", "the first batch's deviation is kept in a dict"),
    _case("first_batch", "FirstBatch", "source.stateful", "the first batch sets a parameter"),
    _case("noise", "noise", "source.random", "randn_like at inference"),
    _case("functional_dropout", "functional_dropout", "source.random", "F.dropout is in training mode by default"),
    _case(
        "python_random",
        "python_random",
        "parity.non-deterministic|source.random",
        "a number from Python's random module, which becomes a constant",
    ),
    _case("seeded_noise", "SeededNoise", "source.random", "forward sets a seed, which no ONNX operator does"),
    _case("branch_on_values", "Branch", "export.data-dependent", "a graph would contain only one branch"),
    _case("greedy_nms", "Greedy", "export.data-dependent", "a Python loop over values", _BOXES),
    _case(
        "baked_batch",
        "BakedBatch",
        "export.specialized-dim|source.declared-size",
        "reshape(2, -1): other batches also fail in PyTorch",
    ),
    _case(
        "fixed_length",
        "FixedLength",
        "export.specialized-dim|source.declared-size",
        "weights for 16 steps, but 2 to 24 are declared",
        signature({"time": (2, 24)}, x="float32 batch time 4"),
    ),
    _case(
        "too_short",
        "layers.py:SecondLast",
        "source.declared-size|export.specialized-dim",
        "the declared lengths include 1, but PyTorch requires two steps",
        signature({"time": (1, 12)}, x="float32 batch time 4"),
    ),
    _case(
        "length_switch",
        "LengthSwitch",
        "parity.drift|export.specialized-dim",
        "another layer for long rows: a graph contains only one",
        signature({"time": (2, 16)}, x="float32 batch time 4"),
    ),
    _case(
        "batch_switch",
        "BatchSwitch",
        "parity.drift|export.specialized-dim",
        "another branch for large batches: a graph contains only one",
    ),
    _case("one_length", "OneLength", "parity.drift|export.specialized-dim", "ten steps take another branch", _STEPS),
    _case(
        "twice_length",
        "TwiceLength",
        "parity.drift|export.specialized-dim",
        "fourteen steps take another branch",
        _STEPS,
    ),
    _case(
        "uneven_lengths",
        "Uneven",
        "parity.drift|export.specialized-dim",
        "the declared lengths include some that are not multiples of four",
        _STEPS,
    ),
    Case(
        "derived_dim",
        of_factory("faults.py:Paired", {"examples": "faults.py:paired", **ranges("batch", "time")}),
        "rejected:source.derived-dim",
        "one input is twice as long as the other, which config.pbtxt cannot express",
        twin=signature(x="float32 batch time", pairs="float32 batch double"),
    ),
    _case("no_translation", "no_translation", "export.no-translation", "ONNX has no singular values"),
    _case("not_a_number", "not_a_number", "parity.not-finite", "NaN in both is not parity"),
    _case("returns_int", "number", "source.return-type", "the factory returns 42"),
    _case("factory_raises", "raises", "source.user-code", "the factory raises"),
    _case("factory_exits", "leaves", "source.user-code", "the factory calls sys.exit"),
    _case("on_meta", "on_meta", "source.meta", "weights without values"),
    _case("no_such_factory", "missing", "spec.problems", "the file does not define the name"),
    _case("input_missing", "Needs", "source.inputs-missing", "forward also requires a mask"),
    _case("batching_asked_for", "mixing", "config.not-batchable", "rows mix", triton={"max_batch_size": 4}),
    _case(
        "integers_without_range",
        "plain",
        "spec.problems|source.no-range",
        "no default range is valid for every model",
        signature(x="int64 batch 4"),
    ),
    Case(
        "examples_are_no_tensors",
        of_factory("faults.py:plain", {"examples": "calls.py:a_string"}),
        "rejected:source.examples-type",
        "examples() returns a string",
    ),
    Case(
        "bomb_in_weights",
        of_factory("faults.py:plain", _X, weights="bomb_in_weights/weights.pt"),
        "rejected:source.weights-unsafe",
        "a pickle that would run code",
        written("bait", "bomb", "weights.pt"),
    ),
    Case(
        "other_weights",
        of_factory("faults.py:plain", _X, weights="other_weights/weights.pt"),
        "rejected:source.weights-mismatch",
        "weights of another module",
        written("archives", "other_weights"),
    ),
)
