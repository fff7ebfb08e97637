"""Findings about a repository's layout and graphs, and the selection of findings."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import onnx
import pytest
from onnx import TensorProto, helper

import repogen
from repogen.api.check import check
from repogen.check import checker
from repogen.check.config_text import read_config
from repogen.errors import ExitCode, SpecError
from repogen.files import work_limit
from repogen.onnx_graph import external_data
from repogen.onnx_graph.facts import read_graph
from tests.support import graphs
from tests.unit.check.conftest import CONFIG, add_model, findings_in

EXAMPLE = Path(__file__).parents[3] / "model_repository"


@pytest.mark.parametrize("name", [".git", "notes", ".m.tmp"])
def test_directory_that_is_not_a_model(repository: Path, name: str) -> None:
    """Triton fails to start; files are ignored."""
    (repository / "README.md").touch()
    (repository / name).mkdir()
    assert findings_in(repository) == [("RG401", name, 0)]


@pytest.mark.parametrize(
    ("name", "severity", "fix"),
    [
        ("02", "warning", "2"),
        ("0x1", "warning", ""),
        ("0", "warning", "1"),
        ("1.old", "warning", ""),
        ("2.tmp", "error", "2"),
        ("+3", "error", "3"),
        (" 4", "error", "4"),
        ("+1", "warning", ""),
        ("-2", "warning", ""),
        ("-0", "warning", "0"),
        ("99999999999999999999", "error", ""),
    ],
)
def test_name_of_a_version(repository: Path, name: str, severity: str, fix: str) -> None:
    """It must be a plain number from 1."""
    shutil.copytree(repository / "m" / "1", repository / "m" / name)
    (finding,) = check(repository)
    assert (finding.code, finding.severity, finding.fix) == ("RG403", severity, fix)


def test_names_that_are_not_numbers_are_ignored(repository: Path) -> None:
    """Triton ignores them as well."""
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "v2").mkdir()
    assert check(repository) == []


def test_served_versions_need_a_model(repository: Path) -> None:
    """By default the newest version, even if an older one is complete; otherwise those of the policy."""
    (repository / "m" / "2").mkdir()
    assert findings_in(repository) == [("RG404", "m/2", 0)]
    config = repository / "m" / "config.pbtxt"
    config.write_text(CONFIG + "version_policy { specific { versions: [ 1 ] } }\n", encoding="utf-8")
    assert check(repository) == []
    config.write_text(CONFIG + "version_policy { all { } }\n", encoding="utf-8")
    assert findings_in(repository) == [("RG404", "m/2", 0)]


def test_model_without_versions(repository: Path) -> None:
    """Triton has nothing to serve."""
    shutil.rmtree(repository / "m" / "1")
    assert findings_in(repository) == [("RG404", "m", 0)]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ((), "create 1/ with the model file"),
        (("v1",), "rename v1 to 1"),
        (("v02",), "rename v02 to 2"),
        (("latest",), "rename latest to 1"),
        (("v1", "v2"), "create 1/ with the model file"),
    ],
)
def test_renamed_version(repository: Path, names: tuple[str, ...], hint: str) -> None:
    """The hint names the only directory with a model file."""
    model = repository / "m"
    (model / "assets").mkdir()
    version = (model / "1").rename(model / "old")
    for name in names:
        shutil.copytree(version, model / name)
    shutil.rmtree(version)
    (finding,) = check(repository)
    assert (finding.code, finding.hint) == ("RG404", hint)


@pytest.mark.parametrize("path", ["", "config.pbtxt", "v1", "v1/config.pbtxt", "v1/model.onnx"])
def test_renamed_version_that_repogen_built(tmp_path: Path, path: str) -> None:
    """Its copy of config.pbtxt does not make it a model, and the model's directory a repository."""
    shutil.copytree(EXAMPLE, tmp_path / "repository")
    model = tmp_path / "repository" / "digits_cnn"
    (model / "1").rename(model / "v1")
    findings = check(model / path)
    assert [(finding.code, finding.path, finding.hint) for finding in findings] == [
        ("RG404", str(model), "rename v1 to 1")
    ]


