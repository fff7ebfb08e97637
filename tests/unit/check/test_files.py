"""Findings about names and files that lead elsewhere, cannot be read, or were never verified."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.api.check import check
from repogen.errors import SpecError
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.triton_config.rules.findings import Finding

EXAMPLE = Path(__file__).parents[3] / "model_repository"
NOBODY = 65534


def messages(repository: Path) -> list[tuple[str, str, str]]:
    """Return code, severity and message of each finding."""
    return [(finding.code, finding.severity, finding.message) for finding in check(repository)]


@pytest.mark.parametrize("name", ["../../other.onnx", "../2/model.onnx", "/../../other.onnx"])
def test_model_file_outside_of_the_version(repository: Path, name: str) -> None:
    """Triton appends the name to the version's directory and follows the dots, so the file is loaded."""
    model = add_model(repository, "m2", f'default_model_filename: "{name}"\n' + CONFIG.replace('"m"', '"m2"'), 1, 2)
    shutil.copy(model / "1" / "model.onnx", repository / "other.onnx")
    shutil.copytree(model / "2", model / "3")
    findings = messages(model)
    assert ("RG404", "error", f"'{name}' is outside the directory of version 3") in findings
    assert {finding.line for finding in check(model)} == {1}


def test_absolute_model_file(repository: Path) -> None:
    """Triton appends it as well: the file at that path of the machine is not loaded."""
    model = repository / "m"
    (model / "config.pbtxt").write_text(f'default_model_filename: "{model}/1/model.onnx"\n' + CONFIG)
    assert [(code, severity) for code, severity, _ in messages(repository)] == [("RG404", "error")]
    (model / "config.pbtxt").write_text('default_model_filename: "/model.onnx"\n' + CONFIG)
    assert messages(repository) == []


def test_files_outside_of_the_model(repository: Path) -> None:
    """A label file next to the model's directory exists, and is read by Triton."""
    (repository / "labels.txt").write_text("a\n")
    text = CONFIG.replace('name: "y"', 'name: "y" label_filename: "../labels.txt"')
    text += 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/../env" } }\n'
    text += 'model_operations { op_library_filename: "/opt/ops.so" op_library_filename: "libops.so" }\n'
    (repository / "m" / "config.pbtxt").write_text(text)
    assert [entry for entry in messages(repository) if entry[0] == "RG405"] == [
        ("RG405", "error", "'../labels.txt' is outside the model's directory"),
        ("RG405", "error", "'../env' is outside the model's directory"),
        ("RG405", "warning", "'/opt/ops.so' is a path on the server: Triton loads the library there as native code"),
    ]


@pytest.mark.parametrize("file", ["config.pbtxt", "1/model.onnx", "1/manifest.json", "labels.txt"])
def test_fifo_in_place_of_a_file(repository: Path, file: str) -> None:
    """Reading it would wait for a writer forever."""
    (repository / "m" / "config.pbtxt").write_text(
        CONFIG.replace('name: "y"', 'name: "y" label_filename: "labels.txt"')
    )
    (repository / "m" / "labels.txt").write_text("a\nb\nc\n")
    (repository / "m" / file).unlink(missing_ok=True)
    os.mkfifo(repository / "m" / file)
    assert [code for code, _, message in messages(repository) if "regular file" in message] != []


def test_long_names_and_loops(repository: Path) -> None:
    """A config may contain any name."""
    (repository / "m" / "loop.txt").symlink_to("loop.txt")
    for name in ("l" * 300, "loop.txt"):
        text = CONFIG.replace('name: "y"', f'name: "y" label_filename: "{name}"')
        (repository / "m" / "config.pbtxt").write_text(f'default_model_filename: "{name}"\n' + text)
        assert {code for code, severity, _ in messages(repository) if severity == "error"} >= {"RG404", "RG405"}


@pytest.mark.parametrize("kind", ["loop", "long"])
def test_repository_that_cannot_be_opened(tmp_path: Path, kind: str) -> None:
    """It is an error of the command line, not a crash."""
    path = tmp_path / {"loop": "loop", "long": "r" * 300}[kind]
    if kind == "loop":
        path.symlink_to("loop")
    with pytest.raises(SpecError) as caught:
        check(path)
    assert caught.value.code == "check.path"


