"""The fallback chain on real models: which exporter wins, and what the report says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.source import DimRange
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ParityError, SourceError
from repogen.repository.digest import sha256_bytes
from repogen.repository.golden import first_golden_inputs
from repogen.spec.models import ModelSpec
from repogen.targets import newest_target
from repogen.worker.job import Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import _largest_sizes, build_model

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel

FUSED = """
import torch
from torch import nn


class Normed(nn.Module):
    \"\"\"ONNX Runtime 1.19.2 fuses MatMul, Reshape and BatchNormalization of dynamo's graph into an invalid Gemm.\"\"\"

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y.flatten(0, 1)).reshape_as(y)
"""


def built(
    root: Path, entry: dict[str, Any], code: str = "", release: str = "24.10"
) -> tuple[BuiltModel, BuildDiagnostics]:
    """Build a model in this process; ``code`` is that of ``model.py``."""
    (root / "model.py").write_text(code)
    work = root / "work"
    work.mkdir()
    log = BuildLog(lambda *_: None)
    job = Job("m", ModelSpec.model_validate(entry), root, release, work, 1)
    return build_model(job, log), log.diagnostics


@pytest.mark.filterwarnings("ignore")
def test_graph_that_the_target_cannot_load_is_exported_again(tmp_path: Path) -> None:
    """The other exporter's graph loads; before, the build ended in the smoke test."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 3, 4]}}
    entry = {"source": {"factory": "model.py:Normed"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    model, diagnostics = built(tmp_path, entry, FUSED)
    assert model.batch.batchable
    assert [(attempt.exporter, attempt.ok) for attempt in diagnostics.attempts] == [
        ("dynamo", False),
        ("torchscript", True),
    ]
    assert "ONNX Runtime 1.19.2 (of Triton 24.10) cannot load the model" in diagnostics.attempts[0].reason


EDITED_DURING_THE_BUILD = """
from pathlib import Path

import torch


class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        file = Path(__file__)
        file.write_text(file.read_text() + "# edited")
"""


@pytest.mark.parametrize("is_edited", [True, False])
def test_code_that_is_edited_during_the_build(tmp_path: Path, *, is_edited: bool) -> None:
    """The digest of the new code would say that the model, which is made of the old code, is up to date."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    entry = {"source": {"factory": "model.py:Model"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    code = EDITED_DURING_THE_BUILD if is_edited else EDITED_DURING_THE_BUILD.replace("file.write_text", "str")
    model, diagnostics = built(tmp_path, entry, code)
    digest = model.imported.files["model.py"]
    assert digest == ("edited" if is_edited else sha256_bytes(code.encode()))
    note = "model.py changed during the build, so the next build builds the model again"
    assert (note in diagnostics.notes) == is_edited


BRAIN = """
import torch
from torch import nn


class Brain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3).bfloat16()

    def forward(self, x):
        y = torch.relu(self.linear(x))
        return y, y.to(torch.bfloat16)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_bfloat16_inputs_and_outputs_agree_with_pytorch(tmp_path: Path, exporter: str) -> None:
    """In the installed ONNX Runtime and in the target's; between its inputs and outputs the graph is float32."""
    inputs = {"x": {"dtype": "bfloat16", "shape": ["batch", 4]}}
    entry = {"source": {"factory": "model.py:Brain"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    entry |= {"outputs": ["wide", "narrow"], "export": {"exporter": exporter}, "optimize": ["onnxsim"]}
    model, diagnostics = built(tmp_path, entry, BRAIN, newest_target().release)
    assert isinstance(model.artifact, OnnxArtifact)
    signature = model.artifact.signature
    assert [(spec.name, spec.dtype) for spec in (*signature.inputs, *signature.outputs)] == [
        ("x", "bfloat16"),
        ("wide", "float32"),
        ("narrow", "bfloat16"),
    ]
    assert model.batch.batchable
    assert any("BF16 inputs are cast to float32" in note for note in diagnostics.notes)
    golden = first_golden_inputs(model.golden_dir, batched=True)
    assert golden is not None
    rounded = (golden["x"].view(np.uint32) & 0xFFFF) == 0
    assert golden["x"].dtype == np.float32
    assert rounded.all()


@pytest.mark.filterwarnings("ignore")
def test_bfloat16_output_is_rejected_before_26_03(tmp_path: Path) -> None:
    """Before the export; the hint has the cast, and the message the release."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    entry = {"source": {"factory": "model.py:Brain"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    with pytest.raises(SourceError, match=r"output 'output_1' is bfloat16, .* in release 26.03 and later") as caught:
        built(tmp_path, entry, BRAIN)
    assert caught.value.code == "source.output-dtype"
    assert "x.float()" in caught.value.hint


GAPS = """
import torch
from torch import nn


class Gaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 6), nn.GELU()).bfloat16()

    def forward(self, x, image):
        filtered = torch.fft.irfft(torch.fft.rfft(x, dim=1) * 0.5, n=4, dim=1)
        bright = torch.where(image > 128, image, image + 200)
        return filtered, self.head(x.bfloat16()).float(), bright, image.to(torch.int64).argmax(1)
"""


@pytest.mark.filterwarnings("ignore")
def test_operators_without_kernels_are_rewritten(tmp_path: Path) -> None:
    """irfft, bfloat16 inside, bytes and ArgMax of int64 load in the oldest target's ONNX Runtime, and agree."""
    image = {"dtype": "uint8", "shape": ["batch", 5], "range": [0, 255]}
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}, "image": image}
    entry = {"source": {"factory": "model.py:Gaps"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    entry |= {"export": {"exporter": "dynamo"}}
    model, diagnostics = built(tmp_path, entry, GAPS)
    assert model.batch.batchable
    assert any("forward computes in bfloat16" in note for note in diagnostics.notes)


def test_sizes_of_outputs_that_change_are_dynamic_in_the_graph(tmp_path: Path) -> None:
    """Exporters write the example's size of an inner value as fixed, here 6, and ONNX Runtime believes it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "one"], ["t"]),
        helper.make_node("Reshape", ["x", "t"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    one = numpy_helper.from_array(np.ones(3, np.int64), "one")
    x, r, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", steps, 4])
        for name, steps in (("x", "steps"), ("r", 6), ("y", 6))
    )
    graph = helper.make_graph(nodes, "g", [x], [y], [one], value_info=[r])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    dims = {"batch": {"max": 4}, "steps": {"min": 1, "max": 8}}
    model, _ = built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}, "dims": dims})
    assert isinstance(model.artifact, OnnxArtifact)
    (output,) = model.artifact.signature.outputs
    assert [isinstance(dim, str) for dim in output.shape] == [True, True, False]
    declared = onnx.load(model.artifact.path).graph.output[0].type.tensor_type.shape
    assert not declared.dim[1].dim_value


def pooled(path: Path, shape: list[Any]) -> None:
    """Write a graph of images whose dynamic axes are declared as in ``shape``, also between its nodes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32), "w")
    x, c, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xcy")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight], value_info=[c])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize("symbol", [-1, "?", "None"])
