"""The summary of a graph: digests of tensors in every form, and limits on hostile files."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.files.content import ContentError
from repogen.onnx_graph.summary import summarize
from tests.support.graphs import WEIGHT, endless, matmul

if TYPE_CHECKING:
    from pathlib import Path


def external(location: str, offset: str = "0", length: str = "48", name: str = "w") -> onnx.TensorProto:
    """Return a tensor of 12 floats whose values are declared in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4, 3], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=text)
    return tensor


def saved(path: Path, *tensors: onnx.TensorProto) -> Path:
    """Return the file of a graph with other initializers."""
    proto = matmul()
    if tensors:
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(tensors)
    path.write_bytes(proto.SerializeToString())
    return path


def test_same_values_have_the_same_digest(tmp_path: Path) -> None:
    """Raw data, a typed field, and external data at any offset."""
    (tmp_path / "data").write_bytes(b"12345678" + WEIGHT.tobytes())
    forms = [
        numpy_helper.from_array(WEIGHT, "w"),
        helper.make_tensor("w", TensorProto.FLOAT, [4, 3], WEIGHT.ravel().tolist()),
        external("data", "8"),
    ]
    digests = {summarize(saved(tmp_path / "m.onnx", form)).tensors["w"] for form in forms}
    other = [
        numpy_helper.from_array(WEIGHT + 1, "w"),
        numpy_helper.from_array(WEIGHT.reshape(3, 4), "w"),
        numpy_helper.from_array(WEIGHT.astype(np.float64), "w"),
        external("data", "0"),
    ]
    others = {summarize(saved(tmp_path / "m.onnx", form)).tensors["w"] for form in other}
    assert (len(digests), len(others), digests & others) == (1, 4, set())


def test_operators_and_tensors_of_subgraphs(tmp_path: Path) -> None:
    """Nodes of subgraphs are counted; tensors in attributes are named by the output of their node."""
    proto = endless()
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(3, np.float32)))
    proto.graph.node.append(constant)
    proto.graph.node.append(helper.make_node("Fancy", [], ["f"], domain="com.example"))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    summary = summarize(tmp_path / "m.onnx")
    assert (summary.operators["Loop"], summary.operators["Add"], summary.operators["com.example::Fancy"]) == (1, 1, 1)
    assert "c:value" in summary.tensors
    assert (summary.opsets, summary.ir_version) == ({"ai.onnx": 17}, 8)


HOSTILE = [
    ("../data", "0", "48", "leads out of its directory"),
    ("/etc/passwd", "0", "48", "leads out of its directory"),
    ("none", "0", "48", "does not exist"),
    ("link", "0", "4", "is a symlink that leads out of its directory"),
    ("data", "40", "48", "but tensor 'w' needs"),
    ("data", "-1", "48", "but tensor 'w' needs"),
    ("data", "0", "9" * 30, "but tensor 'w' needs"),
]


@pytest.mark.parametrize(("location", "offset", "length", "problem"), HOSTILE)
def test_hostile_external_data(tmp_path: Path, location: str, offset: str, length: str, problem: str) -> None:
    """Nothing outside of the directory is read."""
    directory = tmp_path / "version"
    directory.mkdir()
    (tmp_path / "data").write_bytes(bytes(48))
    (directory / "data").write_bytes(bytes(48))
    (directory / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ContentError, match=problem):
        summarize(saved(directory / "m.onnx", external(location, offset, length)))


def test_overlapping_external_data(tmp_path: Path) -> None:
    """A shared range is hashed once; ranges that overlap are not hashed again and again."""
    (tmp_path / "data").write_bytes(bytes(1000))
    shared = [external("data", "0", "1000", f"w{number}") for number in range(50)]
    assert len(set(summarize(saved(tmp_path / "m.onnx", *shared)).tensors.values())) == 1
    sliding = [external("data", str(number), "900", f"w{number}") for number in range(50)]
    with pytest.raises(ContentError, match="overlap"):
        summarize(saved(tmp_path / "m.onnx", *sliding))


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    """A tensor whose fields contradict its shape or type has a digest as well; names need not be unique."""
    tensors = [
        TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[2**40, 2**20], float_data=[1.0]),
        TensorProto(name="b", data_type=999, dims=[1], float_data=[1.0]),
        TensorProto(name="c", data_type=TensorProto.STRING, dims=[2], string_data=[b"x", b"y"]),
        TensorProto(name="c", data_type=TensorProto.STRING, dims=[2], string_data=[b"x", b"z"]),
    ]
    assert len(summarize(saved(tmp_path / "m.onnx", *tensors)).tensors) == 4


@pytest.mark.parametrize("content", [b"", b"\x08", b"<html>", bytes(1000)])
def test_file_that_is_not_a_model(tmp_path: Path, content: bytes) -> None:
    """A ContentError."""
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ContentError):
        summarize(tmp_path / "m.onnx")


def test_imports_neither_torch_nor_onnxruntime() -> None:
    """Nor mlflow or gRPC."""
    program = (
        "import sys, repogen.versions.difference; print({'torch', 'onnxruntime', 'mlflow', 'grpc'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_long_name_of_a_node_with_many_tensors(tmp_path: Path) -> None:
    """Each of its tensors is named by it: a file of 15 MB took more than 12 GB of memory."""
    proto = matmul()
    node = proto.graph.node.add(op_type="X", domain="d", output=["o" * 1000])
    tensors = [TensorProto(data_type=TensorProto.FLOAT, dims=[0]) for _ in range(3)]
    node.attribute.append(helper.make_attribute("a" * 1000, tensors))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    names = [name for name in summarize(tmp_path / "m.onnx").tensors if name.startswith("o")]
    assert (len(names), max(map(len, names)) < 1100) == (3, True)