@contextmanager
def unprivileged() -> Iterator[Path]:
    """Yield a directory for tests as a user to whom permissions apply."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        try:
            yield Path(directory)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)


@pytest.mark.parametrize("hidden", ["m", "m/1", "m/warmup", "."])
def test_unreadable_directory(hidden: str) -> None:
    """It is a finding of its model, and the other models are still checked; an unreadable root is an error."""
    with unprivileged() as root:
        repository = root / "r"
        add_model(repository, "m", CONFIG)
        (repository / "m" / "warmup").mkdir()
        add_model(repository, "other", CONFIG)
        (repository / hidden).chmod(0)
        if os.getuid() == 0:
            os.seteuid(NOBODY)
        if hidden == ".":
            with pytest.raises(SpecError, match="cannot be read: Permission denied"):
                check(repository)
        else:
            findings = messages(repository)
            assert ("RG101", "error") in [(code, severity) for code, severity, _ in findings]
            unreadable = [message for code, _, message in findings if code == "RG401"]
            assert unreadable == [f"{repository / hidden} cannot be read: Permission denied"]
        if os.getuid() == 0:
            os.seteuid(0)
        (repository / hidden).chmod(0o755)


def test_proc_as_a_repository() -> None:
    """Entries that vanish or cannot be read do not crash it."""
    assert {finding.code for finding in check("/proc")} <= {"RG401", "RG402", "RG403", "RG404", "RG406"}


def test_names_that_differ_by_case(repository: Path) -> None:
    """A copy on another system contains one of them."""
    shutil.copy(repository / "m" / "1" / "model.onnx", repository / "m" / "1" / "Model.onnx")
    assert messages(repository) == [
        ("RG408", "warning", "Model.onnx and model.onnx differ only in case"),
    ]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "is a web page"),
        (b"\n <HTML lang=en>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer"),
    ],
)
def test_something_else_saved_as_a_model(repository: Path, content: bytes, kind: str) -> None:
    """The message says what the file is."""
    (repository / "m" / "1" / "model.onnx").write_bytes(content)
    ((code, severity, message),) = messages(repository)
    assert (code, severity) == ("RG210", "error")
    assert f"model.onnx {kind}" in message


def files_of(tmp_path: Path, exporter: str) -> Path:
    """Return a version that repogen built, as if by ``exporter``."""
    shutil.copytree(EXAMPLE, tmp_path / "built")
    version = tmp_path / "built" / "digits_cnn" / "1"
    text = (version / "manifest.json").read_text(encoding="utf-8")
    if exporter == "python":
        text = text.replace('"exporter": "dynamo"', '"exporter": "python"').replace('"model.onnx"', '"model.py"')
        (version / "model.onnx").rename(version / "model.py")
    (version / "manifest.json").write_text(text, encoding="utf-8")
    return version


def unlisted(version: Path) -> list[tuple[str, str]]:
    """Return severity and message of the findings of RG407."""
    findings: list[Finding] = check(version.parents[1])
    return [(finding.severity, finding.message) for finding in findings if finding.code == "RG407"]


def test_files_that_the_manifest_does_not_list(tmp_path: Path) -> None:
    """ONNX Runtime does not load them."""
    version = files_of(tmp_path, "dynamo")
    assert unlisted(version) == []
    (version / "unconfirmed").touch()
    (version / "extra.py").touch()
    (version / "sub").mkdir()
    (version / "link").symlink_to("model.onnx")
    message = "version 1: {} is not listed in the manifest".format
    assert unlisted(version) == [("warning", message(name)) for name in ("extra.py", "link", "sub/")]


def test_modules_that_the_manifest_does_not_list(tmp_path: Path) -> None:
    """The Python backend would import them instead of an installed package."""
    version = files_of(tmp_path, "python")
    (version / "numpy").mkdir()
    (version / "json.py").touch()
    (version / "notes.txt").touch()
    (version / "__pycache__").mkdir()
    assert sorted(unlisted(version)) == [
        ("error", "version 1: json.py is not listed in the manifest, and model.py could import it"),
        ("error", "version 1: numpy/ is not listed in the manifest, and model.py could import it"),
        ("warning", "version 1: __pycache__/ is not listed in the manifest"),
        ("warning", "version 1: notes.txt is not listed in the manifest"),
    ]


def test_models_whose_names_differ_only_in_case(repository: Path) -> None:
    """A copy on macOS or Windows contains only one of them; a single model is not compared with the others."""
    add_model(repository, "M", CONFIG.replace('"m"', '"M"'))
    assert ("RG408", "warning", "M and m differ only in case") in messages(repository)
    assert [code for code, _, _ in messages(repository / "M")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_config_that_is_a_link_of_another_user(repository: Path, tmp_path: Path) -> None:
    """Words of a private file would be in messages; the model that the link leads to is checked as before."""
    (tmp_path / "private").write_text("hunter2-password\n")
    for name, target in (("a", tmp_path / "private"), ("b", repository / "m" / "config.pbtxt")):
        model = add_model(repository, name, CONFIG)
        (model / "config.pbtxt").unlink()
        (model / "config.pbtxt").symlink_to(target)
        os.chown(model / "config.pbtxt", 65534, -1, follow_symlinks=False)
    findings = check(repository)
    assert [Path(finding.path).parts[-2:] for finding in findings if finding.code == "RG005"] == [
        ("a", "config.pbtxt"),
        ("b", "config.pbtxt"),
    ]
    assert not any("hunter2" in f"{finding.message} {finding.hint}" for finding in findings)
    assert not any(f"{repository}/m/" in finding.path for finding in findings)
