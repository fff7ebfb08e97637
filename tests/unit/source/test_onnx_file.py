"""ONNX files are validated as untrusted input; the spec can narrow their signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repogen.artifacts.source import DimRange, OnnxFile
from repogen.artifacts.tensors import TensorSpec
from repogen.errors import ExitCode, SourceError
from repogen.source.load import load_source
from repogen.source.onnx.reference import file_reference
from repogen.spec.models import ModelSpec
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel


class Load(Protocol):
    """Loads a graph, or an existing ``model.onnx``, with keys of a spec."""

    def __call__(self, graph: onnx.ModelProto | None = None, **spec: Any) -> SourceModel:
        """Return the source model."""


@pytest.fixture
def load_onnx(root: Path) -> Load:
    """Return the loader."""

    def load(graph: onnx.ModelProto | None = None, **spec: Any) -> SourceModel:
        if graph is not None:
            onnx.save_model(graph, root / "model.onnx")
        source = {"kind": "onnx", "path": "model.onnx", **spec.pop("source", {})}
        return load_source(ModelSpec.model_validate({"source": source, **spec}), root)

    return load


def rejection(load: Load, graph: onnx.ModelProto | None = None, **spec: Any) -> SourceError:
    """Return the error of loading a graph."""
    with pytest.raises(SourceError) as caught:
        load(graph, **spec)
    return caught.value


def test_signature_comes_from_the_file(load_onnx: Load, root: Path) -> None:
    """Names, types and dims are read; axis 0 of every input is the batch, whatever its name."""
    source = load_onnx(graphs.matmul())
    assert source.signature.inputs == (TensorSpec("x", "float32", ("N", 4)),)
    assert source.signature.outputs == (TensorSpec("y", "float32", (2, 3)),)
    assert source.dims == {"N": DimRange(1, 32, 2)}
    assert source.origin == OnnxFile(root / "model.onnx")
    x: Any = source.examples({"N": 5}, 0)["x"]
    y: Any = source.reference({"x": x})["y"]
    np.testing.assert_allclose(y, x @ graphs.WEIGHT, rtol=1e-6)
    assert "parity compares the published graph with the file itself" in source.notes[-1]


def test_unnamed_dims_get_names(load_onnx: Load) -> None:
    """Axis 0 is the batch that all inputs share; other names consist of input and axis."""
    node = helper.make_node("Add", ["a.1", "b"], ["y"])
    ends = [graphs.value("a.1", [None, None]), graphs.value("b", [None, 1])]
    source = load_onnx(graphs.model([node], ends, [graphs.value("y", [None, None])]))
    assert [spec.shape for spec in source.signature.inputs] == [("batch", "a_1_axis1"), ("batch", 1)]
    assert list(source.dims) == ["batch", "a_1_axis1"]


def test_sizes_are_determined_by_running_the_graph(load_onnx: Load) -> None:
    """A graph that accepts only multiples of 8 gets bounds whose tested sizes are multiples of 8."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["split"]),
        helper.make_node("ReduceMax", ["split"], ["y"], axes=[3], keepdims=0),
    ]
    ends = [graphs.value("x", ["batch", "width"])], [graphs.value("y", ["batch", "parts", 1])]
    source = load_onnx(graphs.model(nodes, *ends, shape=np.array([0, -1, 1, 8])))
    assert source.dims["width"] == DimRange(8, 64, 16)
    assert "width 8 to 64" in source.notes[0]


def test_integers_without_a_range_are_0_and_1(load_onnx: Load) -> None:
    """Both are valid indices of any embedding with two entries; a note says so."""
    source = load_onnx(graphs.lookup())
    assert set(source.examples({"batch": 8, "seq": 16}, 0)["ids"].flat) == {0, 1}
    assert any("ids: only the integers 0 and 1 were tested" in note for note in source.notes)


