"""Preparation of models: names, overrides of the config, and models that cannot be sent."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from repogen.artifacts.serving import Endpoint
from repogen.artifacts.tensors import Signature
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.errors import ConfigError, SmokeError
from repogen.repository.inventory import read_model
from repogen.smoke.inference import RefusedError
from repogen.smoke.preparation import (
    PreparedModel,
    as_json,
    check_supported,
    loaded,
    override_config,
    prepare_published,
    prepare_staged,
)
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

BASE = 'name: "m" backend: "onnxruntime" max_batch_size: 4 '
LOCAL = Endpoint("127.0.0.1:1", "", "", "embedded", "2.51.0", "simulated", sees_files=True, has_gpu=False)
REMOTE = Endpoint("triton:8001", "", "", "remote", "2.51.0", "unknown", sees_files=False, has_gpu=True)


def staged(text: str, name: str = "m") -> StagedVersion:
    """Return version 1 of model ``name`` with a config, without files."""
    provenance = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    signature = Signature((), ())
    manifest = Manifest(name, 4, signature, (), provenance)
    return StagedVersion(name, Path("repository"), 1, ModelConfig(name, text, 4, signature), manifest)


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


def test_unchanged_config_is_read_from_the_repository() -> None:
    """The server loads config.pbtxt itself, under the name of the directory."""
    model = prepare_staged(LOCAL, staged(BASE))
    assert (model.served_as, model.replaces_config, model.sent, model.files()) == ("m", False, False, {})


def test_directory_name_overrides_the_name_in_the_config() -> None:
    """The server loads a config with the name of the directory; that is not an override to report."""
    model = prepare_staged(LOCAL, staged(BASE, "m-champion"))
    assert (model.served_as, model.replaces_config, model.overrides) == ("m-champion", True, ())


def test_copy_for_a_remote_server_has_a_unique_name() -> None:
    """Two preparations have different names, and the report has the name."""
    one, two = prepare_staged(REMOTE, staged(BASE)), prepare_staged(REMOTE, staged(BASE))
    assert one.served_as != two.served_as
    assert (one.sent, one.replaces_config) == (True, True)
    assert one.overrides == (f"name: m -> {one.served_as} (a private copy: live models are unaffected)",)


def test_packed_packages_are_sent_with_the_code(tmp_path: Path) -> None:
    """Files in directories keep their paths; bytecode, and files that the backend ignores, are not sent."""
    version = tmp_path / "m" / "1"
    for path in ("model.py", "packed_model.py", "packages/common/a/b.so", "__pycache__/model.pyc", "golden.npz"):
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        (version / path).write_text(path)

    model = PreparedModel(tmp_path / "m", (1,), parse('name: "m" backend: "python"', "m"), sent=True)

    names = ("model.py", "packed_model.py", "packages/common/a/b.so")
    assert model.files() == {f"1/{name}": name.encode() for name in names}


def test_ensemble_cannot_be_sent() -> None:
    """The remote server lacks the models of its steps."""
    text = 'name: "m" platform: "ensemble" ensemble_scheduling { step { model_name: "step" model_version: -1 } }'
    assert not prepare_staged(LOCAL, staged(text)).sent
    with pytest.raises(SmokeError, match="m: an ensemble cannot be sent") as caught:
        prepare_staged(REMOTE, staged(text))
    assert caught.value.code == "smoke.ensemble"


@pytest.mark.parametrize(
    ("added", "feature"),
    [
        ("sequence_batching { state { use_same_buffer_for_input_output: true } }", "use_same_buffer_for_input_output"),
        ("sequence_batching { state { use_growable_memory: true } }", "use_same_buffer_for_input_output"),
        ('input { name: "x" data_type: TYPE_BF16 dims: 4 }', "TYPE_BF16"),
        ('output { name: "y" data_type: TYPE_BF16 dims: 4 }', "TYPE_BF16"),
    ],
)
def test_unsupported_feature_is_a_warning_on_the_embedded_server(added: str, feature: str) -> None:
    """Other servers run NVIDIA's backend."""
    model = PreparedModel(Path("m"), (1,), parse(BASE + added, "test"))
    check = check_supported(LOCAL, model)
    assert check is not None
    assert (check.passed, check.warning, f"does not support {feature};" in check.detail) == (True, True, True)
    assert check_supported(REMOTE, model) is None
    assert check_supported(LOCAL, PreparedModel(Path("m"), (1,), parse(BASE, "test"))) is None


