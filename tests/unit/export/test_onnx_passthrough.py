"""The exporter for ONNX files: the graph is kept, or converted if the target does not support its opset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from repogen.errors import ExportError
from repogen.export.interface import ExportRequest
from repogen.export.onnx_passthrough import read_onnx
from repogen.plugins import NoOptions
from repogen.source.load import load_source
from repogen.spec.models import ExportSpec, ModelSpec
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from repogen.artifacts.source import SourceModel


def read(graph: onnx.ModelProto | None, directory: Path, opset: int = 21, **spec: Any) -> tuple[SourceModel, ir.Model]:
    """Write a graph, or use the existing ``model.onnx``; load and export it."""
    if graph is not None:
        onnx.save_model(graph, directory / "model.onnx")
    source = load_source(
        ModelSpec.model_validate({"source": {"kind": "onnx", "path": "model.onnx"}, **spec}), directory
    )
    request = ExportRequest(source, (), opset, directory, ExportSpec(), NoOptions())
    return source, read_onnx(request).model


def test_older_opset_is_kept(tmp_path: Path) -> None:
    """A supported opset is not converted."""
    _, model = read(graphs.matmul(), tmp_path)
    assert (model.opset_imports[""], [value.name for value in model.graph.inputs]) == (17, ["x"])


def test_newer_opset_is_converted(tmp_path: Path) -> None:
    """To the newest that the target supports."""
    _, model = read(graphs.matmul(opset=23, ir=10), tmp_path)
    assert model.opset_imports[""] == 21


def test_failed_conversion_is_reported(tmp_path: Path) -> None:
    """The hint names the opset to export for."""
    node = onnx.helper.make_node("Swish", ["x"], ["y"])  # new in opset 24
    graph = graphs.model([node], [graphs.value("x", ["N", 4])], [graphs.value("y", ["N", 4])], opset=24, ir=11)
    with pytest.raises(ExportError, match="has opset 24, the target supports up to 21") as caught:
        read(graph, tmp_path)
    assert caught.value.code == "export.opset"
    assert "export it again for opset 21" in caught.value.hint


@pytest.mark.parametrize(("opset", "remains"), [(12, True), (17, False)])
def test_extremes_of_int64_are_replaced(tmp_path: Path, opset: int, remains: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """ONNX Runtime returns wrong values for some rows; before opset 13, the replacement has another form."""
    node = onnx.helper.make_node("ReduceMax", ["x"], ["y"], axes=[1], keepdims=0)
    ends = [graphs.value("x", ["N", 4], graphs.INT64)], [graphs.value("y", ["N"], graphs.INT64)]
    _, model = read(graphs.model([node], *ends, opset=opset), tmp_path)
    assert ("ReduceMax" in {node.op_type for node in model.graph}) is remains


def test_spec_fixes_dims_and_selects_outputs(tmp_path: Path) -> None:
    """Nodes that only other outputs depend on are removed."""
    nodes = [onnx.helper.make_node(kind, ["x"], [name]) for kind, name in (("Relu", "r"), ("Tanh", "t"))]
    ends = [graphs.value("x", ["N", "c"])], [graphs.value("r", ["N", "c"]), graphs.value("t", ["N", "c"])]
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    spec: dict[str, Any] = {"inputs": inputs, "dims": {"batch": {"max": 4}}, "outputs": ["t"]}
    _, model = read(graphs.model(nodes, *ends), tmp_path, **spec)
    assert [str(dim) for dim in model.graph.inputs[0].shape or ()] == ["batch", "4"]
    assert [node.op_type for node in model.graph] == ["Tanh"]


def test_maps_that_are_not_selected_are_removed(tmp_path: Path) -> None:
    """onnx_ir cannot read the type of ZipMap's output, with which scikit-learn's converters end a classifier."""
    nodes = [
        onnx.helper.make_node("Softmax", ["x"], ["scores"]),
        onnx.helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]),
    ]
    number = onnx.helper.make_tensor_type_proto(graphs.FLOAT, [])
    maps = onnx.helper.make_sequence_type_proto(onnx.helper.make_map_type_proto(graphs.INT64, number))
    outputs = [graphs.value("scores", ["N", 4]), onnx.helper.make_value_info("maps", maps)]
    graph = graphs.model(nodes, [graphs.value("x", ["N", 4])], outputs)
    graph.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    _, model = read(graph, tmp_path, outputs=["scores"])
    assert [node.op_type for node in model.graph] == ["Softmax"]


def test_initializers_are_removed_from_inputs(tmp_path: Path) -> None:
    """IR 3 lists them as inputs; newer versions need not."""
    graph = graphs.matmul(opset=8, ir=3)
    graph.graph.input.append(graphs.value("w", [4, 3]))
    _, model = read(graph, tmp_path)
    assert (model.ir_version, [value.name for value in model.graph.inputs]) == (4, ["x"])


def test_external_data_with_several_hard_links_is_read(tmp_path: Path) -> None:
    """Package managers and caches store one file under several names."""
    graphs.with_external(tmp_path / "model.onnx")
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / f"copy-of-{name}").hardlink_to(tmp_path / name)
    _, model = read(None, tmp_path)
    weight = model.graph.initializers["w"].const_value
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), graphs.WEIGHT)


def test_external_data_behind_links_is_read(tmp_path: Path) -> None:
    """A hub cache consists of symlinks."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    graphs.with_external(tmp_path / "made.onnx")
    (tmp_path / "made.onnx").rename(blobs / "aaa")
    (tmp_path / "model.onnx.data").rename(blobs / "bbb")
    (snapshot / "model.onnx").symlink_to("../../blobs/aaa")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/bbb")
    _, model = read(None, snapshot)
    weight = model.graph.initializers["w"].const_value
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), graphs.WEIGHT)
