"""ONNX files, built node by node."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Shape = list[int | str]
_FILE = "model.onnx"
_DATA = "weights.data"
_SNAPSHOT = f"models--team--layer/snapshots/{'0123456789' * 4}"
_F = TensorProto.FLOAT


def _weights() -> list[onnx.TensorProto]:
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    return [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    opsets: dict[str, int] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(initializers))
    imports = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 17}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _value(name: str, shape: Shape, dtype: int = _F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _gemm(batch: int | str = "batch", opset: int = 17) -> onnx.ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "weight", "bias"], ["sum"]), helper.make_node("Relu", ["sum"], ["y"])]
    return _model(nodes, [_value("x", [batch, 4])], [_value("y", [batch, 3])], _weights(), {"": opset})


def _save(model: onnx.ModelProto, directory: Path) -> None:
    onnx.save(model, directory / _FILE)


def dynamic(directory: Path) -> None:
    """Write a layer with a dynamic batch, and its outputs, correct and wrong."""
    model = _gemm()
    _save(model, directory)
    weight, bias = (numpy_helper.to_array(tensor) for tensor in _weights())
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    y = np.maximum(x @ weight + bias, 0)
    np.savez(directory / "answers.npz", x=x, y=y)
    np.savez(directory / "wrong.npz", x=x, y=y + 0.5)


def fixed(directory: Path, batch: int) -> None:
    """Write a layer with a fixed batch."""
    _save(_gemm(batch), directory)


def newer_opset(directory: Path, opset: int) -> None:
    """Write a layer in an opset that the target does not load."""
    _save(_gemm(opset=opset), directory)


def newer_ir(directory: Path, version: int) -> None:
    """Write a layer in an IR version that the target does not load."""
    model = _gemm()
    model.ir_version = version
    _save(model, directory)


def new_operator(directory: Path) -> None:
    """Write a graph with an operator that the target's newest opset does not have."""
    scale = numpy_helper.from_array(np.ones(4, np.float32), "scale")
    node = helper.make_node("RMSNormalization", ["x", "scale"], ["y"], axis=-1)
    _save(_model([node], [_value("x", ["batch", 4])], [_value("y", ["batch", 4])], [scale], {"": 23}), directory)


def from_torch(directory: Path) -> None:
    """Write `calls.py:seeded`, exported with the TorchScript exporter."""
    import torch  # noqa: PLC0415 - the other files do not need it

    from tests.conformance.models import calls  # noqa: PLC0415 - the same

    torch.onnx.export(
        calls.seeded(),
        (torch.randn(2, 4),),
        directory / _FILE,
        dynamo=False,
        input_names=["input"],
        output_names=["scores"],
        dynamic_axes={"input": {0: "batch"}},
        opset_version=17,
    )


def lookup(directory: Path) -> None:
    """Write an embedding of IDs below 20."""
    table = numpy_helper.from_array(np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32), "table")
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    ids = _value("ids", ["batch", "sequence"], TensorProto.INT64)
    _save(_model([node], [ids], [_value("y", ["batch", "sequence", 4])], [table]), directory)


def largest_id(directory: Path) -> None:
    """Write the maximum and the minimum of each row of identifiers."""
    operators = {"ReduceMax": "largest", "ReduceMin": "smallest"}
    nodes = [helper.make_node(operator, ["ids"], [y], axes=[1], keepdims=0) for operator, y in operators.items()]
    ids = _value("ids", ["batch", 9], TensorProto.INT64)
    _save(_model(nodes, [ids], [_value(y, ["batch"], TensorProto.INT64) for y in operators.values()]), directory)


def half(directory: Path) -> None:
    """Write a layer in float16."""
    weights = [numpy_helper.from_array(numpy_helper.to_array(w).astype(np.float16), w.name) for w in _weights()]
    node = helper.make_node("Gemm", ["x", "weight", "bias"], ["y"])
    ends = [_value("x", ["batch", 4], TensorProto.FLOAT16)], [_value("y", ["batch", 3], TensorProto.FLOAT16)]
    _save(_model([node], *ends, weights), directory)