def test_unnamed_axes_are_separate_dims(tmp_path: Path, symbol: int | str) -> None:
    """A symbol that is not a name, or a size of -1, does not make three axes one dim; images are not square."""
    pooled(tmp_path / "m.onnx", [symbol, 3, symbol, symbol])
    model, _ = built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}})
    assert isinstance(model.artifact, OnnxArtifact)
    signature = model.artifact.signature
    assert [spec.shape for spec in (*signature.inputs, *signature.outputs)] == [
        ("batch", 3, "x_axis2", "x_axis3"),
        ("y_dim_0", 3, "y_dim_2", "y_dim_3"),
    ]
    assert model.batch.batchable
    graph = onnx.load(model.artifact.path).graph
    dims = [dim for value in (*graph.value_info, *graph.output) for dim in value.type.tensor_type.shape.dim]
    assert all(dim.dim_value >= 0 and dim.dim_param != "?" for dim in dims)


def test_images_of_one_pixel_are_not_chosen(tmp_path: Path) -> None:
    """A pooling window of 2 returns nothing for 1 x 1 in ONNX Runtime 1.19.2, and a pixel in later ones."""
    pooled(tmp_path / "m.onnx", ["N", 3, "H", "W"])
    model, diagnostics = built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}})
    assert model.batch.batchable
    assert any("H 8 to 64, W 8 to 64" in note for note in diagnostics.notes)


