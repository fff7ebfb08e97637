"""Target URIs of `mlflow deployments`, and the inputs and outputs of predictions."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from mlflow.exceptions import MlflowException

from repogen.deployments import client
from repogen.deployments.target import parse_target
from repogen.deployments.tensors import json_of, wire_tensors
from repogen.errors import SpecError
from repogen.smoke.inference import TensorMetadata

ROWS = [[1, 2], [3, 4]]
FLOATS = {"x": TensorMetadata("FP32", (-1, 2))}


def test_uri_names_servers_repository_and_credentials() -> None:
    """Options of a call replace those of the URI, which replace the environment."""
    uri = "triton-repogen://a:8001,b:8001?repository=/models&tls_root=/ca.pem"
    target = parse_target(uri, {}, {"REPOGEN_DEPLOY_SERVERS": "c:1", "REPOGEN_DEPLOY_REPOSITORY": "/other"})
    assert (target.servers, target.repository) == (("a:8001", "b:8001"), Path("/models"))
    assert (target.credentials.tls, target.credentials.root_certificates) == (True, Path("/ca.pem"))
    assert parse_target(uri, {"repository": "/mine"}, {}).repository == Path("/mine")
    environment = {"REPOGEN_DEPLOY_SERVERS": "c:1,d:2", "REPOGEN_DEPLOY_REPOSITORY": "/other"}
    target = parse_target("triton-repogen", None, environment)
    assert (target.servers, target.repository, target.credentials.tls) == (("c:1", "d:2"), Path("/other"), False)
    assert parse_target("triton-repogen://unix:/run/triton", None, {}).servers == ("unix:/run/triton",)


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("triton-repogen", "deployments.server"),
        ("triton-repogen://a:8001?tsl=1", "deployments.option"),
        ("triton-repogen://a", "deploy.servers"),
        ("triton-repogen://a:8001?repository=s3://bucket/models", "deployments.option"),
    ],
)
def test_wrong_targets(uri: str, code: str) -> None:
    """Each is an error of the request."""
    with pytest.raises(SpecError) as caught:
        parse_target(uri, None, {})
    assert caught.value.code == code


@pytest.mark.parametrize(
    "data",
    [[[1, 2], [3, 4]], {"x": [[1, 2], [3, 4]]}, pd.DataFrame({"x": [[1, 2], [3, 4]]}), np.array([[1, 2], [3, 4]])],
)
def test_inputs_become_arrays_of_the_models_dtype(data: object) -> None:
    """Whatever container they are in."""
    (tensor,) = wire_tensors(data, FLOATS)
    assert (tensor.name, tensor.dtype, tensor.array.dtype.name) == ("x", "FP32", "float32")
    assert tensor.array.tolist() == ROWS


def test_numbers_and_text() -> None:
    """A column of numbers fits a tensor whose last dim is 1, since Triton has no scalars; text is sent as objects."""
    expected = {"n": TensorMetadata("INT64", (-1, 1)), "t": TensorMetadata("BYTES", (-1, 1))}
    number, text = wire_tensors(pd.DataFrame({"t": ["a", "é"], "n": [1, 2]}), expected)
    assert (number.array.tolist(), text.array.tolist()) == ([[1], [2]], [["a"], ["é"]])


@pytest.mark.parametrize(
    "data", [{"y": [[1, 2]]}, {"x": [1, 2]}, {"x": [["a", "b"]]}, {"x": [[1, 2], [3]]}, {}, pd.DataFrame({"x": [1]})]
)
def test_wrong_inputs(data: object) -> None:
    """Missing and unknown inputs, other ranks, and values that are not numbers."""
    with pytest.raises(SpecError) as caught:
        wire_tensors(data, FLOATS)
    assert caught.value.code == "deployments.inputs"


def test_several_inputs_must_be_named() -> None:
    """An array alone does not specify which input it is."""
    with pytest.raises(SpecError, match="does not name them"):
        wire_tensors([[1, 2]], {**FLOATS, "z": FLOATS["x"]})


def test_outputs_are_json() -> None:
    """Text from bytes; half precision as numbers."""
    outputs = {"t": np.array([b"a", "é".encode()], object), "h": np.array([0.5], np.float16), "b": np.array([True])}
    assert json_of(outputs) == {"t": ["a", "é"], "h": [0.5], "b": [True]}


def test_text_of_a_server_is_safe_to_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mlflow deployments` prints an error with its causes."""
    error = SpecError("rejected: \x1b[2J\n::error::x")
    error.__cause__ = ValueError("\x1b[2J")
    monkeypatch.setattr(client, "parse_target", Mock(side_effect=error))
    deployments: Any = client.TritonDeploymentClient
    with pytest.raises(MlflowException) as caught:
        deployments("triton-repogen://a:1").get_deployment("m")
    assert "rejected: \\x1b[2J ::error::x" in str(caught.value)
    assert "\x1b" not in "".join(traceback.format_exception(caught.value))
