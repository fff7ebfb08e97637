"""Statically quantized ONNX files whose results the installed ONNX Runtime's optimizer changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.errors import ParityError
from repogen.onnx_graph.normalize import NormalizeOptions, normalize
from repogen.repository.golden import GOLDEN_NPZ, golden_inputs, read_golden
from repogen.source.load import load_source
from repogen.source.onnx.reference import FileReference
from repogen.spec.models import ModelSpec
from repogen.targets import target_of
from repogen.worker.job import Job
from repogen.worker.target_runtime import TargetDriftError, target_runtime
from repogen.worker.verification import verify

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import SourceModel

RELEASE = "24.10"  # its ONNX Runtime leaves the bias as it is, unlike the installed one


def quantized_convolution() -> onnx.ModelProto:
    """Return a quantized convolution whose bias is float and not a multiple of the products' scale.

    All numbers are multiples of powers of two, so that sums are exact in any order.
    """
    rng = np.random.default_rng(0)
    constants = {
        "in_scale": np.float32(2**-5),
        "in_zero": np.uint8(128),
        "kernel": rng.integers(-12, 13, (6, 3, 3, 3)).astype(np.int8),
        "kernel_scale": np.full(6, 2**-6, np.float32),
        "kernel_zero": np.zeros(6, np.int8),
        "bias": (rng.integers(-512, 512, 6) * 2**-10 + 2**-13).astype(np.float32),
        "out_scale": np.float32(2**-5),
        "out_zero": np.uint8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "in_scale", "in_zero"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "in_scale", "in_zero"], ["x_f"]),
        helper.make_node("DequantizeLinear", ["kernel", "kernel_scale", "kernel_zero"], ["kernel_f"], axis=0),
        helper.make_node("Conv", ["x_f", "kernel_f", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "out_scale", "out_zero"], ["r_q"]),
        helper.make_node("DequantizeLinear", ["r_q", "out_scale", "out_zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6, 16, 16])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def loaded(directory: Path) -> tuple[OnnxArtifact, SourceModel, Job]:
    """Return the graph, the source and the job of the file."""
    onnx.save(quantized_convolution(), directory / "model.onnx")
    model = ModelSpec.model_validate(
        {
            "source": {"kind": "onnx", "path": "model.onnx"},
            "dims": {"batch": {"max": 8}},
            "parity": {"budget_seconds": 0.01},
        }
    )
    work = directory / "work"
    work.mkdir()
    source = load_source(model, directory, None, {}, work)
    options = NormalizeOptions(source.signature, target_of(RELEASE), external_data=False, exporter="onnx")
    artifact = normalize(ir.from_proto(quantized_convolution()), work / "model.onnx", options)
    return artifact, source, Job("m", model, directory, RELEASE, work, 1)


def test_target_onnx_runtime_that_computes_what_the_file_states_is_accepted(tmp_path: Path) -> None:
    """Golden outputs are those of the file without optimization, and a note says how far the others differ."""
    artifact, source, job = loaded(tmp_path)
    golden_dir = tmp_path / "golden"
    verified = verify(artifact, source, job, golden_dir)
    assert verified.validation.batch.batchable
    assert "changes the results of this quantized file, by up to 0.0312;" in verified.validation.parity.notes[-1]
    assert "ONNX Runtime 1.19.2 (of Triton 24.10)" in verified.validation.parity.notes[-1]
    assert isinstance(source.reference, FileReference)
    assert source.reference.unoptimized is not None
    stated = source.reference.unoptimized()
    with np.load(golden_dir / GOLDEN_NPZ) as arrays:
        for case, inputs in zip(read_golden(golden_dir).cases, golden_inputs(golden_dir), strict=True):
            np.testing.assert_array_equal(arrays[case.outputs[0].key], stated(inputs)["y"])
    with target_runtime(target_of(RELEASE), 1) as runtime:
        runtime.check(verified.artifact, golden_dir)


def test_target_onnx_runtime_that_disagrees_with_the_file_is_an_error(tmp_path: Path) -> None:
    """Golden outputs stay those of the original if the target does not agree with the file either."""
    artifact, source, job = loaded(tmp_path)
    reference = source.reference
    assert isinstance(reference, FileReference)
    assert reference.unoptimized is not None
    stated = reference.unoptimized()
    other = replace(stated, run=lambda arrays: [array + 1 for array in stated.run(arrays)])
    for changed in (replace(reference, unoptimized=lambda: other), replace(reference, unoptimized=None)):
        golden_dir = tmp_path / f"golden-{changed.unoptimized is None}"
        with pytest.raises(TargetDriftError, match=r"1\.19\.2 .* disagrees with the original"):
            verify(artifact, replace(source, reference=changed), job, golden_dir)
        with np.load(golden_dir / GOLDEN_NPZ) as arrays:
            case, inputs = read_golden(golden_dir).cases[0], golden_inputs(golden_dir)[0]
            np.testing.assert_array_equal(arrays[case.outputs[0].key], reference(inputs)["y"])


def test_onnx_runtime_that_fails_without_optimization_keeps_the_error(tmp_path: Path) -> None:
    """The error is that of the target."""
    artifact, source, job = loaded(tmp_path)
    reference = source.reference
    assert isinstance(reference, FileReference)
    failing = replace(reference, run=lambda _: 1 / 0)  # type: ignore[arg-type, return-value] # raises
    source = replace(source, reference=replace(reference, unoptimized=lambda: failing))
    with pytest.raises(ParityError, match="disagrees with the original"):
        verify(artifact, source, job, tmp_path / "golden")
