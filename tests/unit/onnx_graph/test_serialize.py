"""A model that is written weight by weight equals the message that protobuf writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.onnx_graph.serialize import write_model

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

WEIGHTS: dict[str, npt.NDArray[np.generic]] = {
    "large": np.arange(64 * 64, dtype=np.float32).reshape(64, 64),
    "half": np.linspace(-1, 1, 64 * 64).astype(np.float16).reshape(64, 64),
    "small": np.ones((64,), np.float32),
    "empty": np.zeros((0, 64), np.float32),
}


def graph(strings: int = 0) -> onnx.ModelProto:
    """Return ``x @ large + small``, with other weights that are unused or cast."""
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["product"]),
        helper.make_node("Add", ["product", "small"], ["y"]),
        helper.make_node("Cast", ["half"], ["z"], to=TensorProto.FLOAT),
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    if strings:
        initializers.append(numpy_helper.from_array(np.asarray(["word" * 9] * strings, dtype=object), "words"))
    body = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [64, 64]),
        ],
        initializers,
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("strings", [0, 1000])
def test_file_equals_the_message(tmp_path: Path, strings: int) -> None:
    """Apart from the order of the weights, the file contains what onnx-ir writes."""
    model = ir.from_proto(graph(strings))
    write_model(model, tmp_path / "model.onnx")
    expected, actual = ir.to_proto(model), onnx.load(tmp_path / "model.onnx")
    for proto in (expected, actual):
        weights = sorted(proto.graph.initializer, key=lambda tensor: tensor.name)
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(weights)
        # onnx-ir repeats the types of initializers here
        repeated = [info for info in proto.graph.value_info if info.name in WEIGHTS]
        for info in repeated:
            proto.graph.value_info.remove(info)
    assert expected == actual


def test_model_is_not_changed(tmp_path: Path) -> None:
    """It has all weights after writing, and a second file has the same bytes."""
    model = ir.from_proto(graph())
    write_model(model, tmp_path / "one.onnx")
    write_model(model, tmp_path / "two.onnx")
    assert set(WEIGHTS) == set(model.graph.initializers)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_checker_and_runtime_accept_the_file(tmp_path: Path) -> None:
    """onnx.checker accepts it, and ONNX Runtime computes with the streamed weights."""
    path = tmp_path / "model.onnx"
    write_model(ir.from_proto(graph()), path)
    onnx.checker.check_model(path, full_check=True)
    x = np.eye(2, 64, dtype=np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    actual = session.run(["y"], {"x": x})[0]
    np.testing.assert_array_equal(np.arange(128, dtype=np.float32).reshape(2, 64) + 1, actual)
