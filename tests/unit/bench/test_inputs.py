"""Inputs for perf_analyzer and for processes, from golden tensors or zeros."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from repogen.bench.inputs import BenchInputs, zero_inputs
from repogen.errors import BenchError
from repogen.smoke.inference import WireTensor

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = np.arange(6, dtype=np.float32).reshape(2, 3)


def config(text: str) -> ModelConfig:
    """Return a parsed config."""
    return text_format.Parse(text, ModelConfig())


def test_each_row_is_an_entry() -> None:
    """Numbers are sent as bytes, so that no type and no digit is lost; the shape is without the batch."""
    inputs = BenchInputs(batched=True, graph={"x": IMAGE}, wire=(WireTensor("x", "FP32", IMAGE),))

    entries = json.loads(inputs.load_data())["data"]

    assert [entry["x"]["shape"] for entry in entries] == [[3], [3]]
    assert base64.b64decode(entries[1]["x"]["b64"]) == IMAGE[1].tobytes()


def test_strings_are_text() -> None:
    """The length prefix of a string is perf_analyzer's."""
    texts = np.array([["ä".encode()], [b"b"]], dtype=object)
    inputs = BenchInputs(batched=True, graph={"x": texts}, wire=(WireTensor("x", "BYTES", texts),))

    assert json.loads(inputs.load_data())["data"][0] == {"x": {"content": ["ä"], "shape": [1]}}


def test_string_that_is_not_text_is_an_error() -> None:
    """perf_analyzer reads JSON."""
    bad = np.array([[b"\xff"]], dtype=object)

    with pytest.raises(BenchError, match="not UTF-8"):
        BenchInputs(batched=True, graph={}, wire=(WireTensor("x", "BYTES", bad),)).load_data()


def test_request_without_a_batch_is_one_entry() -> None:
    """All dims are in the shape."""
    inputs = BenchInputs(batched=False, graph={"x": IMAGE}, wire=(WireTensor("x", "FP32", IMAGE),))

    assert [entry["x"]["shape"] for entry in json.loads(inputs.load_data())["data"]] == [[2, 3]]


@pytest.mark.parametrize(("batch", "rows"), [(1, [0]), (3, [0, 1, 0])])
def test_rows_are_repeated_or_cut_to_the_batch(batch: int, rows: list[int], tmp_path: Path) -> None:
    """The file has the requested number of rows."""
    BenchInputs(batched=True, graph={"x": IMAGE}, wire=()).save(tmp_path / "x.npz", batch)

    with np.load(tmp_path / "x.npz", allow_pickle=False) as arrays:
        assert (arrays["0"] == IMAGE[rows]).all()


def test_zeros_have_the_shapes_of_the_wire_and_of_the_graph() -> None:
    """A reshape differs between them."""
    inputs = zero_inputs(
        config(
            'max_batch_size: 4 input [{ name: "a" data_type: TYPE_INT64 dims: [1] reshape { shape: [] } },'
            ' { name: "s" data_type: TYPE_STRING dims: [2] }]'
        )
    )

    assert {tensor.name: (tensor.dtype, tensor.array.shape) for tensor in inputs.wire} == {
        "a": ("INT64", (1, 1)),
        "s": ("BYTES", (1, 2)),
    }
    assert {name: array.shape for name, array in inputs.graph.items()} == {"a": (1,), "s": (1, 2)}


def test_dynamic_dims_without_golden_tensors_are_an_error() -> None:
    """No size is known, and the message names the input."""
    with pytest.raises(BenchError, match="ids has dynamic dims") as caught:
        zero_inputs(config('input [{ name: "ids" data_type: TYPE_INT64 dims: [-1] }]'))

    assert caught.value.code == "bench.no-inputs"


@pytest.mark.parametrize(
    "tensor",
    [
        "TYPE_FP32 dims: [ 1000000, 1000000 ]",
        "TYPE_FP32 dims: [ 4096, 4097 ]",
        "TYPE_STRING dims: [ 8388609 ]",
        "TYPE_UINT8 dims: [ 1 ] reshape { shape: [ 1000000, 1000000, 1000000, 1000000 ] }",
    ],
)
def test_large_zeros_are_not_created(tensor: str) -> None:
    """The dims in a config.pbtxt may have any size, and the JSON for perf_analyzer needed several times the memory."""
    with pytest.raises(BenchError, match="larger than 64 MiB, the limit for inputs of zeros") as caught:
        zero_inputs(config(f'input {{ name: "x" data_type: {tensor} }}'))

    assert caught.value.code == "bench.no-inputs"