def test_spec_narrows_the_signature(load_onnx: Load) -> None:
    """The spec can set a range, the name of a dim, a fixed size and bounds."""
    inputs = {"ids": {"dtype": "int64", "shape": ["batch", 7], "range": [3, 9]}}
    source = load_onnx(graphs.lookup(), inputs=inputs, dims={"batch": {"max": 4}})
    assert source.signature.inputs == (TensorSpec("ids", "int64", ("batch", 7)),)
    assert source.dims == {"batch": DimRange(1, 4, 2)}
    assert source.examples({"batch": 2}, 0)["ids"].min() >= 3


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"inputs": {"y": {"dtype": "float32", "shape": [1]}, "z": {"dtype": "float32", "shape": [1]}}},
         "source.inputs-mixed", "the inputs of the file are x"),
        ({"inputs": {"x": {"dtype": "float16", "shape": ["N", 4]}}, "dims": {"N": {"max": 4}}},
         "source.declared-type", "float32 ['N', 4] in the file, but declared as float16"),
        ({"inputs": {"x": {"dtype": "float32", "shape": ["N", "c"]}}, "dims": {"N": {"max": 4}, "c": {"max": 4}}},
         "export.specialized-dim", "but fixed to 4 in the file"),
        ({"dims": {"rows": {"max": 4}}}, "source.dim-unused", "dims.rows is not a dim of the file, which has N"),
        ({"outputs": ["a", "b"]}, "source.outputs", "the file's outputs are y"),
    ],
)  # fmt: skip
def test_spec_contradicts_the_file(load_onnx: Load, spec: dict[str, Any], code: str, message: str) -> None:
    """The message has the value in the spec and the value in the file."""
    error = rejection(load_onnx, graphs.matmul(), **spec)
    assert error.code == code
    assert message in error.message


def test_outputs_are_chosen_by_name_or_renamed(load_onnx: Load) -> None:
    """Names of the file select outputs; the same number of other names renames them."""
    assert [spec.name for spec in load_onnx(graphs.matmul(), outputs=["scores"]).signature.outputs] == ["scores"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.onnx is empty"),
        (graphs.matmul().SerializeToString()[:90], "is not an ONNX file, or is truncated"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"<!DOCTYPE html><title>Sign in</title>", "is a web page"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "contains no graph"),
    ],
)
def test_file_without_a_graph(load_onnx: Load, root: Path, content: bytes, message: str) -> None:
    """An empty file is rejected, although onnx.load accepts it as an empty model."""
    (root / "model.onnx").write_bytes(content)
    error = rejection(load_onnx)
    assert error.code == "source.onnx"
    assert message in error.message


def test_graph_that_violates_the_standard(load_onnx: Load) -> None:
    """The message has the first line of the checker."""
    broken = graphs.matmul()
    broken.graph.node[0].input[1] = "nobody"
    assert "violates the ONNX standard" in rejection(load_onnx, broken).message


def test_custom_operator(load_onnx: Load) -> None:
    """It is reported before ONNX Runtime loads the graph."""
    graph = graphs.matmul()
    graph.graph.node[0].domain = "my.ops"
    graph.opset_import.append(helper.make_opsetid("my.ops", 1))
    assert "operator MatMul of domain 'my.ops'" in rejection(load_onnx, graph).message


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../../etc/passwd", "leads out of its directory"),
        ("/etc/passwd", "leads out of its directory"),
        ("link", "is a symlink that leads out of its directory"),
        ("folder", "is not a regular file"),
        ("absent", "does not exist"),
        ("", "leads out of its directory"),
    ],
)
def test_external_data_stays_in_its_directory(load_onnx: Load, root: Path, location: str, message: str) -> None:
    """A location is rejected before any file is opened."""
    graphs.with_external(root / "model.onnx", location)
    (root / "link").symlink_to("/etc/passwd")
    (root / "folder").mkdir()
    error = rejection(load_onnx)
    assert error.code == "source.onnx-external-data"
    assert message in error.message


def test_truncated_external_data(load_onnx: Load, root: Path) -> None:
    """The message has the tensor that is beyond the end of the file."""
    graphs.with_external(root / "model.onnx")
    (root / "model.onnx.data").write_bytes(b"1234")
    error = rejection(load_onnx)
    assert error.code == "source.onnx-external-data"
    assert "tensor 'w' needs 48 bytes at offset 0" in error.message


