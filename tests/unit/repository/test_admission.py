"""Which models Triton may load: names that reach a shell, and code in models that are not Python models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.api.check import check
from repogen.repository.admission import read_refusals

if TYPE_CHECKING:
    from pathlib import Path

ONNX = 'backend: "onnxruntime"\n'


def model(root: Path, config: str | None = ONNX, name: str = "m", *files: str) -> Path:
    """Write a model with empty files; return its directory."""
    directory = root / name
    for file in ("1/model.onnx", *files):
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).touch()
    if config is not None:
        (directory / "config.pbtxt").write_text(config, encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", ["m", "bert-base_v1.5", "a@b+c=d,e:f%", "mod\u00e8le", "-m", "2.0"])
@pytest.mark.parametrize("config", [None, ONNX, 'platform: "onnxruntime_onnx"', "instance_group { name: 'm_0' }"])
def test_plain_models_may_be_loaded(tmp_path: Path, name: str, config: str | None) -> None:
    """Names and values without special characters of a shell."""
    assert read_refusals(model(tmp_path, config, name)) == ()


@pytest.mark.parametrize(
    "name", ["x$(date)y", "a;b", "a b", "a`b`", "a|b", "a&b", "a>b", "a\nb", "a'b", 'a"b', "a*", "~", "!a", "a\\b"]
)
def test_name_that_reaches_a_shell_is_refused(tmp_path: Path, name: str) -> None:
    """`check` reports it as well."""
    (reason,) = read_refusals(model(tmp_path, ONNX, name))
    assert repr(name) in reason
    assert "to a shell" in reason
    assert "RG410" in {finding.code for finding in check(tmp_path)}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ONNX + 'instance_group { name: "a;b" }', "instance_group[0].name 'a;b'"),
        (ONNX + 'default_model_filename: "$(a).onnx"', "default_model_filename '$(a).onnx'"),
        (ONNX + 'parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH runs code"),
        ('parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH runs code"),
        ('platform: "ensemble" parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH"),
        (ONNX + 'parameters { key: "TRITON_BATCH_STRATEGY_PATH" }', "TRITON_BATCH_STRATEGY_PATH runs code"),
        (ONNX + 'model_operations { op_library_filename: "a.so" }', "op_library_filename runs code"),
        ('backend: "../x"', "backend '../x' is not a plain name"),
        ('backend: ".."', "backend '..' is not a plain name"),
        ('backend: "python" runtime: "a/b.so"', "runtime 'a/b.so' is not a plain name"),
        (ONNX + 'model_repository_agents { agents { name: "../a" } }', "agents[0].name '../a' is not a plain name"),
    ],
)
def test_config_that_runs_code_is_refused(tmp_path: Path, config: str, reason: str) -> None:
    """The reason names the field; `check` reports it as well."""
    refusals = read_refusals(model(tmp_path, config))
    assert [reason in text for text in refusals] == [True]
    assert "RG410" in {finding.code for finding in check(tmp_path)}


@pytest.mark.parametrize("directory", ["", "1/", "7/", "01/"])
@pytest.mark.parametrize("file", ["libtriton_onnxruntime.so", "libtriton_python.so", "batchstrategy.so", "own.so"])
def test_library_in_a_model_is_refused(tmp_path: Path, directory: str, file: str) -> None:
    """Triton searches libraries in the version's and the model's directory first, and any that `runtime` names."""
    config = ONNX + ('runtime: "own.so"' if file == "own.so" else "")
    (reason,) = read_refusals(model(tmp_path, config, "m", f"{directory}{file}"))
    assert reason == f"m/{directory}{file} is a file that Triton would run as code"


def test_config_that_is_not_a_regular_file_is_not_opened(tmp_path: Path) -> None:
    """Reading a FIFO would wait forever."""
    directory = model(tmp_path, None)
    os.mkfifo(directory / "config.pbtxt")
    assert read_refusals(directory) == ("config.pbtxt is not a regular file",)


def test_config_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """The file is sparse."""
    directory = model(tmp_path)
    os.truncate(directory / "config.pbtxt", 2**30)
    assert read_refusals(directory) == ("config.pbtxt is larger than 64 MiB",)


def test_stub_in_a_model_is_refused(tmp_path: Path) -> None:
    """Triton's Python backend prefers it to its own."""
    (reason,) = read_refusals(model(tmp_path, ONNX, "m", "triton_python_backend_stub"))
    assert reason.startswith("m/triton_python_backend_stub is a file")


@pytest.mark.parametrize("config", ['backend: "python"', None])
def test_python_model_may_contain_code(tmp_path: Path, config: str | None) -> None:
    """It runs its code by design."""
    text = None if config is None else config + 'parameters { key: "EXECUTION_ENV_PATH" }'
    assert read_refusals(model(tmp_path, text, "m", "1/model.py", "triton_python_backend_stub")) == ()
