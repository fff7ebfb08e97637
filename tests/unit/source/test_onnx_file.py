"""An ONNX file is read as a stranger's, and its own signature is the model's unless the spec narrows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repogen.artifacts.source import DimRange, OnnxFile
from repogen.artifacts.tensors import TensorSpec
from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel


class Load(Protocol):
    """Loads a graph, or the file ``model.onnx`` that is there, with keys of a spec."""

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


def refused(load: Load, graph: onnx.ModelProto | None = None, **spec: Any) -> SourceError:
    """Return the error of a graph that must be refused."""
    with pytest.raises(SourceError) as caught:
        load(graph, **spec)
    return caught.value


def test_the_signature_is_the_file_s_own(load_onnx: Load, root: Path) -> None:
    """Names, types and dims are read; axis 0 of every input is the batch, whatever it is called."""
    source = load_onnx(graphs.matmul())
    assert source.signature.inputs == (TensorSpec("x", "float32", ("N", 4)),)
    assert source.signature.outputs == (TensorSpec("y", "float32", (2, 3)),)
    assert source.dims == {"N": DimRange(1, 32, 2)}
    assert source.origin == OnnxFile(root / "model.onnx")
    x: Any = source.examples({"N": 5}, 0)["x"]
    y: Any = source.reference({"x": x})["y"]
    np.testing.assert_allclose(y, x @ graphs.WEIGHT, rtol=1e-6)
    assert "parity compares what is published with the file itself" in source.notes[-1]


def test_unnamed_dims_get_names(load_onnx: Load) -> None:
    """Axis 0 is the batch that all inputs share; others are called by their place."""
    node = helper.make_node("Add", ["a.1", "b"], ["y"])
    ends = [graphs.value("a.1", [None, None]), graphs.value("b", [None, 1])]
    source = load_onnx(graphs.model([node], ends, [graphs.value("y", [None, None])]))
    assert [spec.shape for spec in source.signature.inputs] == [("batch", "a_1_axis1"), ("batch", 1)]
    assert list(source.dims) == ["batch", "a_1_axis1"]


def test_sizes_are_found_by_trying(load_onnx: Load) -> None:
    """A graph that takes multiples of 8 from 8 up gets bounds of which every tried size is one."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["split"]),
        helper.make_node("ReduceMax", ["split"], ["y"], axes=[3], keepdims=0),
    ]
    ends = [graphs.value("x", ["batch", "width"])], [graphs.value("y", ["batch", "parts", 1])]
    source = load_onnx(graphs.model(nodes, *ends, shape=np.array([0, -1, 1, 8])))
    assert source.dims["width"] == DimRange(8, 64, 16)
    assert "width 8 to 64" in source.notes[0]


def test_integers_without_a_range_are_drawn_from_0_and_1(load_onnx: Load) -> None:
    """Both are an index of any embedding that has two entries, and it is said."""
    source = load_onnx(graphs.lookup())
    assert set(source.examples({"batch": 8, "seq": 16}, 0)["ids"].flat) == {0, 1}
    assert any("ids: only the integers 0 and 1 were tested" in note for note in source.notes)


def test_the_spec_narrows(load_onnx: Load) -> None:
    """A range, another name for a dim, a fixed size and bounds are taken from the spec."""
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
def test_a_spec_that_does_not_fit_the_file(load_onnx: Load, spec: dict[str, Any], code: str, message: str) -> None:
    """What the spec says and the file is not, is told with both sides."""
    error = refused(load_onnx, graphs.matmul(), **spec)
    assert error.code == code
    assert message in error.message


def test_outputs_are_chosen_by_name_or_renamed(load_onnx: Load) -> None:
    """Names of the file are a choice; as many others are new names."""
    assert [spec.name for spec in load_onnx(graphs.matmul(), outputs=["scores"]).signature.outputs] == ["scores"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.onnx is empty"),
        (graphs.matmul().SerializeToString()[:90], "is no ONNX file, or is cut short"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "holds no graph"),
    ],
)
def test_a_file_that_is_no_graph(load_onnx: Load, root: Path, content: bytes, message: str) -> None:
    """onnx.load takes an empty file for an empty model; here it is named."""
    (root / "model.onnx").write_bytes(content)
    error = refused(load_onnx)
    assert error.code == "source.onnx"
    assert message in error.message


def test_a_graph_that_breaks_the_standard(load_onnx: Load) -> None:
    """The checker's first line is the reason."""
    broken = graphs.matmul()
    broken.graph.node[0].input[1] = "nobody"
    assert "breaks the ONNX standard" in refused(load_onnx, broken).message


