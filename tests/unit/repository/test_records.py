"""golden.json and manifest.json: round trips, and the errors of damaged files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.built_model import FileRecord, Golden, GoldenCase, GoldenTensor, Lossy, Quality
from repogen.artifacts.file_names import OWNER_FILE
from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import PublishError, RepogenError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.golden import golden_from_json, golden_to_json, read_golden
from repogen.repository.manifest import damaged_files, manifest_from_json, manifest_to_json, read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryOwner, read_owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SIZE = st.integers(min_value=0, max_value=2**62)
TENSORS = st.lists(
    st.builds(TensorSpec, TEXT, st.sampled_from(sorted(DTYPES)), st.lists(SIZE | TEXT).map(tuple)), max_size=3
).map(tuple)
FILE = FileRecord("model.onnx", "0" * 64, 1)
FIGURES = st.floats(allow_nan=False, allow_infinity=False)
QUALITIES = st.builds(Quality, FIGURES, FIGURES, FIGURES)
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
    lossy=st.none() | st.builds(Lossy, st.tuples(TEXT), st.just("qint8"), st.none() | QUALITIES),
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


@pytest.mark.parametrize(("path", "number", "problem"), [("f" * 200, 50_000, "bytes"), (",[" * 90, 12_000, "values")])
def test_manifest_that_could_not_be_read(path: str, number: int, problem: str) -> None:
    """A manifest that a reader rejects is not written."""
    files = (FILE, *(FileRecord(f"{path}{index}", "0" * 64, 1) for index in range(number)))
    with pytest.raises(PublishError, match=rf"files has .* {problem}") as caught:
        manifest_to_json(replace(MANIFEST, files=files))
    assert caught.value.code == "stage.manifest-size"


@given(MANIFESTS)
def test_manifest_there_and_back(manifest: Manifest) -> None:
    """Any manifest reads back as it was written."""
    assert manifest_from_json(manifest_to_json(manifest)) == manifest


def test_golden_there_and_back() -> None:
    """Golden cases read back as they were written."""
    assert golden_from_json(golden_to_json(GOLDEN)) == GOLDEN


def test_no_bare_nan() -> None:
    """NaN survives in JSON that every parser accepts."""
    text = manifest_to_json(replace(MANIFEST, provenance=replace(MANIFEST.provenance, parity_max_abs_diff=math.nan)))
    assert "NaN" not in text
    assert math.isnan(manifest_from_json(text).provenance.parity_max_abs_diff)


@pytest.mark.parametrize("tolerance", ["NaN", '"nan"', "Infinity", '"inf"', "-1", "1e400"])
def test_tolerance_that_accepts_any_output_is_damage(tolerance: str) -> None:
    """Every difference is within a tolerance of NaN: the smoke test would pass for a wrong model."""
    text = golden_to_json(GOLDEN).replace("1e-05", tolerance)
    with pytest.raises(MalformedRecordError, match=r"tolerances\.ÿ/1\.atol"):
        golden_from_json(text)


def test_tensors_of_many_cases_are_damage() -> None:
    """Each would be read again from the same bytes of golden.npz, so the memory would have no limit."""
    case = GOLDEN.cases[0]
    with pytest.raises(MalformedRecordError, match=r"several tensors with the key 0\.x"):
        golden_from_json(golden_to_json(Golden((case, case), GOLDEN.tolerances)))
    empty = GoldenCase("a", 2, (), ())
    assert len(golden_from_json(golden_to_json(Golden((empty,) * 1000, {}))).cases) == 1000
    with pytest.raises(MalformedRecordError, match="has 1001 cases"):
        golden_from_json(golden_to_json(Golden((empty,) * 1001, {})))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"size": 1', f'"size": {10**400}'),
        ('"max_batch_size": 8', f'"max_batch_size": {2**63}'),
        ('"opset": 20', f'"opset": {10**400}'),
        ("        4\n", f"        {10**400}\n"),
        ('"path": "model.onnx"', '"path": "model.onnx\\u0000"'),
    ],
)
def test_values_that_no_file_can_have_are_damage(old: str, new: str) -> None:
    """Such numbers overflow where they are used, and such paths raise ValueError."""
    text = manifest_to_json(MANIFEST)
    assert old in text
    with pytest.raises(MalformedRecordError):
        manifest_from_json(text.replace(old, new))


def test_path_longer_than_a_file_name_is_a_damaged_file(tmp_path: Path) -> None:
    """The other files are still compared."""
    manifest = replace(MANIFEST, files=(*MANIFEST.files, FileRecord("x" * 300, "0" * 64, 1)))
    damage = damaged_files(tmp_path, manifest)
    assert damage[0] == "model.onnx is missing"
    assert damage[1].endswith("cannot be read: File name too long")


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"9" * 5000, b" " * (16 * 2**20 + 1)])
@pytest.mark.parametrize("read", [read_manifest, read_golden])
def test_hostile_files_are_damage(tmp_path: Path, content: bytes, read: Callable[[Path], object]) -> None:
    """Bytes that are not UTF-8, deep nesting, numbers with too many digits, and files that are too large."""
    for name in ("manifest.json", "golden.json"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(MalformedRecordError):
        read(tmp_path)


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
        ("", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON: recursion limit"),
        ('{"schema": ' + "9" * 5000 + "}", "Invalid JSON: number out of range"),
        ("\ufeff{}", "Invalid JSON"),
        ("[]", "should be an object"),
        ("{}", "schema: Field required"),
        ('{"schema": true}', "schema: Input should be a valid integer"),
        ('{"schema": 1.0}', "schema: Input should be a valid integer"),
        ('{"schema": -1}', "schema: Input should be greater than or equal to 0"),
        ('{"schema": 2}', "schema: schema 2 is newer than this version of repogen"),
        ('{"schema": ' + "9" * 400 + "}", "schema: Input should be less than or equal to 9223372036854775807"),
    ],
)
@pytest.mark.parametrize("read", [manifest_from_json, golden_from_json])
def test_no_record(read: Callable[[str, str], object], text: str, expected: str) -> None:
    """A file that is not a repogen record is an error that names the file."""
    with pytest.raises(RepogenError, match=expected) as caught:
        read(text, "m/1/some.json")
    assert caught.value.message.startswith("m/1/some.json: ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"path": "model.onnx"', f'"path": "{"a/" * 1000}model.onnx"', "is nested deeper than 32 directories"),
        ('"path": "model.onnx"', '"path": "../model.onnx"', r"files\[0\]: path '../model.onnx' is outside"),
        ('"path": "model.onnx"', '"path": "/model.onnx"', "is outside"),
        ('"path": "model.onnx"', '"path": "other"', "does not list model.onnx"),
        ("0" * 64, "0" * 63, "64 hex digits"),
        ('"float32"', '"float31"', r"inputs\[0\]: dtype 'float31'"),
        ('"batch",', "1.5,", r"inputs\[0\].shape\[0\]"),
        ('"batch",', "true,", r"inputs\[0\].shape\[0\]"),
        ('"batch",', "-1,", r"inputs\[0\]: shape must contain sizes"),
        ('"size": 1', '"size": "1"', r"files\[0\].size: Input should be a valid integer"),
        ('"size": 1', '"size": -1', r"files\[0\]: size must not be negative"),
        ('"opset": 20', '"opset": -1', "provenance.opset: Input should be greater"),
        ('"parity_max_abs_diff": 0.0', '"parity_max_abs_diff": "0"', "provenance.parity_max_abs_diff: .* valid number"),
        ('"parity_max_abs_diff": 0.0', f'"parity_max_abs_diff": 1{"0" * 400}', "parity_max_abs_diff: .* valid number"),
        ('"tools": {}', '"tools": {"torch": 2}', "provenance.tools.torch: Input should be a valid string"),
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


def test_format_of_the_manifest_is_stable() -> None:
    """The bytes that earlier versions of repogen wrote are those that this one writes."""
    manifest = replace(
        MANIFEST, provenance=replace(MANIFEST.provenance, parity_max_rel_diff=math.inf, tools={"b": "ä"})
    )
    assert (
        manifest_to_json(manifest)
        == """\
{
  "files": [
    {
      "path": "model.onnx",
      "sha256": "0000000000000000000000000000000000000000000000000000000000000000",
      "size": 1
    }
  ],
  "inputs": [
    {
      "dtype": "float32",
      "name": "x",
      "shape": [
        "batch",
        4
      ]
    }
  ],
  "max_batch_size": 8,
  "model": "m",
  "outputs": [],
  "provenance": {
    "exporter": "dynamo",
    "fingerprint": {},
    "git_commit": "",
    "ir_version": 10,
    "lossy": null,
    "nodes_exported": 1,
    "nodes_optimized": 1,
    "opset": 20,
    "parity_cases": 1,
    "parity_max_abs_diff": 0.0,
    "parity_max_rel_diff": "inf",
    "spec_sha256": "",
    "target": "24.10",
    "tools": {
      "b": "ä"
    }
  },
  "schema": 1
}
"""
    )


def test_manifest_of_the_first_edition() -> None:
    """It has fewer keys, and is read as before."""
    document = json.loads(manifest_to_json(MANIFEST))
    del document["provenance"]["lossy"]
    assert set(document) == {"files", "inputs", "max_batch_size", "model", "outputs", "provenance", "schema"}
    assert set(document["provenance"]) == {
        *("exporter", "fingerprint", "git_commit", "ir_version", "nodes_exported", "nodes_optimized", "opset"),
        *("parity_cases", "parity_max_abs_diff", "parity_max_rel_diff", "spec_sha256", "target", "tools"),
    }
    assert manifest_from_json(json.dumps(document)) == MANIFEST


def test_format_of_the_golden_cases_is_stable() -> None:
    """The bytes that earlier versions of repogen wrote are those that this one writes."""
    text = golden_to_json(Golden((GoldenCase("a", 2, (GoldenTensor("x", "0.x"),), ()),), {"y": (0.001, 0.0)}))
    assert json.loads(text) == {
        "schema": 1,
        "cases": [{"name": "a", "batch": 2, "inputs": [{"name": "x", "key": "0.x"}], "outputs": []}],
        "tolerances": {"y": {"rtol": 0.001, "atol": 0.0}},
    }
    assert text.startswith('{\n  "cases": [\n    {\n      "batch": 2,\n')


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (RepositoryOwner(RepositoryKind.BUILT), '{"schema": 1, "kind": "built"}\n'),
        (
            RepositoryOwner(RepositoryKind.SYNCED, ("chämpion",)),
            '{"schema": 1, "kind": "synced", "aliases": ["chämpion"]}\n',
        ),
    ],
)
def test_owner_round_trip(tmp_path: Path, owner: RepositoryOwner, text: str) -> None:
    """The file's bytes are those that earlier versions of repogen wrote."""
    assert owner.to_json() == text
    (tmp_path / OWNER_FILE).write_text(text, encoding="utf-8")
    assert read_owner(tmp_path) == owner


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "Invalid JSON"),
        ('{"schema": 2, "kind": "built"}', "schema: schema 2 is newer"),
        ('{"schema": 1}', "kind: Field required"),
        ('{"schema": 1, "kind": "other"}', "kind: Input should be 'built' or 'synced'"),
        ('{"schema": 1, "kind": "synced", "aliases": [1]}', r"aliases\[0\]: Input should be a valid string"),
    ],
)
def test_damaged_owner(tmp_path: Path, text: str, expected: str) -> None:
    """The error names the file and the key."""
    (tmp_path / OWNER_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(MalformedRecordError, match=expected) as caught:
        read_owner(tmp_path)
    assert caught.value.where == str(tmp_path / OWNER_FILE)


def test_many_values_of_a_wrong_type() -> None:
    """Each would need a kilobyte of memory for its error, and 16 MiB of text have eight million."""
    with pytest.raises(MalformedRecordError, match="has more than 1,000,000 values"):
        manifest_from_json(f'{{"files": [{"1," * 1_000_001}1]}}')


def test_fingerprint_with_very_many_keys() -> None:
    """The manifests of all versions are read at once, and short keys need much more memory than their text."""
    document = json.loads(manifest_to_json(MANIFEST))
    document["provenance"]["fingerprint"] = {f"{number:x}": "" for number in range(20_001)}
    with pytest.raises(MalformedRecordError, match=r"provenance\.fingerprint"):
        manifest_from_json(json.dumps(document))


def test_tensor_with_very_many_dims() -> None:
    """Its dims are compared with those of every state of a config, of which there can be thousands."""
    document = json.loads(manifest_to_json(MANIFEST))
    document["inputs"] = [{"name": "x", "dtype": "float32", "shape": [1] * 1001}]
    with pytest.raises(MalformedRecordError, match="1001 dims"):
        manifest_from_json(json.dumps(document))
