"""The target's own ONNX Runtime: shapes of outputs, graphs that it cannot load, and crashes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor, OnnxArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ParityError
from repogen.onnx_graph.written_shapes import with_output_shapes
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json
from repogen.targets import newest_target, targets
from repogen.worker import target_runtime as target_runtime_module
from repogen.worker.target_runtime import TargetRuntime, target_runtime

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array

TARGET = targets()["24.10"]


def matmul(directory: Path, *, op: str = "MatMul", external: bool = False) -> OnnxArtifact:
    """Return a graph whose file declares the output ``[N, M]``, and whose weights make it ``[N, 3]``."""
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "M"])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = directory / "model.onnx"
    options: dict[str, Any] = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 0}
    onnx.save_model(model, path, **(options if external else {}))
    signature = Signature((TensorSpec("x", "float32", ("N", 4)),), (TensorSpec("y", "float32", ("N", "M")),))
    return OnnxArtifact(path, external, signature, 17, 9, 1, "onnx")


def installed_runtime() -> TargetRuntime:
    """Return the target's ONNX Runtime, which `make setup` installs with the embedded Triton."""
    runtime = target_runtime(TARGET, 1)
    assert runtime.installation is not None
    return runtime


def runtimes() -> list[TargetRuntime]:
    """Return the ONNX Runtime next to torch, and the target's."""
    return [TargetRuntime(TARGET, None, 1), installed_runtime()]


@pytest.mark.parametrize("external", [False, True])
def test_output_dims_are_those_that_onnx_runtime_infers(tmp_path: Path, *, external: bool) -> None:
    """In the signature and in the file, whose weights stay the same."""
    for index, installed in enumerate(runtimes()):
        directory = tmp_path / str(index)
        directory.mkdir()
        artifact = matmul(directory, external=external)
        with installed as runtime:
            shapes = runtime.load(artifact)
            assert shapes == {"y": (None, 3)}
            final = with_output_shapes(artifact, shapes)
            assert runtime.load(final) == shapes
        assert final.signature.outputs[0].shape == ("N", 3)
        output = onnx.load(final.path).graph.output[0]
        assert [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim] == ["N", 3]
        assert final.external_data is external
        assert with_output_shapes(final, shapes) is final


def test_graph_that_the_target_cannot_load_is_an_error(tmp_path: Path) -> None:
    """With the version of its ONNX Runtime."""
    for runtime in runtimes():
        with runtime, pytest.raises(ParityError, match="cannot load the model") as caught:
            runtime.load(matmul(tmp_path, op="Unheard"))
        assert caught.value.code == "parity.load"
        assert str(tmp_path) not in caught.value.message


def golden(directory: Path, inputs: Array, outputs: Array) -> None:
    """Write one golden case."""
    directory.mkdir()
    case = GoldenCase("N=1 seed=0", len(inputs), (GoldenTensor("x", "0.in.0"),), (GoldenTensor("y", "0.out.0"),))
    (directory / GOLDEN_JSON).write_text(golden_to_json(Golden((case,), {"y": (1e-3, 1e-5)})))
    np.savez(directory / GOLDEN_NPZ, **{"0.in.0": inputs, "0.out.0": outputs})  # type: ignore[arg-type] # as above


def test_golden_cases_run_in_the_targets_runtime(tmp_path: Path) -> None:
    """Equal outputs pass; others are an error that names the case."""
    artifact = matmul(tmp_path)
    inputs = np.ones((2, 4), np.float32)
    golden(tmp_path / "right", inputs, np.full((2, 3), 4, np.float32))
    golden(tmp_path / "wrong", inputs, np.full((2, 3), 5, np.float32))
    with installed_runtime() as runtime:
        runtime.check(artifact, tmp_path / "right")
    with (
        installed_runtime() as runtime,
        pytest.raises(ParityError, match=r"1\.19\.2 .* N=1 seed=0: 6 of 6 values of 'y' differ"),
    ):
        runtime.check(artifact, tmp_path / "wrong")


def test_golden_cases_with_bfloat16_run_in_the_targets_runtime(tmp_path: Path) -> None:
    """Their arrays are float32 in golden.npz; the inputs are rounded to BF16."""
    runtime, artifact = target_runtime(newest_target(), 1), matmul(tmp_path)
    assert runtime.installation is not None
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["N", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), artifact.path)
    inputs = np.full((2, 4), 1 / 3, np.float32)
    golden(tmp_path / "right", inputs, np.full((2, 4), 0.333984375, np.float32))
    golden(tmp_path / "wrong", inputs, np.full((2, 4), 0.3359375, np.float32))
    with runtime:
        runtime.check(artifact, tmp_path / "right")
    with runtime, pytest.raises(ParityError, match=r"N=1 seed=0: 8 of 8 values of 'y' differ"):
        runtime.check(artifact, tmp_path / "wrong")


def test_crash_names_the_case(tmp_path: Path) -> None:
    """ONNX Runtime 1.19.2 divides by zero in a convolution whose pooled output is empty; later ones do not."""
    sizes: list[str | int | None] = ["N", 3, "H", "W"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.ones((16, 3, 3, 3), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    artifact = matmul(tmp_path)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), artifact.path)
    golden(tmp_path / "golden", np.ones((1, 3, 1, 1), np.float32), np.ones((1, 16, 0, 0), np.float32))
    with installed_runtime() as runtime:
        for _ in range(2):  # after a crash the next graph gets a new process
            with pytest.raises(ParityError, match=r"failed at N=1 seed=0: it crashed \(SIGFPE\)"):
                runtime.check(artifact, tmp_path / "golden")


def test_graphs_share_a_process_that_ends_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing ONNX Runtime takes longer than loading a small graph."""
    started: list[Any] = []
    start = subprocess.Popen

    def record(*args: Any, **kwargs: Any) -> Any:
        started.append(start(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr("repogen.worker.target_runtime.subprocess.Popen", record)
    with installed_runtime() as runtime:
        assert runtime.load(matmul(tmp_path)) == runtime.load(matmul(tmp_path))
        (process,) = started
        assert process.poll() is None
    assert process.poll() is not None


NOISY = """\
import os
os.write(1, b"caf\\xe9 {\\n")
def disable_telemetry_events(): pass
class SessionOptions:
    def add_session_config_entry(self, *_): pass
class InferenceSession:
    def __init__(self, *_, **__): print("noise")
    def get_outputs(self): return []
"""


def test_what_native_code_prints_is_not_an_event(tmp_path: Path) -> None:
    """The process reports its events on a copy of its standard output."""
    for name, text in {"onnxruntime": NOISY, "numpy": "", "session": "run = None"}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    environment = {"site": str(tmp_path), "session": str(tmp_path / "session.py"), "threads": 1}
    job = {"model": "", "golden": "", "results": "", "cases": []}
    script = Path(target_runtime_module.__file__).with_name("target_session.py")
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-B", script],
        input=f"{json.dumps(environment)}\n{json.dumps(job)}\n".encode(),
        capture_output=True,
        check=True,
    )
    assert [json.loads(line) for line in run.stdout.splitlines()] == [{"shapes": {}}, {"done": True}]
    assert b"noise" in run.stderr
