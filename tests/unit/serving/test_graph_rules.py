"""The rules of NVIDIA's C++ backend in the Python backend."""

from __future__ import annotations

from typing import Any

import pytest

from repogen.serving.onnxruntime_backend.graph_rules import Graph, GraphTensor, Refusal, check, complete, graph_tensor


def config(**changes: object) -> dict[str, Any]:
    """Return a config in Triton's JSON form for x [-1, 3] -> y [-1, 3] with batching."""
    tensor = {"data_type": "TYPE_FP32", "dims": [3]}
    plain = {"name": "m", "max_batch_size": 4, "input": [{"name": "x", **tensor}], "output": [{"name": "y", **tensor}]}
    return plain | changes


def graph(*dims: int) -> Graph:
    """Return a graph from x to y, both float32 of shape ``dims``."""
    return Graph((GraphTensor("x", "TYPE_FP32", dims),), (GraphTensor("y", "TYPE_FP32", dims),))


def control(name: str, **values: object) -> dict[str, Any]:
    """Return the part of a config that declares a control tensor for the start of a sequence."""
    start = {"kind": "CONTROL_SEQUENCE_START", **(values or {"fp32_false_true": [0, 1]})}
    return {"sequence_batching": {"control_input": [{"name": name, "control": [start]}]}}


@pytest.mark.parametrize(
    ("changes", "dims", "message"),
    [
        ({}, (1, 3), r"for the model to support batching .* first dimension must be -1; but .* is \[1,3\]"),
        ({}, (-1, 4), r"making complete shape \[-1,3\]"),
        ({"max_batch_size": 0}, (-1, 3), r"configuration specifies 1 dimensions \(shape \[3\]\)"),
        ({"input": []}, (-1, 3), "configuration expects 0 inputs, model provides 1"),
        (
            {"batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]},
            (-1, 3),
            "configuration expects 2 inputs, model provides 1",
        ),
        (
            {"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True}]},
            (-1, 3),
            r"provides input with shape \[-1\]  for ragged input 'x', model provides \[-1,3\]",
        ),
        (control("z"), (-1, 3), "specified sequence control 'z', but model does not provide that input"),
        (control("x"), (-1, 3), r"sequence control 'x' in model has dims \[3\] but dims \[1\] is expected"),
        (
            control("x", int32_false_true=[0, 1]),
            (-1, 1),
            "the model expects data-type TYPE_FP32 but the model configuration specifies data-type TYPE_INT32",
        ),
        (
            {"sequence_batching": {"state": [{"input_name": "s", "output_name": "t"}]}},
            (-1, 3),
            "configuration expects 2 inputs, model provides 1",
        ),
        (
            {"input": [{"name": "x", "data_type": "TYPE_BF16", "dims": [3]}]},
            (-1, 3),
            "unsupported datatype TYPE_BF16 for input 'x' for model 'm'",
        ),
        ({"input": [{"name": "x", "data_type": 99, "dims": [3]}]}, (-1, 3), "unsupported datatype 99 for input 'x'"),
        ({"max_batch_size": 0}, (), r"scalar tensor 'x', should only provide 1 .* provided: \[3\]"),
    ],
)
def test_config_that_does_not_match_the_graph_is_rejected(
    changes: dict[str, object], dims: tuple[int, ...], message: str
) -> None:
    """Each rule has the message of NVIDIA's backend."""
    with pytest.raises(Refusal, match=message):
        check(config(**changes), graph(*dims))


def test_input_may_be_fixed_where_the_graph_is_dynamic() -> None:
    """Outputs must match exactly; inputs may be fixed."""
    dynamic = Graph((GraphTensor("x", "TYPE_FP32", (-1, -1)),), (GraphTensor("y", "TYPE_FP32", (-1, 3)),))

    check(config(), dynamic)

    with pytest.raises(Refusal, match="tensor 'y'"):
        check(config(), graph(-1, -1))


def test_minimal_config_is_completed_with_batching() -> None:
    """Dynamic first dims become a batch of up to 4 with dynamic batching; [batch] becomes a reshape."""
    minimal: dict[str, Any] = {"name": "m", "max_batch_size": 0}

    complete(minimal, graph(-1))

    tensor = {"data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}}
    assert minimal == {
        "name": "m",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{"name": "x", **tensor}],
        "output": [{"name": "y", **tensor}],
    }


def test_batch_size_with_a_fixed_first_dim_is_rejected() -> None:
    """Auto-completion rejects a batch size that the graph does not support."""
    with pytest.raises(Refusal, match="model does not support batching while non-zero max_batch_size is specified"):
        complete({"name": "m", "max_batch_size": 8}, graph(2, 3))


def test_input_that_is_not_a_tensor_is_rejected() -> None:
    """Triton does not support sequences and maps."""
    with pytest.raises(Refusal, match="Unsupported ONNX Type"):
        graph_tensor("s", "seq(tensor(float))", [])
