"""overridden: what a private smoke config may change, and that each change is said."""

from __future__ import annotations

import json

import pytest

from repogen.smoke.overrides import as_json, overridden
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
def test_only_what_this_server_cannot_serve_is_changed(added: str, becomes: str, lines: list[str]) -> None:
    """Without a GPU, and with version 7 alone there, these fields change, and nothing else."""
    original = parse(BASE + added, "test")
    told, said = overridden(original, version=7, has_gpu=False)
    assert (parse(BASE + becomes, "test"), lines) == (told, list(said))
    assert differences(parse(BASE + added, "test"), original) == []


def test_with_a_gpu_nothing_changes() -> None:
    """A server with a GPU gets the config as published."""
    config = parse(BASE + "instance_group { kind: KIND_GPU gpus: 0 }", "test")
    assert (config, ()) == overridden(config, version=1, has_gpu=True)


def test_json_uses_the_file_s_field_names() -> None:
    """Triton reads the load request's config by config.pbtxt's own names."""
    assert json.loads(as_json(parse(BASE, "test"))) == {"name": "m", "backend": "onnxruntime", "max_batch_size": 4}
