"""A normalized graph: the spec's names, one data file, no local metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ExportError
from repogen.onnx_graph.normalize import NormalizeOptions, count_nodes, describe, name_dims, normalize
from repogen.onnx_graph.session import run as run_session
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.tensors import Array

ROW = ("batch", 3)


def tensor(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Return a [batch, 3] tensor of a graph."""
    return helper.make_tensor_value_info(name, kind, list(ROW))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 20,
) -> ir.Model:
    """Return a small model of IR 10."""
    graph = helper.make_graph(
        list(nodes), "g", [tensor(n) for n in inputs], [tensor(n) for n in outputs], initializer=list(weights)
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))


def options(
    inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), *, external: bool = False, release: str = "24.10"
) -> NormalizeOptions:
    """Return options for inputs and outputs of shape [batch, 3]."""
    sides = (tuple(TensorSpec(name, "float32", ROW) for name in names) for names in (inputs, outputs))
    return NormalizeOptions(Signature(*sides), targets()[release], external, "dynamo")


def run(artifact: OnnxArtifact, **inputs: Array) -> dict[str, Array]:
    """Check the file as ``validate`` does, and run it."""
    onnx.checker.check_model(artifact.path, full_check=True)
    names = [output.name for output in artifact.signature.outputs]
    session = onnxruntime.InferenceSession(artifact.path, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, inputs), strict=True))


def test_dims_get_the_names_of_the_signature() -> None:
    """Torch generates symbols for the dims of a program; a symbol with two names is ambiguous, and stays."""
    graph = model([helper.make_node("Add", ["x", "z"], ["y"])], ["x", "z"])
    shapes = {"x": ["s7", "s9"], "z": ["s7", "s8"], "y": ["s7", "s9 + 1"]}
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        value.shape = ir.Shape(shapes[str(value.name)])
    specs = (TensorSpec("z", "float32", ("batch", "z_axis1")), TensorSpec("x", "float32", ("batch", "rows")))
    name_dims(graph, Signature(specs, ()))
    named = {
        value.name: [str(dim) for dim in value.shape or ()] for value in (*graph.graph.inputs, *graph.graph.outputs)
    }
    assert named == {"x": ["batch", "rows"], "z": ["batch", "z_axis1"], "y": ["batch", "s9 + 1"]}
    other = Signature(
        (TensorSpec("x", "float32", ("batch", "rows")), TensorSpec("z", "float32", ("rows", "batch"))), ()
    )
    graph.graph.inputs[1].shape = ir.Shape(["batch", "other"])
    name_dims(graph, other)
    assert [str(dim) for dim in graph.graph.inputs[1].shape or ()] == ["batch", "batch"]


ONES = np.ones((2, 3), np.float32)


def test_inputs_and_outputs_get_the_names_of_the_spec(tmp_path: Path) -> None:
    """By position."""
    graph = model([helper.make_node("Sub", ["x", "391"], ["layer_norm_12"])], ["x", "391"], ["layer_norm_12"])
    artifact = normalize(graph, tmp_path / "model.onnx", options(["image", "mask"], ["logits"]))
    assert [s.name for s in artifact.signature.inputs] == ["image", "mask"]
    assert run(artifact, image=3 * ONES, mask=ONES)["logits"].tolist() == (2 * ONES).tolist()


def test_names_can_be_swapped(tmp_path: Path) -> None:
    """Inputs that are renamed to each other's names keep their values."""
    graph = model([helper.make_node("Sub", ["a", "b"], ["y"])], ["a", "b"])
    artifact = normalize(graph, tmp_path / "model.onnx", options(["b", "a"]))
    assert run(artifact, b=3 * ONES, a=ONES)["y"][0, 0] == 2.0


def test_inner_values_with_a_name_of_the_spec_are_renamed(tmp_path: Path) -> None:
    """Values and weights with the name of an input or output, or with the name that replaces it."""
    weight = numpy_helper.from_array(ONES[0], "mask")
    nodes = [
        helper.make_node("Add", ["x", "mask"], ["logits"]),
        helper.make_node("Add", ["logits", "mask"], ["logits__inner"]),
        helper.make_node("Add", ["logits__inner", "logits"], ["out"]),
    ]
    artifact = normalize(model(nodes, ["x"], ["out"], [weight]), tmp_path / "model.onnx", options(["mask"], ["logits"]))
    assert run(artifact, mask=ONES)["logits"][0, 0] == 5.0


def branch(kind: str, read: str, result: str) -> onnx.GraphProto:
    """Return a branch of one node."""
    return helper.make_graph([helper.make_node(kind, [read], [result])], kind, [], [tensor(result)])


