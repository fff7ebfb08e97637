"""Models that do not batch, although they export with full parity: rows are mixed, or not on axis 0."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, signature


def _case(name: str, factory: str, why: str, entry: Entry | None = None) -> Case:
    return Case(name, of_factory(f"rows.py:{factory}", entry), "single", why)


_STEPS = signature(x="float32 batch time 4")
_MANY = signature({"batch": (1, 32)}, x="float32 batch 4")

CASES = (
    _case("batch_mean", "centred", "the batch's mean is subtracted"),
    _case("batch_softmax", "softmax", "softmax runs over the batch"),
    _case("batch_maximum", "largest", "all rows are divided by the batch's maximum"),
    _case("batch_sorted", "sorted_rows", "features are sorted over the batch"),
    _case("running_sum", "running_sum", "each row is added to the rows before it"),
    _case("from_first", "from_first", "the first row is subtracted from each row"),
    _case("row_numbers", "numbered", "a row's index in the batch is added"),
    _case("features_first", "turned", "the batch is the last axis of the output"),
    _case("similarities", "similarities", "every row is scored against every row"),
    _case(
        "batch_statistics",
        "batch_norm",
        "batch norm without running statistics",
        signature(x="float32 batch 3 8 8"),
    ),
    _case(
        "statistics_of_rows",
        "batch_norm_of_rows",
        "batch norm of vectors without running statistics; requires two rows",
        signature({"batch": (2, 8)}, x="float32 batch 4"),
    ),
    _case("lstm_time_major", "TimeMajor", "the output is time-major", _STEPS),
    _case("time_first", "TimeFirst", "axis 0 is time", signature({"time": (1, 12)}, x="float32 time batch 4")),
    _case("last_state", "LastState", "axis 0 of the state is layers", _STEPS),
    _case("flattened", "Flattened", "one row per step: axis 0 is batch times time", _STEPS),
    _case(
        "graph",
        "Graph",
        "axis 0 is the nodes of a graph; for the edge input, it is the two ends of an edge",
        {**signature(x="float32 nodes 4", edges="int64 2 edges 0..3"), "examples": "rows.py:graph"},
    ),
    _case(
        "adjacency",
        "Adjacency",
        "axis 0 is nodes, and so is axis 1 of the matrix",
        signature({"nodes": (1, 16)}, x="float32 nodes 4", adjacency="float32 nodes nodes"),
    ),
    _case(
        "node_attention",
        "NodeClasses",
        "axis 0 is the nodes of a graph, with attention between them",
        signature({"nodes": (1, 16)}, x="float32 nodes 4"),
    ),
    _case(
        "nms",
        "Suppress",
        "the number of remaining boxes depends on all boxes",
        {**signature(boxes="float32 batch 4", scores="float32 batch"), "examples": "rows.py:boxes"},
    ),
    _case("boolean_mask", "Selected", "one row per positive score"),
    _case("nonzero", "Indices", "one row per positive number"),
    _case("torch_cond", "Conditional", "one branch for the whole batch, chosen by its sum"),
    _case(
        "scalar_input",
        "Tempered",
        "one temperature for all rows",
        signature(x="float32 batch 4", temperature="float32"),
    ),
    _case(
        "table_input",
        "LookUp",
        "the table has a separate axis 0",
        signature({"entries": (1, 10)}, x="float32 batch 4", table="float32 entries 4"),
    ),
    _case("late_mixing", "from_sixth", "the sixth and later rows depend on the first", _MANY),
    _case("expert_capacity", "Capacity", "an expert processes at most three rows of a batch", _MANY),
    _case("no_batch", "Fixed", "a single image without a batch", signature(image="float32 3 16 16")),
)