def test_model_without_config(repository: Path) -> None:
    """Triton treats a dynamic first axis as a batch."""
    (repository / "m" / "config.pbtxt").unlink()
    (finding,) = check(repository)
    assert (finding.code, finding.severity) == ("RG402", "warning")


def test_files_that_the_config_names(repository: Path) -> None:
    """Label files are next to the config, warmup data is in warmup/."""
    text = CONFIG.replace("dims: [ 3 ]", 'dims: [ 3 ] label_filename: "labels.txt"')
    text += (
        'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 4 ] '
        'input_data_file: "rows" } } }\n'
    )
    (repository / "m" / "config.pbtxt").write_text(text, encoding="utf-8")
    assert findings_in(repository) == [("RG405", "m/config.pbtxt", 5), ("RG405", "m/config.pbtxt", 6)]
    (repository / "m" / "labels.txt").touch()
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "warmup" / "rows").write_bytes(bytes(15))
    (finding,) = check(repository)
    assert finding.message == "'warmup/rows' has 15 bytes, but its dims and data type require 16"
    (repository / "m" / "warmup" / "rows").write_bytes(bytes(16))
    assert check(repository) == []


def test_links_that_leave_the_repository(repository: Path, tmp_path: Path) -> None:
    """They do not work in a copy; links within the repository are valid."""
    model = repository / "m" / "1" / "model.onnx"
    shutil.move(model, tmp_path / "weights.onnx")
    model.symlink_to(tmp_path / "weights.onnx")
    assert findings_in(repository) == [("RG406", "m/1/model.onnx", 0)]
    model.unlink()
    shutil.move(tmp_path / "weights.onnx", repository / "m" / "weights.onnx")
    model.symlink_to("../weights.onnx")
    assert check(repository) == []


@pytest.mark.parametrize("content", [b"", b"no graph", b"version https://git-lfs.github.com/spec/v1\n"])
def test_model_file_that_is_not_a_graph(repository: Path, content: bytes) -> None:
    """Also a file that onnx.load accepts."""
    (repository / "m" / "1" / "model.onnx").write_bytes(content)
    assert findings_in(repository) == [("RG210", "m/1/model.onnx", 0)]


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "absent", ""])
def test_external_data_must_be_next_to_the_model(repository: Path, location: str) -> None:
    """Any other location is reported, and not opened."""
    graphs.with_external(repository / "m" / "1" / "model.onnx", location)
    assert findings_in(repository) == [("RG211", "m/1/model.onnx", 0)]


def test_every_version_is_compared_with_the_config(repository: Path) -> None:
    """A config belongs to the model: a version that does not match is reported before it is served."""
    add_model(repository, "n", CONFIG.replace('"m"', '"n"'), 1, 2)
    graph = graphs.model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [graphs.value("x", ["N", 4], TensorProto.DOUBLE)],
        [graphs.value("y", ["N", 4], TensorProto.DOUBLE)],
        opset=22,
        ir=11,
    )
    onnx.save_model(graph, repository / "n" / "1" / "model.onnx")
    findings = check(repository)
    assert sorted(finding.code for finding in findings) == ["RG205", "RG205", "RG207", "RG301", "RG302"]
    assert all(finding.message.endswith("(version 1, which is not served now)") for finding in findings)
    assert {finding.severity for finding in findings} == {"warning"}
    with (repository / "n" / "config.pbtxt").open("a", encoding="utf-8") as stream:
        stream.write("version_policy { all { } }\n")
    assert [finding.severity for finding in check(repository)] == ["error"] * 5
    assert check(repository, target="25.10", select=("RG3",)) == []


