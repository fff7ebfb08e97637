"""Golden cases on the wire: repeated rows and sizes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import SmokeError, SpecError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.golden import golden_arrays
from repogen.smoke.deployed_model import DeployedModel, WireCase, read_deployed_model
from repogen.smoke.preparation import PreparedModel
from repogen.smoke.sequence_checks import Unreachable, _position
from repogen.triton_config.text.parse import parse
from tests.support.swapping import swap_when_opened
from tests.unit.smoke.conftest import CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import Array

PROVENANCE = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
MANIFEST = Manifest("double", 8, Signature((TensorSpec("x", "float32", ("batch", 2)),), ()), (), PROVENANCE)
TENSOR_X, TENSOR_Y = {"name": "x", "key": "a"}, {"name": "y", "key": "b"}
CASE = {"name": "batch=3", "batch": 3, "inputs": [TENSOR_X], "outputs": [TENSOR_Y]}
GOLDEN = json.dumps({"schema": 1, "cases": [CASE], "tolerances": {"y": {"rtol": 0.0, "atol": 0.0}}}).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_tiled(size: int) -> None:
    """Inputs and outputs repeat the rows."""
    x, y = np.arange(12).reshape(3, 2, 2), np.arange(3)
    case = WireCase("c", 3, {"x": x}, {"y": y}).tiled(size)
    rows = [row % 3 for row in range(size)]
    assert (size, x[rows].tolist(), y[rows].tolist()) == (
        case.batch,
        case.inputs["x"].tolist(),
        case.outputs["y"].tolist(),
    )


def test_row_bytes() -> None:
    """Strings count with their length and its four bytes."""
    strings = np.array([[b"a" * 96], [b"a" * 196]], dtype=object)
    case = WireCase("c", 2, {"text": strings, "n": np.zeros((2, 3), np.float32)}, {"y": np.zeros((2, 5), np.int8)})
    assert (case.row_bytes, case.output_row_bytes) == (150 + 12, 5)


def deployed(directory: Path, golden: bytes, **arrays: Array) -> DeployedModel:
    """Read version 1 of a model with golden files."""
    (directory / "1").mkdir()
    (directory / "1" / "golden.json").write_bytes(golden)
    np.savez(directory / "1" / "golden.npz", **arrays)  # type: ignore[arg-type] # no key is allow_pickle
    model = PreparedModel(directory, (1,), parse(CONFIG, "config.pbtxt"))
    client: Any = None
    return read_deployed_model(client, model, directory / "1", MANIFEST)


def test_cases_are_read(tmp_path: Path) -> None:
    """Arrays are those of golden.npz."""
    rows = np.ones((3, 2), np.float32)
    (case,) = deployed(tmp_path, GOLDEN, a=rows, b=rows).cases
    assert (case.batch, case.inputs["x"].shape) == (3, (3, 2))


def test_arrays_are_in_the_version(tmp_path: Path) -> None:
    """They are sent to a server: those that a symlink leads to are not."""
    rows = np.ones((3, 2), np.float32)
    np.savez(tmp_path / "secret.npz", a=rows, b=rows)
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "golden.npz").symlink_to(tmp_path / "secret.npz")
    (model / "1" / "golden.json").write_bytes(GOLDEN)
    prepared = PreparedModel(model, (1,), parse(CONFIG, "config.pbtxt"))
    client: Any = None
    with pytest.raises(SmokeError, match="leads out of"):
        read_deployed_model(client, prepared, model / "1", MANIFEST)


def test_arrays_behind_a_link_of_another_user(tmp_path: Path) -> None:
    """A version, or the directory of a model, is not read behind such a link."""
    deployed_in = tmp_path / "own"
    deployed_in.mkdir()
    rows = np.ones((3, 2), np.float32)
    deployed(deployed_in, GOLDEN, a=rows, b=rows)
    link = tmp_path / "link"
    link.symlink_to(deployed_in)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(SpecError, match="is a symlink of another user") as caught:
        golden_arrays(link / "1")
    assert caught.value.code == "foreign-link"


def test_arrays_of_a_version_that_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user puts a link in its place after it was examined."""
    rows = np.ones((3, 2), np.float32)
    for directory in (tmp_path / "own", tmp_path / "theirs"):
        directory.mkdir()
        deployed(directory, GOLDEN, a=rows, b=rows)
    version = tmp_path / "theirs" / "1"
    swap_when_opened(monkeypatch, version / "golden.npz", version, tmp_path / "own" / "1")
    with pytest.raises(OSError, match="leads out of"):
        golden_arrays(version)
    assert version.is_symlink()


