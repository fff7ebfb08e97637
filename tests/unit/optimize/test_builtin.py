"""The built-in passes: when they do not apply, what their results must have, and their documentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.onnx_graph.normalize import NormalizeOptions, normalize
from repogen.optimize.calibration import calibration_batches
from repogen.optimize.interface import PassRequest
from repogen.optimize.passes import load_pass
from repogen.plugins import is_built_in, plugins
from repogen.targets import targets

if TYPE_CHECKING:
    from repogen.artifacts.built_model import OnnxArtifact

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "passes.md"
BUILT_IN = sorted(name for name in plugins("repogen.passes") if is_built_in("repogen.passes", name))
LOSSY = ("int8-dynamic", "int8-static", "fp16")
NAMES = (
    "names of nodes that the pass converts are {}; * matches any text; `repogen view` shows a published graph with its "
    "names"
)
SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 4)),))


def artifact(directory: Path, *kinds: str, opset: int = 17) -> OnnxArtifact:
    """Return a chain of nodes from x to y; a MatMul has a constant weight."""
    names = ["x", *(f"v{i}" for i in range(1, len(kinds))), "y"]
    nodes = [
        helper.make_node(kind, [names[i], *(["w"] if kind == "MatMul" else [])], [names[i + 1]], name=f"n{i}")
        for i, kind in enumerate(kinds)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")] if "MatMul" in kinds else []
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = NormalizeOptions(SIGNATURE, targets()["24.10"], external_data=False, exporter="onnx")
    return normalize(ir.from_proto(proto), directory / "model.onnx", options)


def request(graph: OnnxArtifact, name: str, **options: Any) -> PassRequest:
    """Return the request for a pass."""
    needed = {"calibration": "c.npz"} if name == "int8-static" else {}
    model = load_pass(name).options_model.model_validate({**needed, **options})
    return PassRequest(graph, model, targets()["24.10"], graph.path.parent, graph.path.parent)


@pytest.mark.parametrize(
    ("name", "kinds", "options", "reason"),
    [
        ("int8-dynamic", ["Relu"], {}, "the graph has no MatMul or Gemm with a constant weight"),
        ("int8-static", ["Relu"], {"operators": ["Conv"]}, "the graph has no Conv with a constant weight"),
        ("fp16", ["Relu"], {}, "the graph has no float32 weights"),
        ("int8-dynamic", ["MatMul"], {"exclude": ["n*"]}, ""),
        ("int8-static", ["MatMul"], {}, ""),
        ("fp16", ["MatMul"], {}, ""),
        ("ir-cleanup", ["Relu"], {}, ""),
    ],
)
def test_pass_says_why_it_does_not_apply(
    tmp_path: Path, name: str, kinds: list[str], options: dict[str, object], reason: str
) -> None:
    """Before anything is computed."""
    assert load_pass(name).requires(request(artifact(tmp_path, *kinds), name, **options)) == reason


@pytest.mark.parametrize(
    ("name", "pattern", "hint"),
    [
        *((name, "nn0", "did you mean 'n0'?") for name in LOSSY),
        ("int8-dynamic", "nn1", NAMES.format("'n0', 'n2'")),
        ("int8-static", "nn1", NAMES.format("'n0', 'n2'")),
        ("fp16", "nn1", "did you mean 'n1'?"),
        ("fp16", "nn3", NAMES.format("'n0', 'n1', 'n2'")),
        *((name, "*_MatMul", NAMES.format("'n0', 'n2'" if "int8" in name else "'n0', 'n1', 'n2'")) for name in LOSSY),
    ],
)
def test_unknown_name_in_exclude_is_an_error(tmp_path: Path, name: str, pattern: str, hint: str) -> None:
    """The float32 model must not be published instead; nodes that the pass does not convert are not suggested."""
    arguments = request(artifact(tmp_path, "MatMul", "Relu", "MatMul", "Max"), name, exclude=["n0", pattern])
    with pytest.raises(SourceError, match="no node is named") as caught:
        load_pass(name).requires(arguments)
    assert (caught.value.message, caught.value.hint) == (f"`exclude`: no node is named {pattern!r}", hint)
    assert (caught.value.code, caught.value.where) == ("source.exclude", "optimize")


@pytest.mark.parametrize(("name", "opset"), [("int8-dynamic", 10), ("int8-static", 12)])
def test_old_opset_is_reported_with_the_key(tmp_path: Path, name: str, opset: int) -> None:
    """The spec can set a newer one."""
    reason = load_pass(name).requires(request(artifact(tmp_path, "MatMul", opset=opset), name))
    assert reason == f"the graph has opset {opset}, and the pass needs {opset + 1}: set export.opset"


@pytest.mark.parametrize("name", ["int8-dynamic", "int8-static", "fp16"])
def test_model_of_2_gb_is_not_read(tmp_path: Path, name: str) -> None:
    """The tools need it in one message; the file here is sparse."""
    graph = artifact(tmp_path, "MatMul")
    with graph.path.with_name("model.onnx.data").open("wb") as file:
        file.truncate(3 * 10**9)
    reason = load_pass(name).requires(request(replace(graph, external_data=True), name))
    assert reason.startswith("the model is 3.0 GB, and onnxruntime.")
    assert reason.endswith(" reads less than 2 GB")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("int8-dynamic", "it quantized nothing: every operator is excluded or has no constant weight"),
        ("int8-static", "it quantized nothing: every operator is excluded or has no constant weight"),
        ("fp16", "it converted no weight: every node is excluded, or stays in float32"),
        ("ort-fusions", "none of its patterns is in the graph"),
        ("ir-cleanup", "its result has more nodes (1 -> 2)"),
        ("onnxruntime-offline", "its result has operators of com.microsoft.nchwc, which depend on the processor"),
    ],
)
def test_result_without_its_effect_is_rejected(tmp_path: Path, name: str, problem: str) -> None:
    """``ensures`` of each pass."""
    graph = artifact(tmp_path, "MatMul")
    (tmp_path / "other").mkdir()
    result = ir.load(artifact(tmp_path / "other", "MatMul", "Relu").path)
    if name == "onnxruntime-offline":
        result.graph[1].domain = "com.microsoft.nchwc"
    assert load_pass(name).ensures(request(graph, name), result) == problem


def test_external_data_are_quantized(tmp_path: Path) -> None:
    """Below 2 GB they are read into memory."""
    graph = artifact(tmp_path, "MatMul")
    onnx.save(
        onnx.load(graph.path), graph.path, save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    implementation = load_pass("int8-dynamic")
    arguments = request(replace(graph, external_data=True), "int8-dynamic")
    assert implementation.requires(arguments) == ""
    assert implementation.ensures(arguments, implementation(arguments)) == ""


def test_weights_that_the_tool_transposes_are_quantized(tmp_path: Path) -> None:
    """Exporters declare the shape of a small weight, and the tool changes the weight of a Gemm but not that shape."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 4), ("y", 3))]
    weight = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        *("g", ends[:1], ends[1:], [weight]),
        value_info=[helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    signature = Signature(SIGNATURE.inputs, (TensorSpec("y", "float32", ("batch", 3)),))
    options = NormalizeOptions(signature, targets()["24.10"], external_data=False, exporter="onnx")
    normalized = normalize(ir.from_proto(proto), tmp_path / "model.onnx", options)
    assert [value.name for value in onnx.load(normalized.path).graph.value_info] == ["w"]
    implementation, arguments = load_pass("int8-dynamic"), request(normalized, "int8-dynamic")
    assert implementation.ensures(arguments, implementation(arguments)) == ""


@pytest.mark.parametrize("rows", [1, 8, 20])
def test_rows_of_a_calibration_file_are_batches(tmp_path: Path, rows: int) -> None:
    """All of them, in float32; a callable returns batches itself."""
    x = np.arange(rows * 4, dtype=np.float64).reshape(rows, 4).astype(np.float16)
    np.savez(tmp_path / "c.npz", x=x, unused=x)
    batches = list(calibration_batches("c.npz", tmp_path, SIGNATURE))
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches]), x.astype(np.float32), strict=True)
    assert max(len(batch["x"]) for batch in batches) == min(rows, 8)


