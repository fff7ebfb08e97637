"""The config of a smoke test: the fields that may change, and the report of each change."""

from __future__ import annotations

import json

import pytest

from repogen.smoke.preparation import as_json, override_config
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

BASE = 'name: "m" backend: "onnxruntime" max_batch_size: 4 '


@pytest.mark.parametrize(
    ("added", "becomes", "lines"),
    [
        ("instance_group { kind: KIND_CPU count: 2 }", "instance_group { kind: KIND_CPU count: 2 }", []),
        ("instance_group { kind: KIND_AUTO count: 1 }", "instance_group { kind: KIND_AUTO count: 1 }", []),
        (
            "instance_group { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] }",
            "instance_group { kind: KIND_CPU count: 2 }",
            [
                "instance_group[0].kind: KIND_GPU -> KIND_CPU (no GPU here)",
                "instance_group[0].gpus: [0, 1] -> []",
            ],
        ),
        (
            "instance_group { kind: KIND_AUTO gpus: 0 }",
            "instance_group { kind: KIND_CPU }",
            ["instance_group[0].kind: KIND_AUTO -> KIND_CPU (no GPU here)", "instance_group[0].gpus: [0] -> []"],
        ),
        (
            'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
            "optimization { execution_accelerators { } }",
            [
                "optimization.execution_accelerators.gpu_execution_accelerator: ['tensorrt'] -> [] (no GPU here)",
            ],
        ),
        ("version_policy { latest { num_versions: 2 } }", "version_policy { latest { num_versions: 2 } }", []),
        ("version_policy { specific { versions: 7 } }", "version_policy { specific { versions: 7 } }", []),
        (
            "version_policy { specific { versions: [ 1, 3 ] } }",
            "version_policy { specific { versions: 7 } }",
            ["version_policy: specific [1, 3] -> specific [7]"],
        ),
    ],
)
def test_only_unsupported_fields_are_changed(added: str, becomes: str, lines: list[str]) -> None:
    """Without a GPU and with only version 7, these fields change and no others."""
    original = parse(BASE + added, "test")
    config, overrides = override_config(original, version=7, has_gpu=False)
    assert (parse(BASE + becomes, "test"), lines) == (config, list(overrides))
    assert differences(parse(BASE + added, "test"), original) == []


def test_config_is_unchanged_with_a_gpu() -> None:
    """A server with a GPU gets the config as published."""
    config = parse(BASE + "instance_group { kind: KIND_GPU gpus: 0 }", "test")
    assert (config, ()) == override_config(config, version=1, has_gpu=True)


def test_json_has_the_field_names_of_config_pbtxt() -> None:
    """Triton requires them in a load request."""
    assert json.loads(as_json(parse(BASE, "test"))) == {"name": "m", "backend": "onnxruntime", "max_batch_size": 4}
