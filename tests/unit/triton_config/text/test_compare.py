"""differences: what was meant against what is there."""

from __future__ import annotations

import pytest

from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

MEANT = """
name: "m" backend: "onnxruntime" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } }
instance_group { count: 1 kind: KIND_CPU }
version_policy { latest { num_versions: 2 } }
parameters { key: "a" value { string_value: "1" } }
"""


def compared(old: str, new: str) -> list[str]:
    """Compare the config with itself after one replacement."""
    assert old in MEANT
    return differences(parse(MEANT, "meant"), parse(MEANT.replace(old, new), "found"))


def test_equal_configs_do_not_differ() -> None:
    """A config equals itself."""
    assert compared("", "") == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('name: "m"', 'name: "n"', "name: meant 'm', found 'n'"),
        ("max_batch_size: 4", "", "max_batch_size: meant 4, found nothing"),
        ("[ 3, -1 ]", "[ 3, 5 ]", "input[0].dims: meant [3, -1], found [3, 5]"),
        ("reshape { }", "", "output[0].reshape: meant { }, found nothing"),
        ("reshape { }", "reshape { shape: 1 }", "output[0].reshape.shape: meant to be left out, found [1]"),
        ("KIND_CPU", "KIND_GPU", "instance_group[0].kind: meant KIND_CPU, found KIND_GPU"),
        ("latest { num_versions: 2 }", "all { }", "version_policy.latest: meant num_versions: 2, found nothing"),
        ('"1"', '"2"', "parameters: meant {'a': string_value: \"1\" }, found {'a': string_value: \"2\" }"),
    ],
)
def test_a_change_is_one_line(old: str, new: str, line: str) -> None:
    """Each changed or dropped field is named by its path, with both values."""
    assert [line] == compared(old, new)


@pytest.mark.parametrize("added", ["optimization { }", "dynamic_batching { }", 'default_model_filename: "a.onnx"'])
def test_an_addition_is_no_difference(added: str) -> None:
    """A server fills in defaults, and a template may say more."""
    assert compared('name: "m"', f'name: "m" {added}') == []
