"""``optimize:`` and ``quality:`` of a spec: every problem with its line, and what a change of a file does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.built_model import ImportedCode
from repogen.build.fingerprint import build_inputs, changes, fingerprint
from repogen.errors import SpecError
from repogen.spec.load import load_spec
from repogen.spec.models import PassSpec
from repogen.spec.schema import json_schema

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [2]}}
"""
CODE = """\
def build(): ...
def accuracy(predict, data): ...
"""


def write(directory: Path, section: str) -> Path:
    """Write a spec whose model has a section from line 5 on."""
    (directory / "models.py").write_text(CODE)
    (directory / "data.npz").write_bytes(b"1")
    path = directory / "repogen.yaml"
    path.write_text(SPEC + "".join(f"    {line}\n" for line in section.splitlines()))
    return path


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("optimize: [onnxsim, {name: fp16, gain: false}]", [("onnxsim", None), ("fp16", False)]),
        ("optimize: auto", [("ir-cleanup", True), ("ort-fusions", True), ("onnxruntime-offline", True)]),
        (
            'optimize: auto\nquality: {callable: "models.py:accuracy", max_drop: 0.01}',
            [("int8-dynamic", True), ("ir-cleanup", True), ("ort-fusions", True), ("onnxruntime-offline", True)],
        ),
        ("", []),
    ],
)
def test_selected_passes(tmp_path: Path, section: str, names: list[tuple[str, bool | None]]) -> None:
    """``auto`` stands for passes that must all pay; lossy ones need a budget."""
    model = load_spec(write(tmp_path, section)).models["m"]
    assert [(step.name, step.gain) for step in model.passes] == names


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("optimize: all", '5:5 models.m.optimize: must be auto or a list of passes, not "all"'),
        ("optimize: [onnxsimm]", "5:16 models.m.optimize[0]: must be fp16, int8-dynamic, "),
        ("optimize: [{name: fp16, gain: 2}]", "5:29 models.m.optimize[0].gain: must be true or false, not 2"),
        (
            "optimize: [int8-static]",
            "5:16 models.m.optimize[0].options: calibration is missing (write {name: int8-static, options",
        ),
        (
            "optimize: [{name: int8-static, options: {calibration: other.npz}}]",
            '5:46 models.m.optimize[0].options.calibration: file "other.npz" does not exist',
        ),
        (
            'optimize: [{name: int8-static, options: {calibration: "models.py:batches"}}]',
            '5:46 models.m.optimize[0].options.calibration: models.py does not define "batches"',
        ),
        (
            "optimize: [{name: int8-dynamic, options: {exclude: first}}]",
            "5:47 models.m.optimize[0].options.exclude: must be a list of node names, in which * matches any text",
        ),
        (
            "optimize: [{name: int8-dynamic, options: {reduce: true}}]",
            '5:47 models.m.optimize[0].options.reduce: unknown key (did you mean "reduce_range"?)',
        ),
        (
            "optimize: [{name: onnxruntime-offline, options: {level: all}}]",
            '5:54 models.m.optimize[0].options.level: must be basic or extended, not "all"',
        ),
        ("quality: {max_drop: 0.01}", "5:5 models.m.quality: callable is missing"),
        ('quality: {callable: "models.py:accuracy"}', "5:5 models.m.quality: max_drop is missing"),
        (
            'quality: {callable: "models.py:accuracy", max_drop: -1}',
            "5:47 models.m.quality.max_drop: must be a number >= 0, not -1",
        ),
        (
            'quality: {callable: "models.py:f1", max_drop: 0.01}',
            '5:15 models.m.quality.callable: models.py does not define "f1"',
        ),
        (
            'quality: {callable: "models.py:accuracy", data: test.npz, max_drop: 0.01}',
            '5:47 models.m.quality.data: file "test.npz" does not exist',
        ),
    ],
)
def test_problem_has_its_line(tmp_path: Path, section: str, problem: str) -> None:
    """One problem for each mistake."""
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, section))
    assert f"repogen.yaml:{problem}" in caught.value.message
    assert "\n" not in caught.value.message


def test_change_of_data_is_a_change(tmp_path: Path) -> None:
    """Of calibration data and of the data of quality; the reason names the key."""
    section = """\
optimize: [{name: int8-static, options: {calibration: data.npz}}]
quality: {callable: "models.py:accuracy", data: quality.npz, max_drop: 0.01}
"""
    (tmp_path / "quality.npz").write_bytes(b"1")
    spec = load_spec(write(tmp_path, section))
    recorded = fingerprint(build_inputs(spec, "m"), ImportedCode({}, {}))
    assert changes(recorded, spec, "m") == []
    (tmp_path / "data.npz").write_bytes(b"2")
    (tmp_path / "quality.npz").write_bytes(b"2")
    assert changes(recorded, spec, "m") == [
        "a file of the options of int8-static changed",
        "the file of quality.data changed",
    ]


def test_json_schema_has_the_options_of_each_pass() -> None:
    """An editor completes them; the name alone and ``auto`` are valid as well."""
    definitions: Any = json_schema()["$defs"]
    text = json.dumps(definitions["PassSpec"])
    assert all(f'"{option}"' in text for option in ("calibration", "reduce_range", "level", "exclude", "gain"))
    assert '"const": "auto"' in json.dumps(definitions["ModelSpec"]["properties"]["optimize"])
    assert set(definitions["QualitySpec"]["required"]) == {"callable", "max_drop"}


def test_name_and_mapping_are_the_same_pass() -> None:
    """With the defaults of the options."""
    assert PassSpec.model_validate("fp16") == PassSpec(name="fp16")