def test_values_of_subgraphs_with_a_name_of_the_spec_are_renamed(tmp_path: Path) -> None:
    """A subgraph must not shadow the inputs of the graph."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If",
            ["positive"],
            ["y"],
            then_branch=branch("Identity", "x", "image"),
            else_branch=branch("Neg", "x", "image"),
        ),
    ]
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    artifact = normalize(model(nodes, weights=[zero]), tmp_path / "model.onnx", options(["image"]))
    assert run(artifact, image=-ONES)["y"][0, 0] == 1.0
    assert artifact.nodes == 5


@pytest.mark.parametrize("outputs", [["x", "y"], ["y", "y"], ["w", "y"]])
def test_outputs_that_are_other_values_get_an_identity_node(tmp_path: Path, outputs: list[str]) -> None:
    """An output that is an input, a weight, or another output can have another name."""
    graph = model([helper.make_node("Add", ["x", "w"], ["y"])], weights=[numpy_helper.from_array(ONES, "w")])
    values = {value.name: value for value in [*graph.graph.inputs, *graph.graph.outputs]}
    values["w"] = graph.graph.initializers["w"]
    graph.graph.outputs[:] = [values[name] for name in outputs]
    artifact = normalize(graph, tmp_path / "model.onnx", options(["x"], ["first", "second"]))
    result = run(artifact, x=ONES)
    expected = {"x": ONES, "y": 2 * ONES, "w": ONES}
    assert [result["first"].tolist(), result["second"].tolist()] == [expected[name].tolist() for name in outputs]


def test_omitted_optional_outputs_stay_omitted(tmp_path: Path) -> None:
    """Naming an optional output would make the operator compute it."""
    nodes = [
        helper.make_node("Dropout", ["x"], ["v", ""]),
        helper.make_node(
            "If", ["flag"], ["y"], then_branch=branch("Neg", "v", "r"), else_branch=branch("Abs", "v", "r")
        ),
    ]
    flag = numpy_helper.from_array(np.array(True), "flag")  # noqa: FBT003 - a value
    artifact = normalize(model(nodes, weights=[flag]), tmp_path / "model.onnx", options())
    assert list(onnx.load(artifact.path).graph.node[0].output) == ["v"]
    assert run(artifact, x=ONES)["y"][0, 0] == -1.0


def test_wrong_number_of_inputs_or_outputs_is_rejected(tmp_path: Path) -> None:
    """The message lists the actual and the expected names."""
    add = helper.make_node("Identity", ["x"], ["y"])
    with pytest.raises(ExportError, match="has inputs x; expected a, b") as caught:
        normalize(model([add]), tmp_path / "model.onnx", options(["a", "b"]))
    assert caught.value.code == "export.inputs"
    with pytest.raises(ExportError, match="has 1 outputs, the model 2"):
        normalize(model([add]), tmp_path / "model.onnx", options(["x"], ["y", "z"]))


def test_dropped_input_is_restored(tmp_path: Path) -> None:
    """Clients send it; the record lists it as unused."""
    artifact = normalize(
        model([helper.make_node("Identity", ["x"], ["y"])]), tmp_path / "model.onnx", options(["mask", "x"])
    )
    assert [spec.name for spec in artifact.signature.inputs] == ["mask", "x"]
    assert artifact.unused == ("mask",)


def test_local_metadata_is_removed(tmp_path: Path) -> None:
    """Doc strings, producer and metadata of the model, graph, nodes and values."""
    secret = "/home/me/models.py:12"  # noqa: S105 - a path
    graph = model([helper.make_node("Neg", ["x"], ["y"], doc_string=secret)])
    parts: list[Any] = [graph, graph.graph, *graph.graph.all_nodes(), *graph.graph.inputs, *graph.graph.outputs]
    for part in parts:
        part.metadata_props["pkg.torch.onnx.stack_trace"] = secret
        part.doc_string = secret
    graph.producer_name = graph.graph.name = secret
    artifact = normalize(graph, tmp_path / "model.onnx", options())
    assert secret.encode() not in artifact.path.read_bytes()


@pytest.mark.parametrize(
    ("opset", "release", "expected"), [(19, "23.08", 9), (20, "24.03", 9), (20, "24.10", 10), (21, "24.03", 10)]
)
def test_ir_version_is_lowered_for_older_targets(tmp_path: Path, opset: int, release: str, expected: int) -> None:
    """As far as the opset permits; the structure check rejects the rest."""
    graph = model([helper.make_node("Neg", ["x"], ["y"])], opset=opset)
    artifact = normalize(graph, tmp_path / "model.onnx", options(release=release))
    assert (artifact.ir_version, artifact.opset) == (expected, opset)


def scattered(directory: Path) -> ir.Model:
    """Return a model with one file per weight, as the TorchScript exporter writes models over 2 GB."""
    directory.mkdir()
    weights = [numpy_helper.from_array(np.full((64, 3), i, np.float32), f"w{i}") for i in (1, 2)]
    nodes = [helper.make_node("Gather", [f"w{i}", "zero"], [f"row{i}"]) for i in (1, 2)]
    nodes += [helper.make_node("Add", ["x", "row1"], ["sum"]), helper.make_node("Add", ["sum", "row2"], ["y"])]
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    graph = helper.make_graph(nodes, "g", [tensor("x")], [tensor("y")], initializer=[*weights, zero])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(
        proto, directory / "traced.onnx", save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0
    )
    assert {"w1", "w2"} <= {path.name for path in directory.iterdir()}
    return ir.load(directory / "traced.onnx")


@pytest.mark.parametrize("external", [False, True])
def test_weights_are_written_to_one_file(tmp_path: Path, *, external: bool) -> None:
    """To one data file, or to the model; the exporter's own files are not needed afterward."""
    graph = scattered(tmp_path / "exporter")
    target = tmp_path / "result"
    target.mkdir()
    artifact = normalize(graph, target / "model.onnx", options(external=external))
    for path in (tmp_path / "exporter").iterdir():
        path.unlink()
    assert artifact.external_data is external
    expected = {"model.onnx", "model.onnx.data"} if external else {"model.onnx"}
    assert {path.name for path in target.iterdir()} == expected
    assert run(artifact, x=ONES)["y"][0, 0] == 4.0


