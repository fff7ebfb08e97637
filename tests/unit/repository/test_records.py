"""golden.json and manifest.json: back and forth, and what damage says."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.built_model import FileRecord, Golden, GoldenCase, GoldenTensor
from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import RepogenError
from repogen.repository.golden import golden_from_json, golden_to_json
from repogen.repository.manifest import manifest_from_json, manifest_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SIZE = st.integers(min_value=0, max_value=2**62)
TENSORS = st.lists(
    st.builds(TensorSpec, TEXT, st.sampled_from(sorted(DTYPES)), st.lists(SIZE | TEXT).map(tuple)), max_size=3
).map(tuple)
FILE = FileRecord("model.onnx", "0" * 64, 1)
PROVENANCE = st.builds(
    Provenance,
    tools=st.dictionaries(TEXT, TEXT),
    git_commit=TEXT,
    spec_sha256=TEXT,
    fingerprint=st.dictionaries(TEXT, TEXT),
    target=TEXT,
    exporter=TEXT,
    opset=SIZE,
    ir_version=SIZE,
    nodes_exported=SIZE,
    nodes_optimized=SIZE,
    parity_cases=SIZE,
    parity_max_abs_diff=st.floats(allow_nan=False),
    parity_max_rel_diff=st.floats(allow_nan=False),
)
MANIFESTS = st.builds(Manifest, TEXT, SIZE, st.builds(Signature, TENSORS, TENSORS), st.just((FILE,)), PROVENANCE)
MANIFEST = Manifest(
    "m",
    8,
    Signature((TensorSpec("x", "float32", ("batch", 4)),), ()),
    (FILE,),
    Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0),
)
GOLDEN = Golden(
    (GoldenCase("batch=2", 2, (GoldenTensor("x", "0.x"),), (GoldenTensor("ÿ/1", "0.y"),)),), {"ÿ/1": (1e-3, 1e-5)}
)


@given(MANIFESTS)
def test_manifest_there_and_back(manifest: Manifest) -> None:
    """Any manifest reads back as it was written."""
    assert manifest_from_json(manifest_to_json(manifest)) == manifest


def test_golden_there_and_back() -> None:
    """Golden cases read back as they were written."""
    assert golden_from_json(golden_to_json(GOLDEN)) == GOLDEN


def test_no_bare_nan() -> None:
    """NaN survives in JSON that every parser accepts."""
    text = golden_to_json(Golden((), {"y": (math.nan, math.inf)}))
    assert "NaN" not in text
    assert math.isnan(golden_from_json(text).tolerances["y"][0])


def test_unknown_members_are_tolerated() -> None:
    """A later repogen may add members without a new schema."""
    manifest, golden = json.loads(manifest_to_json(MANIFEST)), json.loads(golden_to_json(GOLDEN))
    for document in (manifest, golden):
        document["later"] = {"any": ["thing"]}
    manifest["provenance"]["later"] = 1
    assert manifest_from_json(json.dumps(manifest)) == MANIFEST
    assert golden_from_json(json.dumps(golden)) == GOLDEN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "`schema` is missing"),
        ('{"schema": true}', "`schema` must be an integer"),
        ('{"schema": -1}', "`schema` must not be negative"),
        ('{"schema": 2}', "newer than this repogen"),
    ],
)
@pytest.mark.parametrize("read", [manifest_from_json, golden_from_json])
def test_no_record(read: Callable[[str, str], object], text: str, expected: str) -> None:
    """What is no record of ours is an error that names the file."""
    with pytest.raises(RepogenError, match=expected) as caught:
        read(text, "m/1/some.json")
    assert caught.value.message.startswith("m/1/some.json: ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"path": "model.onnx"', '"path": "../model.onnx"', r"files\[0\]: `path` '../model.onnx' leads out"),
        ('"path": "model.onnx"', '"path": "/model.onnx"', "leads out"),
        ('"path": "model.onnx"', '"path": "other"', "does not list model.onnx"),
        ("0" * 64, "0" * 63, "64 hex digits"),
        ('"float32"', '"float31"', r"inputs\[0\]: `dtype` 'float31'"),
        ('"batch",', "1.5,", "`shape` must hold"),
        ('"size": 1', '"size": "1"', "`size` must be an integer"),
        ('"parity_max_abs_diff": 0.0', '"parity_max_abs_diff": "0"', "`parity_max_abs_diff` must be a number"),
        ('"tools": {}', '"tools": {"torch": 2}', "tools: `torch` must be a string"),
    ],
)
def test_damaged_manifest(old: str, new: str, expected: str) -> None:
    """Each kind of damage is found, and the key is named."""
    text = manifest_to_json(MANIFEST)
    assert old in text
    with pytest.raises(RepogenError, match=expected):
        manifest_from_json(text.replace(old, new))


def test_output_without_tolerance() -> None:
    """A golden output that nothing says how to compare is an error."""
    text = golden_to_json(Golden(GOLDEN.cases, {}))
    with pytest.raises(RepogenError, match="no tolerance for ÿ/1"):
        golden_from_json(text)