def test_links_in_a_hugging_face_cache_are_followed(root: Path) -> None:
    """A snapshot consists of links to blobs of the same repository."""
    blobs, snapshot = root / "repo" / "blobs", root / "repo" / "snapshots" / "c0ffee"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    graphs.with_external(root / "export.onnx")
    (root / "export.onnx").rename(blobs / "aaa")
    (root / "model.onnx.data").rename(blobs / "bbb")
    (snapshot / "model.onnx").symlink_to("../../blobs/aaa")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/bbb")
    path = "repo/snapshots/c0ffee/model.onnx"
    source = load_source(ModelSpec.model_validate({"source": {"kind": "onnx", "path": path}}), root)
    assert source.files == (blobs / "bbb",)


def _cast(kind: int) -> onnx.ModelProto:
    node = helper.make_node("Cast", ["x"], ["y"], to=graphs.FLOAT)
    return graphs.model([node], [graphs.value("x", ["N", 4], kind)], [graphs.value("y", ["N", 4])], opset=21, ir=10)


@pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "INT4"])
def test_types_that_triton_does_not_support(load_onnx: Load, kind: str) -> None:
    """The message has the tensor and its type; the hint has a fix."""
    error = rejection(load_onnx, _cast(TensorProto.DataType.Value(kind)))
    assert error.code == "source.onnx-type"
    assert error.message.startswith(f"input 'x' is {kind.lower()}")
    assert "float32" in error.hint


def test_sequence_output_can_be_left_out(load_onnx: Load) -> None:
    """A sequence among the outputs is rejected unless the spec selects other outputs."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    sequence = helper.make_tensor_sequence_value_info("s", graphs.FLOAT, None)
    graph = graphs.model(nodes, [graphs.value("x", ["N", 4])], [sequence, graphs.value("y", ["N", 4])])
    error = rejection(load_onnx, graph)
    assert error.code == "source.onnx-type"
    assert error.hint.endswith("or leave it out: outputs: [y]")
    assert [spec.name for spec in load_onnx(graph, outputs=["y"]).signature.outputs] == ["y"]


def test_stored_outputs_are_the_first_parity_case(load_onnx: Load, root: Path) -> None:
    """The stored inputs and outputs are returned unchanged."""
    x = np.ones((1, 4), np.float32)
    np.savez(root / "answers.npz", x=x, y=np.full((1, 3), 7, np.float32))
    source = load_onnx(graphs.matmul(), source={"reference": "answers.npz"})
    assert (source.dims, source.files) == ({"N": DimRange(1, 32, 1)}, (root / "answers.npz",))
    assert (source.stored, source.against) == ("answers.npz", "")
    np.testing.assert_array_equal(source.reference(source.examples({"N": 1}, 0))["y"], [[7, 7, 7]])
    assert not np.array_equal(*source.examples({"N": 2}, 0)["x"])  # a single stored row is not repeated
    other: Any = source.reference({"x": x * 2})["y"]
    np.testing.assert_allclose(other, x * 2 @ graphs.WEIGHT, rtol=1e-6)


def test_stored_outputs_without_a_required_output(load_onnx: Load, root: Path) -> None:
    """The message lists the missing and the stored names."""
    np.savez(root / "answers.npz", x=np.ones((1, 4), np.float32))
    error = rejection(load_onnx, graphs.matmul(), source={"reference": "answers.npz"})
    assert (error.code, error.message) == ("source.reference", "answers.npz does not contain y; it contains x")


def test_torch_module_as_the_reference(load_onnx: Load, root: Path) -> None:
    """It gets the same inputs by name; its outputs get the names of the file's outputs."""
    code = "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x[:, :3] * 2\n"
    (root / "reference.py").write_text(f"{code}\n\ndef build():\n    return M()\n", encoding="utf-8")
    source = load_onnx(graphs.matmul(), source={"reference": "reference.py:build"})
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(source.reference({"x": x})["y"], np.full((2, 3), 2, np.float32))