def mixing(directory: Path) -> None:
    """Write a graph that subtracts the batch's mean."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    _save(_model(nodes, [_value("x", ["batch", 4])], [_value("y", ["batch", 4])]), directory)


def attention(directory: Path) -> None:
    """Write attention between rows: axis 0 is dynamic but not a batch."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "x"], ["y"]),
    ]
    _save(_model(nodes, [_value("x", ["N", 4])], [_value("y", ["N", 4])]), directory)


def baked(directory: Path) -> None:
    """Write a graph whose batch is dynamic by name, but which reshapes to a batch of 2."""
    shape = numpy_helper.from_array(np.array([2, 2, 2], np.int64), "shape")
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    _save(_model([node], [_value("x", ["batch", 4])], [_value("y", ["batch", 2, 2])], [shape]), directory)


def noisy(directory: Path) -> None:
    """Write a graph that adds noise."""
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["noise"]), helper.make_node("Add", ["x", "noise"], ["y"])]
    _save(_model(nodes, [_value("x", ["batch", 4])], [_value("y", ["batch", 4])]), directory)


def dropout(directory: Path) -> None:
    """Write a Dropout in training mode, which the optimizer of ONNX Runtime removes."""
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Dropout", ["positive", "ratio", "training"], ["kept"]),
        helper.make_node("Neg", ["kept"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(0.5, np.float32), "ratio"),
        numpy_helper.from_array(np.array(1, np.bool_), "training"),
    ]
    _save(_model(nodes, [_value("x", ["batch", 4])], [_value("y", ["batch", 4])], constants), directory)


def endless(directory: Path) -> None:
    """Write a Loop whose condition is always true."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go_in"], ["go_out"]), helper.make_node("Identity", ["v_in"], ["v_out"])],
        "body",
        [_value("i", [], TensorProto.INT64), _value("go_in", [], TensorProto.BOOL), _value("v_in", ["batch", 4])],
        [_value("go_out", [], TensorProto.BOOL), _value("v_out", ["batch", 4])],
    )
    go = numpy_helper.from_array(np.array(1, np.bool_), "go")
    node = helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)
    _save(_model([node], [_value("x", ["batch", 4])], [_value("y", ["batch", 4])], [go]), directory)


def external(directory: Path) -> None:
    """Write a layer with external data."""
    onnx.save(_gemm(), directory / _FILE, save_as_external_data=True, location=_DATA, size_threshold=0)


def in_hub_cache(directory: Path) -> None:
    """Write a layer in the layout of a Hugging Face cache: a snapshot of links to blobs named by hash."""
    snapshot = directory / _SNAPSHOT
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    external(snapshot)
    for name in (_FILE, _DATA):
        digest = hashlib.sha256((snapshot / name).read_bytes()).hexdigest()
        (snapshot / name).rename(blobs / digest)
        (snapshot / name).symlink_to(f"../../blobs/{digest}")


def linked(directory: Path) -> None:
    """Write a layer whose data is a link to a file elsewhere."""
    external(directory)
    outside = directory.parent / f"{directory.name}.data"
    (directory / _DATA).rename(outside)
    (directory / _DATA).symlink_to(outside)


def external_at(directory: Path, location: str) -> None:
    """Write a layer whose external data has the path ``location``."""
    external(directory)
    model = onnx.load(directory / _FILE, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (directory.parent / "outside.data").write_bytes((directory / _DATA).read_bytes())
    (directory / _DATA).unlink()
    _save(model, directory)


def sequence(directory: Path) -> None:
    """Write a graph whose output is a sequence of tensors."""
    node = helper.make_node("SplitToSequence", ["x"], ["y"], axis=1, keepdims=1)
    output = helper.make_tensor_sequence_value_info("y", _F, None)
    _save(_model([node], [_value("x", ["batch", 4])], [output]), directory)


def maps(directory: Path) -> None:
    """Write a graph whose output is a sequence of maps, as scikit-learn's converters do."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(_F, []))
    )
    output = helper.make_value_info("y", kind)
    _save(_model([node], [_value("x", ["batch", 4])], [output], (), {"": 17, "ai.onnx.ml": 3}), directory)