def test_rows_above_the_largest_batch_are_left_out(tmp_path: Path) -> None:
    """They are not copied: a case can have as many rows as its file has bytes, or more if they are empty."""
    many = GOLDEN.replace(b'"batch": 3', f'"batch": {2**40}'.encode())
    arrays = {key: np.empty((2**40, 0), np.float32) for key in "ab"}
    (case,) = deployed(tmp_path, many, **arrays).cases
    assert (case.batch, case.inputs["x"].shape, case.outputs["y"].shape) == (8, (8, 0), (8, 0))


@pytest.mark.parametrize("shape", [(2, 2), (), (0, 2)])
def test_case_with_another_number_of_rows_is_damaged(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A case declares its rows, and the checks use them."""
    with pytest.raises(SmokeError, match=r"golden\.npz is damaged"):
        deployed(tmp_path, GOLDEN, a=np.ones((3, 2), np.float32), b=np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"a": np.ones((3, 2)), "b": np.array([{}])}, "cannot be read"),
        ({"a": np.ones((3, 2)), "a.ends": np.array(["x"]), "b": np.ones((3, 2))}, "is damaged"),
        ({"a": np.frombuffer(b"abc", np.uint8), "a.ends": np.array([-1, 2, 3]), "b": np.ones((3, 2))}, "is damaged"),
        ({"a": np.ones((3, 2))}, "lacks b"),
    ],
)
def test_damaged_arrays(tmp_path: Path, arrays: dict[str, Array], reason: str) -> None:
    """The reason is in the message."""
    with pytest.raises(SmokeError, match=reason):
        deployed(tmp_path, GOLDEN, **arrays)


def test_cases_that_are_not_utf8(tmp_path: Path) -> None:
    """The file is damaged, like one that is not JSON."""
    with pytest.raises(MalformedRecordError, match=r"1/golden\.json: is not UTF-8"):
        deployed(tmp_path, b"\xff", a=np.ones(1), b=np.ones(1))


@pytest.mark.parametrize("name", ["z", "\N{BYTE ORDER MARK}x"])
def test_input_that_the_manifest_does_not_list(tmp_path: Path, name: str) -> None:
    """Its dtype on the wire is unknown."""
    golden = GOLDEN.replace(b'"name": "x"', json.dumps({"name": name}).encode()[1:-1])
    rows = np.ones((3, 2), np.float32)
    with pytest.raises(SmokeError, match="the manifest does not list"):
        deployed(tmp_path, golden, a=rows, b=rows)


@pytest.mark.parametrize("values", [None, np.ones((0, 1), np.float32), np.full((1, 1), np.nan, np.float32)])
def test_golden_values_of_a_control_input(values: Array | None) -> None:
    """A golden row without them, or with values that Triton never feeds, is not sent."""
    control = 'control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } name: "id"'
    config = parse(f"sequence_batching {{ control_input {{ {control} }} }}", "config.pbtxt")
    inputs = {} if values is None else {"id": values}
    client: Any = None
    row = WireCase("c", 1, inputs, {})
    model = DeployedModel(client, "m", 1, config, {}, (row,), {})
    assert isinstance(_position(model, row), Unreachable)