def test_file_too_new_for_onnx_runtime_uses_the_onnx_evaluator(load_onnx: Load) -> None:
    """The converted graph can then be compared with the original file."""
    source = load_onnx(graphs.matmul(opset=26, ir=14))
    assert "onnx's reference evaluator" in source.notes[-1]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ArgMax", "ArgMin"])
def test_extremes_of_int64_are_those_of_the_standard(
    load_onnx: Load,
    root: Path,
    operator: str,
    external: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """ONNX Runtime's ReduceMax and ReduceMin return other values for some rows beyond int32."""
    axis = {"axes": [1]} if operator.startswith("Reduce") else {"axis": 1}
    nodes = [
        helper.make_node("Add", ["x", "offset"], ["sum"]),
        helper.make_node(operator, ["sum"], ["y"], keepdims=0, **axis),
    ]
    ends = [graphs.value("x", ["N", 9], graphs.INT64)], [graphs.value("y", ["N"], graphs.INT64)]
    offset = np.random.default_rng(1).integers(-(10**10), 10**10, 9)
    graph = graphs.model(nodes, *ends, offset=offset)
    options: dict[str, Any] = {"save_as_external_data": True, "location": "weights", "size_threshold": 0}
    onnx.save_model(graph, root / "model.onnx", **(options if external else {}))
    source = load_onnx(inputs={"x": {"dtype": "int64", "shape": ["N", 9], "range": [-(10**10), 10**10]}})
    x: Any = source.examples({"N": 256}, 0)["x"]
    function: Any = {"ReduceMax": np.max, "ReduceMin": np.min, "ArgMax": np.argmax, "ArgMin": np.argmin}[operator]
    np.testing.assert_array_equal(source.reference({"x": x})["y"], function(x + offset, axis=1))


def test_inputs_with_initializers_are_constants(load_onnx: Load) -> None:
    """IR 3 lists every weight as an input."""
    graph = graphs.matmul(opset=8, ir=3)
    graph.graph.input.append(graphs.value("w", [4, 3]))
    assert [spec.name for spec in load_onnx(graph).signature.inputs] == ["x"]


def _noisy(*outputs: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="draw"),
        helper.make_node("Add", ["x", "noise"], ["noisy"]),
        helper.make_node("Neg", ["x"], ["plain"]),
    ]
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", *outputs)}
    graph = helper.make_graph(nodes, "g", [value["x"]], [value[name] for name in outputs])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def test_random_outputs(load_onnx: Load) -> None:
    """The message has the random node; random values that reach no served output are accepted."""
    error = rejection(load_onnx, _noisy("plain", "noisy"))
    assert error.code == "source.random"
    assert "output noisy is random; these nodes generate random numbers: RandomNormalLike 'draw'" in error.message
    assert load_onnx(_noisy("plain", "noisy"), outputs=["plain"]).signature.outputs[0].name == "plain"


def _with_dropout(*, training: bool) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Dropout", ["positive", "ratio", "training"], ["kept"], name="drop"),
        helper.make_node("Neg", ["kept"], ["y"]),
    ]
    ends = [graphs.value("x", ["N", 4])], [graphs.value("y", ["N", 4])]
    return graphs.model(nodes, *ends, ratio=np.array(0.5, np.float32), training=np.array(training))


def test_dropout_in_training_mode(load_onnx: Load) -> None:
    """ONNX Runtime's optimizer removes the node, also in training mode; without optimization, outputs are random."""
    error = rejection(load_onnx, _with_dropout(training=True))
    assert (error.code, "generate random numbers: Dropout 'drop'" in error.message) == ("source.random", True)
    assert load_onnx(_with_dropout(training=False)).signature.outputs[0].name == "y"


@pytest.mark.parametrize(
    ("shape", "code", "message"),
    [
        (["N", 2**40], "source.dim-size", "input 'x' has a dim of size 1099511627776"),
        (
            ["N", 2**31 - 1, 2**31 - 1],
            "source.too-large",
            "2147483647, 2147483647] is larger than",
        ),
        ([2**31 - 1] * 8, "source.too-large", "is larger than 2 GiB"),
    ],
)
def test_input_that_no_machine_can_hold(load_onnx: Load, shape: list[int | str], code: str, message: str) -> None:
    """No example of it is allocated."""
    node = helper.make_node("Identity", ["x"], ["y"])
    error = rejection(load_onnx, graphs.model([node], [graphs.value("x", shape)], [graphs.value("y", shape)]))
    assert (error.code, message in error.message) == (code, True)