def labels(directory: Path) -> None:
    """Write a classifier as scikit-learn's converters do: labels, and a sequence of maps of probabilities."""
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["sum"]),
        helper.make_node("ArgMax", ["sum"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["sum"], ["scores"], axis=1),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]
    number = helper.make_tensor_type_proto(_F, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, number))
    outputs = [_value("label", ["batch"], TensorProto.INT64), helper.make_value_info("maps", maps)]
    opsets = {"": 17, "ai.onnx.ml": 3}
    _save(_model(nodes, [_value("x", ["batch", 4])], outputs, _weights(), opsets), directory)


def of_type(directory: Path, dtype: str) -> None:
    """Write a graph whose input and output are of a type that Triton does not serve."""
    number = TensorProto.DataType.Value(dtype)
    node = helper.make_node("Identity", ["x"], ["y"])
    ends = [_value("x", ["batch", 4], number)], [_value("y", ["batch", 4], number)]
    _save(_model([node], *ends, (), {"": 21}), directory)


def unknown_operator(directory: Path) -> None:
    """Write a graph with an operator of an unknown domain."""
    node = helper.make_node("Magic", ["x"], ["y"], domain="com.acme")
    _save(
        _model([node], [_value("x", ["batch", 4])], [_value("y", ["batch", 4])], (), {"": 17, "com.acme": 1}), directory
    )


def dangling(directory: Path) -> None:
    """Write a graph in which a node reads a value that no node writes."""
    node = helper.make_node("Add", ["x", "nowhere"], ["y"])
    _save(_model([node], [_value("x", ["batch", 4])], [_value("y", ["batch", 4])]), directory)


def truncated(directory: Path) -> None:
    """Write the first half of a file."""
    (directory / _FILE).write_bytes(_gemm().SerializeToString()[:100])


def empty(directory: Path) -> None:
    """Write an empty file, which onnx.load accepts as a model."""
    (directory / _FILE).touch()


def pointer(directory: Path) -> None:
    """Write a git-LFS pointer."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (directory / _FILE).write_text(text, encoding="utf-8")


def pooled(directory: Path, shape: Shape) -> None:
    """Write a convolution and a pooling of images, whose axes are declared as in ``shape``."""
    nodes = [
        helper.make_node("Conv", ["x", "weight"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weight = np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32)
    values = [_value(name, shape) for name in "xy"]
    _save(_model(nodes, values[:1], values[1:], [numpy_helper.from_array(weight, "weight")]), directory)


def products(directory: Path) -> None:
    """Write the product, the sum of squares and the mean of the integers of each row."""
    reductions = ("ReduceProd", "ReduceSumSquare", "ReduceMean")
    nodes = [helper.make_node(name, ["x"], [name], axes=[1], keepdims=1) for name in reductions]
    nodes.append(helper.make_node("Concat", list(reductions), ["y"], axis=1))
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", n]) for name, n in (("x", 6), ("y", 3))]
    _save(_model(nodes, values[:1], values[1:]), directory)


def resized(directory: Path) -> None:
    """Write images, resized to a size that is an input."""
    nodes = [
        helper.make_node("Shape", ["image"], ["front"], start=0, end=2),
        helper.make_node("Concat", ["front", "size"], ["sizes"], axis=0),
        helper.make_node("Resize", ["image", "", "", "sizes"], ["y"], mode="linear"),
    ]
    inputs = [_value("image", ["batch", 3, "height", "width"]), _value("size", [2], TensorProto.INT64)]
    _save(_model(nodes, inputs, [_value("y", ["batch", 3, "out_height", "out_width"])], []), directory)


def inferred_dims(directory: Path) -> None:
    """Write a product with weights of 3 columns, whose output is declared ``[N, M]``."""
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["y"])]
    _save(_model(nodes, [_value("x", ["N", 4])], [_value("y", ["N", "M"])], _weights()[:1]), directory)
