"""Hints for graphs that ONNX Runtime cannot load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import TensorProto, helper

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ParityError
from repogen.validate.runtime import OTHER_EXPORTER, OnnxModel, load_hint

if TYPE_CHECKING:
    from pathlib import Path

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
TO_DOUBLE = helper.make_node("Cast", ["x"], ["wide"], to=DOUBLE)
ERF = helper.make_node("Erf", ["y"], ["z"])


def artifact(directory: Path, nodes: Any, dtype: int, weight: int = FLOAT, exporter: str = "dynamo") -> OnnxArtifact:
    """Write a graph from ``x`` to ``z`` with a weight ``w``."""
    x, z = (helper.make_tensor_value_info(*end, ["n"]) for end in (("x", dtype), ("z", DOUBLE)))
    graph = helper.make_graph(nodes, "g", [x], [z], [helper.make_tensor("w", weight, [1], [2.0])])
    path = directory / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    name = "float64" if dtype == DOUBLE else "float32"
    signature = Signature((TensorSpec("x", name, ("n",)),), (TensorSpec("z", "float64", ("n",)),))
    return OnnxArtifact(path, False, signature, 18, 9, len(nodes), exporter)  # noqa: FBT003 - no external data


@pytest.mark.parametrize(
    ("nodes", "dtypes", "origin"),
    [
        ([helper.make_node("Neg", ["x"], ["y"]), ERF], (DOUBLE, FLOAT), "input 'x' is float64; declare it as float32"),
        (
            [TO_DOUBLE, helper.make_node("Mul", ["wide", "w"], ["y"]), ERF],
            (FLOAT, DOUBLE),
            "weight 'w' is float64; set source: {dtype: float32}",
        ),
        (
            [TO_DOUBLE, helper.make_node("Neg", ["wide"], ["y"]), ERF],
            (FLOAT, FLOAT),
            "forward converts a tensor to float64; use float32 there",
        ),
    ],
)
def test_origin_of_float64_is_named(nodes: Any, dtypes: tuple[int, int], origin: str, tmp_path: Path) -> None:
    """``dtype: float32`` is suggested only for weights: it does not change inputs, or what forward does."""
    with pytest.raises(ParityError) as caught:
        OnnxModel(artifact(tmp_path, nodes, *dtypes))
    assert caught.value.hint.startswith(f"ONNX Runtime does not have Erf in float64: {origin}")


def test_hint_for_a_file_does_not_name_keys_of_torch_models(tmp_path: Path) -> None:
    """Its types cannot be changed by the spec."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), ERF]
    written = artifact(tmp_path, nodes, DOUBLE, DOUBLE, exporter="onnx")
    reason = "Could not find an implementation for Erf(13) node with name ''"
    assert "export the model again in float32" in load_hint(reason, written)
    assert load_hint("another reason", written) == OTHER_EXPORTER