def test_batches_have_the_size_of_a_fixed_graph(tmp_path: Path) -> None:
    """Rows that do not fill a batch are left out."""
    np.savez(tmp_path / "c.npz", x=np.zeros((7, 4), np.float32))
    fixed = Signature((TensorSpec("x", "float32", (3, 4)),), ())
    assert [batch["x"].shape for batch in calibration_batches("c.npz", tmp_path, fixed)] == [(3, 4)] * 2


CODE = """
import numpy as np

def wrong_rank():
    yield {"x": np.zeros(4, np.float32)}

def fails():
    yield {"x": np.zeros((2, 4), np.float32)}
    raise OSError("no more files")

def nothing():
    return []

def lists():
    return [[1, 2]]

def other():
    yield {"y": np.zeros((2, 4), np.float32)}
"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "wrong_rank",
            r"batch 1 of c.py:wrong_rank: input 'x' is float32 \[4\], the model accepts float32",
        ),
        ("fails", "c.py:fails failed: OSError: no more files"),
        ("nothing", "c.py:nothing has no calibration data"),
        ("lists", "batch 1 of c.py:lists is a list, not a dict that maps input names to arrays"),
        ("other", "batch 1 of c.py:other has no input 'x'"),
    ],
)
def test_unusable_calibration_code_is_reported(tmp_path: Path, function: str, message: str) -> None:
    """With the batch and the input."""
    (tmp_path / "c.py").write_text(CODE)
    with pytest.raises(SourceError, match=message) as caught:
        list(calibration_batches(f"c.py:{function}", tmp_path, SIGNATURE))
    assert caught.value.code == "source.calibration"


@pytest.mark.parametrize("name", BUILT_IN)
def test_pass_and_its_options_are_documented(name: str) -> None:
    """Each has a section in the reference, with every option and whether it is gated and lossy."""
    sections = dict(part.split("\n", 1) for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    section, implementation = sections[name], load_pass(name)
    for option in implementation.options_model.model_fields:
        assert f"\n| `{option}` |" in section
    assert f"**Gated**: {'yes' if implementation.gated else 'no'}." in section
    precision = implementation.precision
    assert f"**Lossy**: {f'yes, `{precision}`' if precision else 'no'}." in section
    assert "**Requires**: " in section
    assert "**Ensures**: " in section
