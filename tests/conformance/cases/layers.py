"""Operators and layers that are hard to export, in models whose rows are independent."""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Case, Entry, of_factory, signature

_SEPARATE = "rows are processed independently"
_STEPS = signature(x="float32 batch time 8")
_FOUR = signature(x="float32 batch time 4")
_IMAGE = signature(x="float32 batch 3 32 32")
_ANY_IMAGE = signature(x="float32 batch 3 height width")


def _case(name: str, factory: str, entry: Entry | None = None, why: str = _SEPARATE, **more: Any) -> Case:
    return Case(name, {**of_factory(f"layers.py:{factory}", entry), **more}, "batch", why)


CASES = (
    _case(
        "windows",
        "Windows",
        signature({"time": (4, 24)}, x="float32 batch time 4"),
        "PyTorch, like the graph, accepts only multiples of four",
    ),
    _case("in_place", "InPlace", why="its input is changed in place, each row independently"),
    _case("einsum", "Einsum", _STEPS),
    _case("upsample", "Upsample", _ANY_IMAGE),
    _case("spectrogram", "Spectrogram", signature(x="float32 batch samples")),
    _case("embedding_bag", "Bag", signature(ids="int64 batch 6 0..49")),
    _case("custom_layer_norm", "custom_norm"),
    _case("tied_weights", "Tied", signature(ids="int64 batch sequence 0..29")),
    _case("two_steps_at_least", "Differences", _FOUR, "declared with a minimum of two steps, as required"),
    _case("layer_loop", "Unroll"),
    _case("gru", "Recurrent", _FOUR),
    _case(
        "lstm_last_valid",
        "LastValid",
        {**signature(x="float32 batch time 4", length="int64 batch 1..2"), "examples": "layers.py:lengths"},
        "lengths are an input of rank 1",
    ),
    _case("causal_attention", "Causal", _STEPS),
    _case("grid_sample", "Sample", _IMAGE),
    _case("norms", "norms", _IMAGE, "in evaluation mode none of the norms mixes rows"),
    _case("parametrized", "parametrized"),
    _case("soft_experts", "Experts"),
    _case("scatter", "Scatter", signature(codes="int64 batch time 0..9")),
    _case("roll_and_unfold", "Roll", signature(x="float32 batch time 6")),
    _case("branch_on_length", "BranchOnLength", _FOUR, "the branch is never taken within the declared dims"),
    _case("autograd_function", "StraightThrough", why="its forward consists of standard operators"),
    _case("channels_last", "channels_last", _ANY_IMAGE),
    _case("forgotten_eval", "forgotten_eval", why="evaluation mode is switched on, with a note"),
    _case("external_data", "wide", signature(x="float32 batch 256"), export={"external_data": True}),
    _case("opset_17", "Einsum", _STEPS, "an older opset was requested", export={"opset": 17}),
    _case("torchscript_only", "Einsum", _STEPS, "one exporter was requested", export={"exporter": "torchscript"}),
)