@pytest.mark.parametrize("outer", ["a", "b"])
def test_unsupported_feature_of_a_step_is_a_warning(tmp_path: Path, outer: str) -> None:
    """Triton loads the steps with the ensemble, also those of an ensemble among them; before, the load failed."""
    step = 'platform: "ensemble" ensemble_scheduling {{ step {{ model_name: "{}" model_version: -1 }} }}'
    configs = {"a": step.format("b"), "b": step.format("c"), "c": 'input { name: "x" data_type: TYPE_BF16 dims: 4 }'}
    for name, text in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(text, encoding="utf-8")
    check = check_supported(LOCAL, prepare_published(LOCAL, tmp_path / outer))
    assert check is not None
    assert (check.passed, check.warning) == (True, True)
    assert "does not support TYPE_BF16 (of its step c);" in check.detail
    (tmp_path / "c" / "config.pbtxt").write_text("{", encoding="utf-8")
    assert check_supported(LOCAL, prepare_published(LOCAL, tmp_path / outer)) is None  # the load check has the reason


def test_steps_that_form_a_cycle(tmp_path: Path) -> None:
    """The requirements of each Python step are listed once; an ensemble has none."""
    step = 'step { model_name: "%s" model_version: -1 }'
    steps = {"a": ("b", "code"), "b": ("a", "code")}
    configs = {
        name: f"ensemble_scheduling {{ {' '.join(step % each for each in used)} }}" for name, used in steps.items()
    }
    for name, config in (configs | {"code": 'backend: "python"'}).items():
        version = tmp_path / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").touch()
        (version / "requirements.txt").write_text(f"{name}==1\n", encoding="utf-8")
        (tmp_path / name / "config.pbtxt").write_text(config, encoding="utf-8")
    assert prepare_published(LOCAL, tmp_path / "a").requirements() == ["code==1"]


@pytest.mark.parametrize("content", [b"\xff", b" " * (2**20 + 1)])
def test_config_that_cannot_be_parsed(tmp_path: Path, content: bytes) -> None:
    """Text that is not UTF-8, or is too large, is an error of the config."""
    (tmp_path / "config.pbtxt").write_bytes(content)
    with pytest.raises(ConfigError):
        prepare_published(LOCAL, tmp_path)


def test_comment_that_is_not_utf8(tmp_path: Path) -> None:
    """Triton ignores it."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_bytes(b'# caf\xe9\nbackend: "onnxruntime" # \xff')
    assert prepare_published(LOCAL, tmp_path / "m").config.backend == "onnxruntime"
    record = read_model(tmp_path, "m")
    assert (record.served, record.problem) == ((1,), "")


@pytest.mark.parametrize("name", ["..", "../outside"])
def test_steps_outside_of_the_repository(tmp_path: Path, name: str) -> None:
    """Their requirements must not be installed, and no such ensemble is loaded."""
    step = f'ensemble_scheduling {{ step {{ model_name: "{name}" model_version: 1 }} }}'
    for directory, config in ((tmp_path, ""), (tmp_path / "outside", ""), (tmp_path / "repository" / "e", step)):
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").touch()
        (directory / "1" / "requirements.txt").write_text("outside==1\n", encoding="utf-8")
        (directory / "config.pbtxt").write_text(config, encoding="utf-8")
    (tmp_path / "repository" / "e" / "1" / "model.py").unlink()
    model = prepare_published(LOCAL, tmp_path / "repository" / "e")
    assert model.requirements() == []
    server, client = MagicMock(), MagicMock()
    with pytest.raises(RefusedError, match="is not the name of a model"), loaded(server, client, model):
        pass
    client.load.assert_not_called()


def test_config_with_the_name_of_another_model(tmp_path: Path) -> None:
    """The server would load that model, which was not examined: it could contain code."""
    directory = tmp_path / "repository" / "harmless"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text('name: "other"\nbackend: "onnxruntime"\n', encoding="utf-8")
    server, client, model = MagicMock(), MagicMock(), prepare_published(LOCAL, directory)
    with pytest.raises(RefusedError, match="has the name 'other'"), loaded(server, client, model):
        pass
    client.load.assert_not_called()