def test_dtype_that_triton_does_not_serve_is_rejected(tmp_path: Path) -> None:
    """Such as FP8."""
    graph = model([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)])
    graph.graph.outputs[0].dtype = ir.DataType.FLOAT8E4M3FN
    with pytest.raises(ExportError, match="'y' is") as caught:
        describe(graph, tmp_path / "model.onnx", "dynamo")
    assert caught.value.code == "export.dtype"


def test_declared_bfloat16_input_is_cast_to_what_the_graph_reads(tmp_path: Path) -> None:
    """Once, however often a graph is normalized; an input that no node reads, or that is an output, is BF16 as well."""
    graph = model([helper.make_node("Neg", ["x"], ["y"])], ["x", "unused"], ["y", "x"])
    signature = Signature(
        (TensorSpec("x", "bfloat16", ROW), TensorSpec("unused", "bfloat16", ROW)),
        (TensorSpec("y", "float32", ROW), TensorSpec("same", "float32", ROW)),
    )
    options = NormalizeOptions(signature, targets()["26.08"], external_data=False, exporter="dynamo")
    first = normalize(graph, tmp_path / "model.onnx", options)
    again = normalize(ir.load(first.path), tmp_path / "model.onnx", options)
    assert again.signature == first.signature == signature
    assert again.unused == ("unused",)
    assert sorted(node.op_type for node in onnx.load(again.path).graph.node) == ["Cast", "Identity", "Neg"]
    onnx.checker.check_model(again.path, full_check=True)
    session = onnxruntime.InferenceSession(again.path, providers=["CPUExecutionProvider"])
    third = np.full((1, 3), 1 / 3, np.float32)
    negated, same = run_session(session, ["y", "same"], {"x": third, "unused": third})
    assert (negated[0, 0], same[0, 0]) == (-0.333984375, 0.333984375)


def test_dim_without_a_name_is_a_question_mark(tmp_path: Path) -> None:
    """It is not a fixed size."""
    graph = model([helper.make_node("Neg", ["x"], ["y"])])
    graph.graph.outputs[0].shape = ir.Shape([None, 3])
    assert describe(graph, tmp_path / "model.onnx", "dynamo").signature.outputs[0].shape == ("?", 3)
    assert count_nodes(graph) == 1


def test_dim_names_of_the_exporter_are_replaced(tmp_path: Path) -> None:
    """TorchScript gives several axes of an output one name; declared dims keep their names."""
    graph = model([helper.make_node("Identity", ["x"], ["y"])])
    graph.graph.outputs[0].shape = ir.Shape(["batch", "Same_dim_0"])
    assert normalize(graph, tmp_path / "m.onnx", options()).signature.outputs[0].shape == ("batch", "y_dim_1")
    graph = model([helper.make_node("Identity", ["x"], ["y"])])
    graph.graph.outputs[0].shape = ir.Shape(["Same_dim_0", "Same_dim_0"])
    assert normalize(graph, tmp_path / "m.onnx", options()).signature.outputs[0].shape == ("y_dim_0", "y_dim_1")
