"""A repository's findings: its layout, its graphs, and which of them are asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import repogen
from repogen.check.checker import Selection, check
from repogen.errors import ExitCode, SpecError
from tests.support import graphs
from tests.unit.check.conftest import CONFIG, add_model, told

EXAMPLE = Path(__file__).parents[3] / "model_repository"


@pytest.mark.parametrize("name", [".git", "notes", ".m.tmp"])
def test_a_directory_that_is_no_model_takes_the_server_down(repository: Path, name: str) -> None:
    """Files are ignored."""
    (repository / "README.md").touch()
    (repository / name).mkdir()
    assert told(repository) == [("RG401", name, 0)]


@pytest.mark.parametrize(
    ("name", "severity", "fix"),
    [
        ("02", "warning", "2"),
        ("0x1", "warning", ""),
        ("0", "warning", "1"),
        ("1.old", "warning", ""),
        ("2.tmp", "error", "2"),
        ("99999999999999999999", "error", ""),
    ],
)
def test_a_version_s_name(repository: Path, name: str, severity: str, fix: str) -> None:
    """It is a number from 1, written as one."""
    shutil.copytree(repository / "m" / "1", repository / "m" / name)
    (finding,) = check(repository)
    assert (finding.code, finding.severity, finding.fix) == ("RG403", severity, fix)


def test_names_that_are_no_number_are_no_versions(repository: Path) -> None:
    """Triton ignores them."""
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "v2").mkdir()
    assert check(repository) == []


def test_the_versions_that_are_served_hold_a_model(repository: Path) -> None:
    """The newest by default, though an older one is good; all of them where the policy says so."""
    (repository / "m" / "2").mkdir()
    assert told(repository) == [("RG404", "m/2", 0)]
    config = repository / "m" / "config.pbtxt"
    config.write_text(CONFIG + "version_policy { specific { versions: [ 1 ] } }\n", encoding="utf-8")
    assert check(repository) == []
    config.write_text(CONFIG + "version_policy { all { } }\n", encoding="utf-8")
    assert told(repository) == [("RG404", "m/2", 0)]


def test_a_model_without_versions(repository: Path) -> None:
    """It has nothing to serve."""
    shutil.rmtree(repository / "m" / "1")
    assert told(repository) == [("RG404", "m", 0)]


def test_a_model_without_a_config_is_a_guess(repository: Path) -> None:
    """Triton takes it, and any dynamic first axis for a batch."""
    (repository / "m" / "config.pbtxt").unlink()
    (finding,) = check(repository)
    assert (finding.code, finding.severity) == ("RG402", "warning")


def test_files_that_the_config_names(repository: Path) -> None:
    """Labels lie beside the config, warmup data in warmup/."""
    text = CONFIG.replace("dims: [ 3 ]", 'dims: [ 3 ] label_filename: "labels.txt"')
    text += (
        'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 4 ] '
        'input_data_file: "rows" } } }\n'
    )
    (repository / "m" / "config.pbtxt").write_text(text, encoding="utf-8")
    assert told(repository) == [("RG405", "m/config.pbtxt", 5), ("RG405", "m/config.pbtxt", 6)]
    (repository / "m" / "labels.txt").touch()
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "warmup" / "rows").write_bytes(bytes(15))
    (finding,) = check(repository)
    assert finding.message == "'warmup/rows' has 15 bytes, but its dims and data type require 16"
    (repository / "m" / "warmup" / "rows").write_bytes(bytes(16))
    assert check(repository) == []


def test_links_that_leave_the_repository(repository: Path, tmp_path: Path) -> None:
    """They work here and nowhere else; links within it are fine."""
    model = repository / "m" / "1" / "model.onnx"
    shutil.move(model, tmp_path / "weights.onnx")
    model.symlink_to(tmp_path / "weights.onnx")
    assert told(repository) == [("RG406", "m/1/model.onnx", 0)]
    model.unlink()
    shutil.move(tmp_path / "weights.onnx", repository / "m" / "weights.onnx")
    model.symlink_to("../weights.onnx")
    assert check(repository) == []


@pytest.mark.parametrize("content", [b"", b"no graph", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_model_file_that_is_no_graph(repository: Path, content: bytes) -> None:
    """Whatever onnx.load would say to it."""
    (repository / "m" / "1" / "model.onnx").write_bytes(content)
    assert told(repository) == [("RG210", "m/1/model.onnx", 0)]


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "absent", ""])
def test_external_data_lies_beside_the_model(repository: Path, location: str) -> None:
    """Wherever else it leads, it is said; it is not opened."""
    graphs.with_external(repository / "m" / "1" / "model.onnx", location)
    assert told(repository) == [("RG211", "m/1/model.onnx", 0)]


def test_every_version_is_held_against_the_config(repository: Path) -> None:
    """A config belongs to the model: a version that does not fit it is found before it is served."""
    add_model(repository, "n", CONFIG.replace('"m"', '"n"'), 1, 2)
    graph = graphs.model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [graphs.value("x", ["N", 4], TensorProto.DOUBLE)],
        [graphs.value("y", ["N", 4], TensorProto.DOUBLE)],
        opset=22,
        ir=11,
    )
    onnx.save_model(graph, repository / "n" / "1" / "model.onnx")
    found = check(repository)
    assert sorted(finding.code for finding in found) == ["RG205", "RG205", "RG207", "RG301", "RG302"]
    assert all(finding.message.endswith("(version 1, which is not served now)") for finding in found)
    assert {finding.severity for finding in found} == {"warning"}
    with (repository / "n" / "config.pbtxt").open("a", encoding="utf-8") as stream:
        stream.write("version_policy { all { } }\n")
    assert [finding.severity for finding in check(repository)] == ["error"] * 5
    assert check(repository, release="25.10", selection=Selection(select=("RG3",))) == []


def test_files_are_held_against_the_manifest(tmp_path: Path) -> None:
    """A changed byte is found, and so is a manifest that is none."""
    repository = tmp_path / "repository"
    shutil.copytree(EXAMPLE, repository)
    assert check(repository) == []
    version = repository / "digits_cnn" / "1"
    (version / "golden.npz").write_bytes(b"")
    (finding,) = check(repository)
    assert (finding.code, finding.message.partition(",")[0]) == ("RG407", "version 1: golden.npz has 0 bytes")
    (version / "manifest.json").write_text("{}", encoding="utf-8")
    assert [code for code, *_ in told(repository)] == ["RG407"]


def test_what_may_be_given(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository, a model, its config, a model file, several of them; each finding comes once."""
    bad = CONFIG.replace('name: "m"', 'name: "other"')
    add_model(repository, "n", bad)
    (repository / "junk").mkdir()
    assert [code for code, *_ in told(repository)] == ["RG401", "RG101"]
    for path in (repository / "n", repository / "n" / "config.pbtxt", repository / "n" / "1" / "model.onnx"):
        assert [finding.code for finding in check(path)] == ["RG101"]
    assert check(repository / "m") == []
    assert [finding.code for finding in check(repository / "n", repository, repository / "n" / "config.pbtxt")] == [
        "RG401",
        "RG101",
    ]
    monkeypatch.chdir(repository / "n")
    assert [finding.code for finding in check(".")] == ["RG101"]
    assert [finding.code for finding in repogen.check("config.pbtxt")] == ["RG101"]


def test_what_is_asked_for(repository: Path) -> None:
    """Codes or families, chosen or left out."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace('name: "m"', 'name: "o"').replace("[ 3 ]", "[ 4 ]"))

    def codes(**selection: tuple[str, ...]) -> list[str]:
        return [finding.code for finding in check(repository, selection=Selection(**selection))]

    assert codes() == ["RG101", "RG207"]
    assert codes(select=("RG1",)) == ["RG101"]
    assert codes(ignore=("RG101",)) == ["RG207"]
    assert codes(select=("RG",), ignore=("RG2", "RG1")) == []


@pytest.mark.parametrize(
    ("path", "release", "select", "code"),
    [("absent", "24.10", (), "check.path"), (".", "24.99", (), "check.release"), (".", "24.10", ("X1",), "check.code")],
)
def test_bad_questions(path: str, release: str, select: tuple[str, ...], code: str) -> None:
    """They are exit code 2, and say what there is."""
    with pytest.raises(SpecError) as caught:
        check(path, release=release, selection=Selection(select))
    assert (caught.value.code, caught.value.exit_code) == (code, ExitCode.SPEC)
