"""Inferred shapes of outputs: the server compares these with config.pbtxt, not those in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from repogen.api.check import check
from repogen.onnx_graph.facts import read_graph
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ %s ] }
"""


def write(root: Path, proto: onnx.ModelProto, dims: str) -> Path:
    """Write a model; return its directory."""
    (root / "m" / "1").mkdir(parents=True)
    onnx.save(proto, root / "m" / "1" / "model.onnx")
    (root / "m" / "config.pbtxt").write_text(CONFIG % dims, encoding="utf-8")
    return root / "m"


def matmul(*shape: str | int) -> onnx.ModelProto:
    """Return ``y = x @ w``, whose last dim is 3, with this declared output; without one if empty."""
    proto = graphs.matmul()
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    if shape:
        proto.graph.output[0].CopyFrom(graphs.value("y", shape))
    return proto


def custom() -> onnx.ModelProto:
    """Return a graph whose output comes from an operator that onnx does not know."""
    nodes = [helper.make_node("Unknown", ["x"], ["y"], domain="custom")]
    return graphs.model(nodes, [graphs.value("x", ["N", 4])], [graphs.value("y", ["N", "M"])])


@pytest.mark.parametrize("shape", [("N", "M"), ("N", 3), ()])
def test_dim_that_the_graph_determines_is_compared(tmp_path: Path, shape: tuple[str | int, ...]) -> None:
    """`dims: [3]` is served, and `dims: [-1]` is rejected, whatever the file declares."""
    assert check(write(tmp_path / "right", matmul(*shape), "3")) == []
    (finding,) = check(write(tmp_path / "wrong", matmul(*shape), "-1"))
    assert (finding.code, finding.severity, finding.fix) == ("RG207", "error", "dims: [ 3 ]")


def test_dim_that_stays_dynamic_is_an_error(tmp_path: Path) -> None:
    """It is the dim of an input."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    proto = graphs.model(nodes, [graphs.value("x", ["N", "W"])], [graphs.value("y", ["N", "V"])])
    (finding,) = check(write(tmp_path, proto, "4"))
    assert (finding.code, finding.severity) == ("RG207", "error")


def test_dim_that_cannot_be_derived_is_a_warning(tmp_path: Path) -> None:
    """Only ONNX Runtime with the custom operator can tell."""
    assert check(write(tmp_path / "dynamic", custom(), "-1")) == []
    (finding,) = check(write(tmp_path / "fixed", custom(), "4"))
    assert (finding.code, finding.severity) == ("RG207", "warning")
    unknown = custom()
    unknown.graph.output[0].type.tensor_type.ClearField("shape")
    (finding,) = check(write(tmp_path / "unknown", unknown, "4"))
    assert (finding.code, finding.severity) == ("RG206", "warning")


def test_weights_are_not_copied(tmp_path: Path) -> None:
    """A large weight keeps its dims, and external data need not exist; a model's own functions are not expanded."""
    proto = graphs.matmul(w=np.ones((4, 3000), np.float32))
    proto.graph.output[0].CopyFrom(graphs.value("y", ["N", "M"]))
    onnx.save(proto, tmp_path / "model.onnx")
    facts, _ = read_graph(tmp_path / "model.onnx")
    assert facts is not None
    assert facts.signature.outputs[0].shape == ("N", 3000)
    body = [helper.make_node("F", ["a"], ["b"], domain="own")]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("own", 1)])
    proto.functions.append(function)
    onnx.save(proto, tmp_path / "recursive.onnx")
    facts, _ = read_graph(tmp_path / "recursive.onnx")
    assert facts is not None
    assert facts.signature.outputs[0].shape == ("??", "??")
