"""The crash that RG134 warns about: a request with no rows to an input that is reshaped to an empty shape."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import targets

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
backend: "onnxruntime"
max_batch_size: 4
dynamic_batching { }
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] %s }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] %s }
instance_group { count: 1 kind: KIND_CPU }
"""


def write_model(directory: Path, shape: list[str | int], reshape: str) -> None:
    """Write the identity of a tensor."""
    (directory / "1").mkdir(parents=True)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "m", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, directory / "1" / "model.onnx")
    (directory / "config.pbtxt").write_text(CONFIG % (reshape, reshape), encoding="utf-8")


@pytest.mark.full
def test_request_without_rows_ends_the_server(tmp_path: Path) -> None:
    """The same request to an input of shape [batch, 1] is rejected; the rule's fix is to declare such an input."""
    write_model(tmp_path / "two_axes", ["b", 1], "")
    write_model(tmp_path / "one_axis", ["b"], "reshape { shape: [ ] }")
    empty = InferInput("x", [0, 1], "FP32")
    empty.set_data_from_numpy(np.zeros((0, 1), np.float32))
    server = find_server("embedded", targets()["24.10"], Silent())
    with server.running(tmp_path, ControlMode.NONE) as running:
        with InferenceServerClient(running.endpoint.grpc) as client:
            with pytest.raises(InferenceServerException):
                client.infer("two_axes", [empty], client_timeout=30)
            assert running.alive()
            with pytest.raises(InferenceServerException):
                client.infer("one_axis", [empty], client_timeout=30)
        deadline = time.monotonic() + 60
        while running.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not running.alive()