@pytest.mark.parametrize("dims", [[2**40, 3], [2**62] * 300])
def test_weight_that_is_larger_than_its_data(load_onnx: Load, dims: list[int]) -> None:
    """The declared shape is not allocated."""
    graph = graphs.matmul()
    graph.graph.initializer[0].dims[:] = dims
    assert rejection(load_onnx, graph).code == "source.onnx"


@pytest.mark.parametrize("field", ["name", "dim"])
def test_name_that_is_not_utf8(load_onnx: Load, root: Path, field: str) -> None:
    """Protobuf returns such a name as bytes."""
    graph = graphs.matmul("xyz")
    old = b"\x12\x03xyz" if field == "dim" else b"\n\x01x\x12"
    content = graph.SerializeToString().replace(old, old.replace(b"x", b"\xff"))
    assert content != graph.SerializeToString()
    (root / "model.onnx").write_bytes(content)
    assert "a name that is not UTF-8" in rejection(load_onnx).message


@pytest.mark.parametrize(
    "entries",
    [{"offset": "9" * 5000}, {"length": "9" * 400}, {"offset": "-1"}, {"length": "4e9"}, {"offset": str(2**40)}],
)
def test_external_data_with_impossible_extents(load_onnx: Load, root: Path, entries: dict[str, str]) -> None:
    """The data file is shorter than declared."""
    graphs.with_external(root / "model.onnx")
    stored = onnx.load(root / "model.onnx", load_external_data=False)
    for entry in stored.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    error = rejection(load_onnx, stored)
    assert error.code == "source.onnx-external-data"
    assert len(error.message) < 300


def test_graph_without_inputs(load_onnx: Load) -> None:
    """Triton serves it, but parity has nothing to vary."""
    node = helper.make_node("Add", ["w", "w"], ["y"])
    error = rejection(load_onnx, graphs.model([node], [], [graphs.value("y", [4, 3])], w=graphs.WEIGHT))
    assert (error.code, error.exit_code) == ("source.no-inputs", ExitCode.EXPORT)


def test_damaged_graph_that_is_too_new(load_onnx: Load) -> None:
    """Onnx's evaluator, which runs graphs that are too new for ONNX Runtime, reads the weights."""
    graph = graphs.matmul(ir=99)
    graph.graph.initializer[0].raw_data = bytes(20)
    assert rejection(load_onnx, graph).code == "source.onnx"


def test_published_step_with_bfloat16_takes_and_returns_float32(tmp_path: Path) -> None:
    """A step of an ensemble; files of the user cannot have such inputs and outputs."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["N", 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(proto, tmp_path / "model.onnx")
    reference = file_reference(proto, tmp_path / "model.onnx", {"x": "x"}, {"y": "y"})
    y_array: Any = reference({"x": np.full((1, 2), 1 / 3, np.float32)})["y"]
    assert (y_array.dtype, y_array.tolist()) == (np.float32, [[0.333984375, 0.333984375]])


def test_file_with_a_map_and_sums(tmp_path: Path) -> None:
    """A classifier of scikit-learn also returns a list of maps, which onnx_ir does not read; sums stay exact."""
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["N", 2])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, ["N", 1])
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["scores"], to=TensorProto.FLOAT),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
        helper.make_node("ReduceSum", ["x", "axis"], ["y"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", [x], [y, helper.make_value_info("maps", kind)], [axis])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save_model(proto, tmp_path / "model.onnx")
    reference = file_reference(proto, tmp_path / "model.onnx", {"x": "x"}, {"y": "y"})
    assert reference({"x": np.array([[2**60 + 1, 2**60 + 2]])})["y"].tolist() == [[2**61 + 3]]
