"""Comparison of an expected and an actual config."""

from __future__ import annotations

import pytest

from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

EXPECTED = """
name: "m" backend: "onnxruntime" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } }
instance_group { count: 1 kind: KIND_CPU }
version_policy { latest { num_versions: 2 } }
parameters { key: "a" value { string_value: "1" } }
"""


def differences_after(old: str, new: str) -> list[str]:
    """Compare the config with itself after one replacement."""
    assert old in EXPECTED
    return differences(parse(EXPECTED, "expected"), parse(EXPECTED.replace(old, new), "actual"))


def test_equal_configs_have_no_differences() -> None:
    """A config equals itself."""
    assert differences_after("", "") == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('name: "m"', 'name: "n"', "name: expected 'm', found 'n'"),
        ("max_batch_size: 4", "", "max_batch_size: expected 4, found no value"),
        ("[ 3, -1 ]", "[ 3, 5 ]", "input[0].dims: expected [3, -1], found [3, 5]"),
        ("reshape { }", "", "output[0].reshape: expected { }, found no value"),
        ("reshape { }", "reshape { shape: 1 }", "output[0].reshape.shape: expected no value, found [1]"),
        ("KIND_CPU", "KIND_GPU", "instance_group[0].kind: expected KIND_CPU, found KIND_GPU"),
        ("latest { num_versions: 2 }", "all { }", "version_policy.latest: expected num_versions: 2, found no value"),
        ('"1"', '"2"', "parameters: expected {'a': string_value: \"1\" }, found {'a': string_value: \"2\" }"),
    ],
)
def test_change_is_one_line(old: str, new: str, line: str) -> None:
    """The line contains the field's path and both values."""
    assert [line] == differences_after(old, new)


@pytest.mark.parametrize("added", ["optimization { }", "dynamic_batching { }", 'default_model_filename: "a.onnx"'])
def test_added_field_is_not_a_difference(added: str) -> None:
    """A server fills in defaults, and a template may add fields."""
    assert differences_after('name: "m"', f'name: "m" {added}') == []