def test_size_at_which_the_target_differs_is_named(tmp_path: Path) -> None:
    """With the remedy: no client sends such images."""
    pooled(tmp_path / "m.onnx", ["N", 3, "H", "W"])
    dims = {"N": {"max": 4}, "H": {"max": 16}, "W": {"max": 16}}
    with pytest.raises(
        ParityError, match=r"1\.19\.2 \(of Triton 24\.10\).*N=1,H=1,W=1 seed=2: 'y' has shape"
    ) as caught:
        built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}, "dims": dims})
    assert "narrow dims:" in caught.value.hint


def shifted(path: Path) -> None:
    """Write a layer with a bias of 20 before a LayerNormalization."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy")
    weights = {"w": np.eye(64) * 0.3, "b": np.full(64, 20.0), "scale": np.ones(64)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "scale"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_variance_that_the_target_computes_inexactly(tmp_path: Path) -> None:
    """ONNX Runtime 1.19.2 subtracts the square of the mean from the mean of the squares."""
    shifted(tmp_path / "m.onnx")
    model, diagnostics = built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}, "dims": {"N": {"max": 4}}})
    assert isinstance(model.artifact, OnnxArtifact)
    assert [node.op_type for node in onnx.load(model.artifact.path).graph.node][-2:] == ["Sub", "LayerNormalization"]
    assert any("the mean is subtracted before each LayerNormalization" in note for note in diagnostics.notes)


def test_axis_of_size_zero_is_named(tmp_path: Path) -> None:
    """Some converters write 0 for a dynamic size."""
    pooled(tmp_path / "m.onnx", ["N", 3, 0, "W"])
    with pytest.raises(SourceError, match="axis 2 of input 'x' has size 0 in the file"):
        built(tmp_path, {"source": {"kind": "onnx", "path": "m.onnx"}})


def counts(path: Path) -> None:
    """Write a graph of integer counts, which divides by their sum: that of zeros is 0."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["f", "axes"], ["sum"], keepdims=1),
        helper.make_node("Div", ["f", "sum"], ["y"]),
    ]
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph(nodes, "g", [ids], [y], [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_guessed_integers_are_named_where_they_fail(tmp_path: Path) -> None:
    """0 and 1 are a guess; with a range, the model batches."""
    counts(tmp_path / "m.onnx")
    source = {"kind": "onnx", "path": "m.onnx"}
    with pytest.raises(ParityError) as caught:
        built(tmp_path, {"source": source})
    assert "ids: only the integers 0 and 1 were tested; set inputs: {ids: {range: [0, …]}}" in caught.value.hint
    declared = {"ids": {"dtype": "int64", "shape": ["N", 1], "range": [1, 9]}}
    (tmp_path / "again").mkdir()
    counts(tmp_path / "again" / "m.onnx")
    assert built(tmp_path / "again", {"source": source, "inputs": declared})[0].batch.batchable


TABLE = """
import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or len(self.table) < x.shape[1]:
            self.table = torch.arange(max(4, x.shape[1])) / 3
        return x + self.table[: x.shape[1]].sin()
"""


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_table_that_grows_is_exported_at_the_largest_size(tmp_path: Path) -> None:
    """At the example size, the table is a constant that is too short for larger sizes."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", "time"]}}
    dims = {"batch": {"max": 4}, "time": {"max": 9, "example": 3}}
    entry = {"source": {"factory": "model.py:Positions"}, "inputs": inputs, "dims": dims}
    model, diagnostics = built(tmp_path, entry | {"export": {"exporter": "dynamo"}}, TABLE)
    assert model.batch.batchable
    attempts = [(attempt.exporter, attempt.ok) for attempt in diagnostics.attempts]
    assert attempts == [("dynamo", False), ("dynamo", True)]
    assert "exported at batch 2, time 9, because" in diagnostics.notes[-1]


def test_largest_sizes_are_different() -> None:
    """The batch keeps its example size, and a dim with one size keeps it."""
    dims = {"batch": DimRange(1, 8, 2), "a": DimRange(1, 9, 3), "b": DimRange(1, 9, 4), "c": DimRange(9, 9, 9)}
    signature = Signature((TensorSpec("x", "float32", ("batch", "a", "b", "c")),), ())
    source: Any = SimpleNamespace(dims=dims, signature=signature)
    assert _largest_sizes(source) == {"batch": 2, "a": 9, "b": 8, "c": 9}