def test_an_operator_of_somebody_s_own(load_onnx: Load) -> None:
    """It is named before ONNX Runtime stumbles over it."""
    graph = graphs.matmul()
    graph.graph.node[0].domain = "my.ops"
    graph.opset_import.append(helper.make_opsetid("my.ops", 1))
    assert "operator MatMul of domain 'my.ops'" in refused(load_onnx, graph).message


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
    """A location is refused before anything opens it."""
    graphs.with_external(root / "model.onnx", location)
    (root / "link").symlink_to("/etc/passwd")
    (root / "folder").mkdir()
    error = refused(load_onnx)
    assert error.code == "source.onnx-external-data"
    assert message in error.message


def test_external_data_that_is_cut_short(load_onnx: Load, root: Path) -> None:
    """The tensor that would lie behind the end is named."""
    graphs.with_external(root / "model.onnx")
    (root / "model.onnx.data").write_bytes(b"1234")
    error = refused(load_onnx)
    assert error.code == "source.onnx-external-data"
    assert "tensor 'w' needs 48 bytes at offset 0" in error.message


def test_a_hub_cache_s_links_are_followed(root: Path) -> None:
    """A snapshot links to blobs of the same repository, and those are its files."""
    blobs, snapshot = root / "repo" / "blobs", root / "repo" / "snapshots" / "c0ffee"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    graphs.with_external(root / "made.onnx")
    (root / "made.onnx").rename(blobs / "aaa")
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
def test_types_that_triton_does_not_take(load_onnx: Load, kind: str) -> None:
    """The tensor and its type are named, with the remedy."""
    error = refused(load_onnx, _cast(TensorProto.DataType.Value(kind)))
    assert error.code == "source.onnx-type"
    assert error.message.startswith(f"input 'x' is {kind.lower()}")
    assert "float32" in error.hint


def test_a_sequence_can_be_left_out(load_onnx: Load) -> None:
    """A sequence among the outputs is refused, unless the spec chooses others."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    sequence = helper.make_tensor_sequence_value_info("s", graphs.FLOAT, None)
    graph = graphs.model(nodes, [graphs.value("x", ["N", 4])], [sequence, graphs.value("y", ["N", 4])])
    error = refused(load_onnx, graph)
    assert error.code == "source.onnx-type"
    assert error.hint.endswith("or leave it out: outputs: [y]")
    assert [spec.name for spec in load_onnx(graph, outputs=["y"]).signature.outputs] == ["y"]


def test_answers_in_a_file_are_what_parity_begins_with(load_onnx: Load, root: Path) -> None:
    """The stored inputs come back as they are, and so do the stored answers."""
    x = np.ones((1, 4), np.float32)
    np.savez(root / "answers.npz", x=x, y=np.full((1, 3), 7, np.float32))
    source = load_onnx(graphs.matmul(), source={"reference": "answers.npz"})
    assert (source.dims, source.files) == ({"N": DimRange(1, 32, 1)}, (root / "answers.npz",))
    np.testing.assert_array_equal(source.reference(source.examples({"N": 1}, 0))["y"], [[7, 7, 7]])
    assert not np.array_equal(*source.examples({"N": 2}, 0)["x"])  # one stored row tells nothing of a batch
    other: Any = source.reference({"x": x * 2})["y"]
    np.testing.assert_allclose(other, x * 2 @ graphs.WEIGHT, rtol=1e-6)


def test_answers_that_lack_an_output(load_onnx: Load, root: Path) -> None:
    """Both sides are named."""
    np.savez(root / "answers.npz", x=np.ones((1, 4), np.float32))
    error = refused(load_onnx, graphs.matmul(), source={"reference": "answers.npz"})
    assert (error.code, error.message) == ("source.reference", "answers.npz lacks y; it has x")


def test_a_torch_module_as_the_reference(load_onnx: Load, root: Path) -> None:
    """It takes the same inputs by name, and its outputs bear the file's names."""
    code = "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x[:, :3] * 2\n"
    (root / "reference.py").write_text(f"{code}\n\ndef build():\n    return M()\n", encoding="utf-8")
    source = load_onnx(graphs.matmul(), source={"reference": "reference.py:build"})
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(source.reference({"x": x})["y"], np.full((2, 3), 2, np.float32))


def test_a_file_too_new_for_onnx_runtime_is_run_by_onnx_itself(load_onnx: Load) -> None:
    """What is converted later is compared with what the file really says."""
    source = load_onnx(graphs.matmul(opset=26, ir=14))
    assert "onnx's own evaluator" in source.notes[-1]


def test_constants_among_the_inputs_are_no_inputs(load_onnx: Load) -> None:
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


def test_random_numbers_that_reach_an_output(load_onnx: Load) -> None:
    """The node that draws them is named; where they reach no output that is served, they do not matter."""
    error = refused(load_onnx, _noisy("plain", "noisy"))
    assert error.code == "source.random"
    assert "its output noisy: RandomNormalLike 'draw'" in error.message
    assert load_onnx(_noisy("plain", "noisy"), outputs=["plain"]).signature.outputs[0].name == "plain"