def test_files_are_compared_with_the_manifest(tmp_path: Path) -> None:
    """A changed byte and an invalid manifest are reported."""
    repository = tmp_path / "repository"
    shutil.copytree(EXAMPLE, repository)
    assert check(repository) == []
    version = repository / "digits_cnn" / "1"
    (version / "golden.npz").write_bytes(b"")
    (finding,) = check(repository)
    assert (finding.code, finding.message.partition(",")[0]) == ("RG407", "version 1: golden.npz has 0 bytes")
    (version / "manifest.json").write_text("{}", encoding="utf-8")
    assert [code for code, *_ in findings_in(repository)] == ["RG407"]


def test_kinds_of_paths(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository, a model, its config, a model file, or several; each finding is reported once."""
    bad = CONFIG.replace('name: "m"', 'name: "other"')
    add_model(repository, "n", bad)
    (repository / "junk").mkdir()
    assert [code for code, *_ in findings_in(repository)] == ["RG401", "RG101"]
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


@pytest.mark.parametrize("path", ["1", "1/config.pbtxt", "1/model.onnx", "config.pbtxt", ""])
def test_files_of_a_version_that_repogen_built_are_those_of_its_model(tmp_path: Path, path: str) -> None:
    """Its copy of config.pbtxt does not make the version a model."""
    shutil.copytree(EXAMPLE, tmp_path / "repository")
    model = tmp_path / "repository" / "digits_cnn"
    assert check(model / path) == []
    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "digits_cnn"', 'name: "other"'), encoding="utf-8")
    assert {finding.code for finding in check(model / path)} == {"RG101"}


@pytest.mark.parametrize("path", ["empty", "notes/README.md", "repository/m/../../empty"])
def test_nothing_to_check(repository: Path, path: str) -> None:
    """A path without a model is an error: otherwise a mistyped path would always pass."""
    (repository.parent / "empty").mkdir()
    (repository.parent / "notes").mkdir()
    (repository.parent / "notes" / "README.md").touch()
    for paths in ([repository.parent / path], [repository, repository.parent / path]):
        with pytest.raises(SpecError, match="contains no model to check") as caught:
            check(*paths)
        assert (caught.value.code, caught.value.exit_code) == ("check.nothing", ExitCode.SPEC)


@pytest.mark.parametrize("path", ["m/1", "m/1/model.onnx", "m", "m/../m", "."])
@pytest.mark.parametrize("config", [True, False])
def test_number_of_models(repository: Path, path: str, *, config: bool) -> None:
    """A version's directory is the model, with its own config or without one."""
    add_model(repository, "n", CONFIG.replace('"m"', '"n"'))
    if not config:
        (repository / "m" / "config.pbtxt").unlink()
    report = checker.check(repository / path)
    assert report.models == (2 if path == "." else 1)
    assert [finding.code for finding in report.findings] == ([] if config else ["RG402"])


def test_path_with_dots(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the config names are in the model's directory, however the user names it."""
    config = CONFIG.replace("dims: [ 3 ]", 'dims: [ 3 ] label_filename: "labels.txt"')
    (repository / "m" / "config.pbtxt").write_text(config, encoding="utf-8")
    (repository / "m" / "labels.txt").write_text("a\nb\nc\n", encoding="utf-8")
    monkeypatch.chdir(repository / "m" / "1")
    for path in ("../..", "..", ".", "../../m/../m", "../config.pbtxt"):
        assert check(path) == []


def test_link_to_a_repository(repository: Path, tmp_path: Path) -> None:
    """After a link, `..` is the parent of its target, as for the kernel."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(repository / "m")
    assert checker.check(tmp_path / "elsewhere" / "link" / "..").models == 1


def test_selection(repository: Path) -> None:
    """Codes or families are selected or ignored."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace('name: "m"', 'name: "o"').replace("[ 3 ]", "[ 4 ]"))

    def codes(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> list[str]:
        return [finding.code for finding in check(repository, select=select, ignore=ignore)]

    assert codes() == ["RG101", "RG207"]
    assert codes(select=("RG1",)) == ["RG101"]
    assert codes(ignore=("RG101",)) == ["RG207"]
    assert codes(select=("RG",), ignore=("RG2", "RG1")) == []


@pytest.mark.parametrize(
    ("path", "release", "select", "code"),
    [("absent", "24.10", (), "check.path"), (".", "24.99", (), "check.release"), (".", "24.10", ("X1",), "check.code")],
)
def test_invalid_arguments(path: str, release: str, select: tuple[str, ...], code: str) -> None:
    """They are exit code 2."""
    with pytest.raises(SpecError) as caught:
        check(path, target=release, select=select)
    assert (caught.value.code, caught.value.exit_code) == (code, ExitCode.SPEC)


def test_directory_of_a_project_is_not_a_repository(tmp_path: Path) -> None:
    """The error names the repository in it, not each of its other directories."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    add_model(project / "model_repository", "m", CONFIG)
    with pytest.raises(SpecError, match="contains no models, but model_repository does") as caught:
        check(project)
    assert (caught.value.code, caught.value.hint.split()[-1]) == ("check.path", str(project / "model_repository"))
    assert check(project / "model_repository") == []


@pytest.mark.parametrize(
    ("backend", "file"),
    [
        ('backend: "tensorrt"', "model.plan"),
        ('platform: "tensorrt_plan"', "model.plan"),
        ('backend: "openvino"', "model.xml"),
        ('platform: "tensorflow_graphdef"', "model.graphdef"),
    ],
)
def test_every_backend_needs_its_model_file(tmp_path: Path, backend: str, file: str) -> None:
    """model.onnx is not a plan of TensorRT."""
    model = add_model(tmp_path, "m", CONFIG.replace('backend: "onnxruntime"', backend))
    (finding,) = check(model)
    assert (finding.code, finding.message) == ("RG404", f"version 1 is served, but has no {file}")
    (model / "1" / file).touch()
    assert check(model) == []


def test_release_newer_than_the_table_is_a_warning(repository: Path) -> None:
    """The model is judged by the newest release."""
    (finding,) = check(repository, target="98.11")
    assert (finding.code, finding.severity, finding.path) == ("RG303", "warning", str(repository))
    with pytest.raises(SpecError, match=r"release '98\.13' is unknown"):
        check(repository, target="98.13")


@pytest.mark.parametrize("dims", [[2**62] * 300, [2**40, 3], [-5]])
def test_external_data_of_any_declared_size(repository: Path, dims: list[int]) -> None:
    """A product with more digits than Python writes is reported like any other."""
    path = repository / "m" / "1" / "model.onnx"
    graphs.with_external(path)
    stored = onnx.load(path, load_external_data=False)
    stored.graph.initializer[0].dims[:] = dims
    del stored.graph.initializer[0].external_data[1:]  # keep the location only
    onnx.save_model(stored, path)
    expected = [("RG211", "m/1/model.onnx", 0)] if dims[0] > 0 else []
    assert findings_in(repository) == expected


@pytest.mark.parametrize("place", ["m", "elsewhere"])
def test_external_data_behind_a_link(repository: Path, tmp_path: Path, place: str) -> None:
    """A stock Triton follows it; repogen does not start one with such a model."""
    model = repository / "m" / "1" / "model.onnx"
    graphs.with_external(model, "link")
    target = (repository if place == "m" else tmp_path) / place / "weights.data"
    target.parent.mkdir(exist_ok=True)
    model.with_name("model.onnx.data").rename(target)
    model.with_name("link").symlink_to(target)
    (finding,) = (each for each in check(repository) if each.code == "RG211")
    assert (finding.severity, finding.security) == ("warning", True)
    assert "the external data of model.onnx is a symlink that leads out of its directory: 'link'" in finding.message


def test_external_data_with_a_long_name(repository: Path) -> None:
    """A name that is longer than a file name is a finding."""
    graphs.with_external(repository / "m" / "1" / "model.onnx", "x" * 300)
    assert findings_in(repository) == [("RG211", "m/1/model.onnx", 0)]


def test_warmup_data_of_any_declared_size(repository: Path) -> None:
    """A product with more digits than Python writes is reported like any other."""
    dims = ", ".join([str(2**62)] * 300)
    text = CONFIG + (
        'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 '
        f'dims: [ {dims} ] input_data_file: "rows" }} }} }}\n'
    )
    (repository / "m" / "config.pbtxt").write_text(text, encoding="utf-8")
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "warmup" / "rows").touch()
    assert ("RG405", "m/config.pbtxt", 6) in findings_in(repository)


def test_manifest_with_a_nul_in_a_path(tmp_path: Path) -> None:
    """A path that no file can have is a damaged manifest."""
    model = add_model(tmp_path, "m", CONFIG)
    record = {"path": "model.onnx", "sha256": "0" * 64, "size": 1}
    provenance = {
        **dict.fromkeys(("git_commit", "spec_sha256", "target", "exporter"), ""), "tools": {}, "fingerprint": {},
        **dict.fromkeys(("opset", "ir_version", "nodes_exported", "nodes_optimized", "parity_cases"), 0),
        **dict.fromkeys(("parity_max_abs_diff", "parity_max_rel_diff"), 0.0),
    }  # fmt: skip
    manifest = {
        "schema": 1, "model": "m", "max_batch_size": 0, "inputs": [], "outputs": [],
        "files": [record, {**record, "path": "a\0b"}], "provenance": provenance,
    }  # fmt: skip
    (model / "1" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (finding,) = check(tmp_path)
    assert (finding.code, "outside the version directory" in finding.message) == ("RG407", True)


def test_long_names_and_shapes_of_a_graph(repository: Path) -> None:
    """They would be in the message of each of thousands of findings, which took more memory than the machine has."""
    shapes: list[list[str | int]] = [["N", 4], ["n" * 10_001, 4], [1] * 1001]
    for name, shape in zip(("x" * 10_001, "x", "x"), shapes, strict=True):
        graph = graphs.matmul()
        graph.graph.input[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        onnx.save_model(graph, repository / "m" / "1" / "model.onnx")
        (finding,) = check(repository)
        assert (finding.code, finding.security, len(finding.message) < 200) == ("RG210", True, True)


def test_long_names_in_a_config(repository: Path) -> None:
    """A message has at most 2000 characters of them, because they may be in each of thousands of findings."""
    name = "a" * 50_000
    config = repository / "m" / "config.pbtxt"
    config.write_text(f'{CONFIG}input {{ name: "{name}" data_type: TYPE_FP32 dims: [ 4 ] }}', encoding="utf-8")
    assert [(finding.code, len(finding.message)) for finding in check(repository)] == [("RG201", 2001)]


@pytest.mark.parametrize("kind", ["tensors", "placeholders"])
def test_findings_of_one_rule_in_one_model_are_limited(tmp_path: Path, kind: str) -> None:
    """A config of 1 MB can have 350,000 placeholders: their findings needed minutes and gigabytes."""
    number = checker.MAX_OF_RULE + 500
    text = "input {}\n" * number if kind == "tensors" else f'metric_tags {{ key: "{"${}" * number}" value: "x" }}'
    add_model(tmp_path, "m", text)
    code = "RG105" if kind == "tensors" else "RG004"
    findings = [finding for finding in check(tmp_path) if finding.code == code]
    assert len(findings) == checker.MAX_OF_RULE + 1
    last = next(finding for finding in findings if "not listed" in finding.message)
    assert last.severity == findings[-1].severity
    assert last.path == str(tmp_path / "m")


def test_findings_of_a_check_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the models after the limit, each rule has one finding, so that errors still fail the command."""
    monkeypatch.setattr(checker, "_MAX_FINDINGS", 10)
    for name in ("a", "b"):
        add_model(tmp_path, name, "input {}\n" * 20)
    findings = check(tmp_path)
    of_second = [finding for finding in findings if finding.path.startswith(str(tmp_path / "b"))]
    assert len(findings) < 40
    assert {finding.severity for finding in of_second if finding.code == "RG105"} == {"error"}


def test_findings_that_are_not_selected_do_not_count(tmp_path: Path) -> None:
    """Otherwise ignored findings would take the place of others."""
    add_model(tmp_path, "m", "input {}\n" * (checker.MAX_OF_RULE + 1))
    selection = checker.Selection(select=("RG105",), per_path={"m/config.pbtxt": ("RG105",)}, root=tmp_path)
    assert checker.check(tmp_path, selection=selection).findings == ()


def test_versions_that_are_links_to_one_directory_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand links to a graph of 10 MB took hours."""
    directory = add_model(tmp_path, "m", CONFIG)
    for number in range(2, 6):
        (directory / str(number)).symlink_to("1")
    read = Mock(wraps=read_graph)
    monkeypatch.setattr(checker, "read_graph", read)
    check(tmp_path)
    read.assert_called_once_with(directory / "5" / "model.onnx")


def test_external_data_in_very_many_files(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each location is looked up: a file of 5 MB took minutes."""
    monkeypatch.setattr(external_data, "MAX_LOCATIONS", 0)
    graphs.with_external(repository / "m" / "1" / "model.onnx")
    (finding,) = check(repository)
    assert finding.code == "RG210"
    assert "external data in more than 0 files" in finding.message
    assert finding.security


@pytest.mark.parametrize("function", ["repogen.files.content.open_regular", "pathlib.Path.iterdir"])
def test_few_open_files_are_not_a_finding(repository: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Nor are they a model without versions, in which nothing would be found."""
    call = Path.iterdir

    def exhausted(path: Path) -> object:
        if path.is_relative_to(repository / "m"):
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return call(path)

    monkeypatch.setattr(function, exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        check(repository)


@pytest.mark.parametrize("function", ["read_config", "read_graph", "config_findings", "unexamined_code"])
def test_model_that_needs_too_much_work_is_a_finding(
    repository: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other models are checked, and a selection of rules does not hide that one was not."""
    add_model(repository, "n", CONFIG.replace("TYPE_FP32", "TYPE_FP16").replace('"m"', '"n"'))
    original = getattr(checker, function)

    def without_end(subject: object, *others: object) -> object:
        while "m" in {getattr(subject, "name", ""), *Path(str(subject)).parts}:
            pass
        return original(subject, *others)

    monkeypatch.setattr(work_limit, "_INTERVAL", 0.004)
    monkeypatch.setattr(checker, "work_limit", lambda subject, seconds=0.3: work_limit.work_limit(subject, seconds))
    monkeypatch.setattr(checker, function, without_end)
    findings = check(repository, select=["RG2"])
    assert {finding.code for finding in findings if Path(finding.path).parts[-2] == "n"} == {"RG205"}
    limits = [finding for finding in findings if finding.code == "RG401"]
    assert [finding.path for finding in limits] == ([] if function == "unexamined_code" else [str(repository / "m")])
    assert all(finding.severity == "error" for finding in limits)
    assert all("needs more than 0.3 s of processor time" in finding.message for finding in limits)


def test_config_of_links_is_read_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of many models to one file read a config of 1 MiB for each of them."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace("8", "-1"))
    (repository / "n").symlink_to("m")
    read = Mock(wraps=read_config)
    monkeypatch.setattr(checker, "read_config", read)
    paths = {Path(finding.path).parent.name for finding in check(repository) if finding.code == "RG103"}
    assert (paths, read.call_count) == ({"m", "n"}, 1)
