"""Corrections of config.pbtxt: which text they change, and that the corrected model has no such finding."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

from repogen.api.check import check
from repogen.check.checker import Selection
from repogen.check.fix import FixedFile, _reason_to_skip, fix, fixable, write
from repogen.cli.group import main
from repogen.errors import PublishError
from repogen.reporting.text import text_diff
from repogen.targets import DEFAULT_RELEASE
from repogen.triton_config.text.parse import parse
from tests.support import graphs
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from repogen.check.fix import FixReport

KEY, NEW_KEY = 'key: "intra_op_num_threads"', 'key: "intra_op_thread_count"'
TWO = 'value { string_value: "2" }'


def fixed(repository: Path, config: str, *, unsafe: bool = False) -> str:
    """Return the corrected text of a config; the file itself must stay as it is."""
    path = repository / "m" / "config.pbtxt"
    path.write_bytes(config.encode())
    report = fix_all(repository, unsafe=unsafe)
    assert path.read_bytes() == config.encode()
    (file,) = report.files
    return file.after


def fix_all(repository: Path, *, unsafe: bool = False) -> FixReport:
    """Correct everything."""
    return fix([repository], DEFAULT_RELEASE, Selection(), unsafe=unsafe)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('name: "m"', 'name: "other" # ours'),
        ("data_type: TYPE_FP32 dims: [ 4 ]", "data_type: TYPE_INT64 dims: [ 4 ]"),
        ("data_type: TYPE_FP32 dims: [ 4 ]", "dims: [ 4 ]"),
        ("dims: [ 3 ]", "dims: [ 4 ]"),
        ("dims: [ 3 ]", "dims: [ -1, 3 ]"),
        ("dims: [ 3 ]", "dims: 4"),
        ("dims: [ 3 ]", "dims: 4 dims: 4"),
        ("dims: [ 3 ]", "dims: 4, dims: 4;"),
        ('backend: "onnxruntime"', 'platform: "onnxruntime_onnx"'),
        ('backend: "onnxruntime"\n', 'platform: "onnxruntime_onnx" # old\nbackend: "onnxruntime"\n'),
        ('backend: "onnxruntime"', 'platform: "onnx"'),
        ('name: "m"', '\N{BYTE ORDER MARK}name: "m"'),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }',
            'input [ { name: "x" data_type: TYPE_FP64 dims: 5 } ]',
        ),
        ("max_batch_size: 8", "max_batch_size: 8 # \N{SNOWMAN}\r"),
    ],
)
def test_safe_fix(repository: Path, before: str, after: str) -> None:
    """The corrected config has no finding; every comment and every other line stays."""
    config = CONFIG.replace(before, after)
    assert config != CONFIG
    if "SNOWMAN" in after or after.endswith("\r"):
        config = config.replace("[ 3 ]", "[ 4 ]")
    text = fixed(repository, config)
    (repository / "m" / "config.pbtxt").write_bytes(text.encode())
    assert check(repository) == []
    assert [line.partition("#")[2] for line in config.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in text.splitlines() if "#" in line
    ]
    changed = set(after.strip("\N{BYTE ORDER MARK}").splitlines()) | set(before.splitlines())
    unchanged_lines = [line for line in config.splitlines() if not any(part.strip() in line for part in changed)]
    assert all(line in text.splitlines() for line in unchanged_lines if "[ 4 ]" not in line)


def test_only_the_wrong_field_changes(repository: Path) -> None:
    """Layout, comments and the order of fields stay."""
    config = """\
# Ours.
max_batch_size: 8
output [
  {
    dims: [ 7 ]   # why
    name: "y" # the name
    data_type: TYPE_FP32
  }
]
input { name: "x", data_type: TYPE_FP32, dims: [ 4 ] }
backend: "onnxruntime"
name: 'n'
"""
    assert fixed(repository, config) == config.replace("[ 7 ]", "[ 3 ]").replace("'n'", '"m"')


def test_input_that_is_not_declared(repository: Path) -> None:
    """It is added after the last one."""
    nodes = [helper.make_node("Add", ["x", "z"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["y"])]
    inputs = [graphs.value("x", ["N", 4]), graphs.value("z", ["N", 4])]
    model = graphs.model(nodes, inputs, [graphs.value("y", ["N", 3])], w=graphs.WEIGHT)
    onnx.save_model(model, repository / "m" / "1" / "model.onnx")
    assert [finding.code for finding in check(repository)] == ["RG202"]
    text = fixed(repository, CONFIG)
    assert 'input {\n  name: "z"\n  data_type: TYPE_FP32\n  dims: [ 4 ]\n}' in text
    (repository / "m" / "config.pbtxt").write_text(text)
    assert check(repository) == []


def test_input_with_a_wrong_name(repository: Path) -> None:
    """A second input is not added: the model would still be rejected."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace('"x"', '"X"'))
    assert [(finding.code, finding.hint) for finding in check(repository)] == [("RG201", "did you mean 'x'?")]
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace('"x"', '"image"'))
    missing, wrong = check(repository)
    assert (wrong.code, wrong.hint) == ("RG201", "the graph has 'x'")
    assert (missing.code, missing.hint) == ("RG202", "declare it, or rename 'image', which is not in the graph")
    assert fixable([wrong, missing]) == ()


def test_names_in_a_graph_are_quoted(repository: Path) -> None:
    """The name of an input of somebody else's graph does not become a field of the user's config."""
    name = 'z" data_type: TYPE_FP32 dims: [ 4 ] }\nparameters { key: "EXECUTION_ENV_PATH" }\ninput { name: "q\\'
    node = helper.make_node("Add", ["x", name], ["s"])
    last = helper.make_node("MatMul", ["s", "w"], ["y"])
    inputs = [graphs.value("x", ["N", 4]), graphs.value(name, ["N", 4])]
    graph = graphs.model([node, last], inputs, [graphs.value("y", ["N", 3])], w=graphs.WEIGHT)
    onnx.save_model(graph, repository / "m" / "1" / "model.onnx")
    config = parse(fixed(repository, CONFIG), "fixed")
    assert [tensor.name for tensor in config.input] == ["x", name]
    assert not config.parameters


@pytest.mark.parametrize("name", ['a" backend: "python', "a\nb", "a\\"])
def test_name_of_a_directory_is_quoted(repository: Path, name: str) -> None:
    """As above; a name that is not UTF-8 has no correction."""
    (repository / "m").rename(repository / name)
    findings = check(repository, target=DEFAULT_RELEASE)
    corrections = [finding.fix for finding in findings if finding.code == "RG101"]
    assert [parse(text, "fix").name for text in corrections] == [name]
    (repository / name).rename(repository / "\udcff")
    assert [finding.fix for finding in check(repository) if finding.code == "RG101"] == [""]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('backend: "onnxruntime"', 'backend: "onnxruntme"', 'backend: "onnxruntime"'),
        ('backend: "onnxruntime"', 'backend: "onnxruntim"\nplatform: "onnxruntime_onnx"',
         'name: "m"\nbackend: "onnxruntime"\nmax_batch_size'),
        ("max_batch_size: 8", f"max_batch_size: 8\nparameters {{ {KEY} {TWO} }}", f"parameters {{ {NEW_KEY} {TWO} }}"),
        ("max_batch_size: 8", f"max_batch_size: 8\nparameters [ {{ {TWO} {KEY} }} ]",
         f"parameters [ {{ {TWO} {NEW_KEY} }} ]"),
    ],
)  # fmt: skip
def test_guesses_need_unsafe(repository: Path, before: str, after: str, expected: str) -> None:
    """A guess is not applied without --unsafe-fixes."""
    config = CONFIG.replace(before, after)
    (repository / "m" / "config.pbtxt").write_text(config)
    assert fix_all(repository).files == ()
    assert expected in fixed(repository, config, unsafe=True)


def test_files_that_must_not_be_changed(repository: Path, tmp_path: Path) -> None:
    """A config that repogen wrote, and one behind a link."""
    wrong = CONFIG.replace("[ 3 ]", "[ 4 ]")
    for path in (repository / "m" / "config.pbtxt", repository / "m" / "1" / "config.pbtxt"):
        path.write_text(wrong)
    add_model(repository, "n", wrong.replace('"m"', '"n"'))
    (repository / "n" / "config.pbtxt").rename(tmp_path / "n.pbtxt")
    (repository / "n" / "config.pbtxt").symlink_to(tmp_path / "n.pbtxt")
    report = fix_all(repository)
    assert report.files == ()
    assert [reason for _, reason in report.skipped] == [
        "`repogen build` wrote it: change the spec, and build again",
        "it is a symlink",
    ]
    findings = report.remaining.findings
    assert "safe" in {finding.applicability for finding in findings}
    assert fixable(findings) == ()
    assert "can be fixed" not in CliRunner().invoke(main, ["check", str(repository)]).output


def test_number_of_findings_that_can_be_fixed(repository: Path) -> None:
    """It is the last line."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))
    result = CliRunner().invoke(main, ["check", str(repository)])
    assert result.output.endswith("\n1 can be fixed with `--fix`; `--diff` shows how\n")


def test_versions_that_contradict_each_other(repository: Path) -> None:
    """Two served versions with different graphs: the file stays as it is."""
    config = CONFIG.replace("[ 4 ]", "[ 9 ]") + "version_policy { all { } }\n"
    add_model(repository, "m", config, 2)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    wide = graphs.model(
        [node], [graphs.value("x", ["N", 5])], [graphs.value("y", ["N", 3])], w=np.zeros((5, 3), np.float32)
    )
    onnx.save_model(wide, repository / "m" / "2" / "model.onnx")
    report = fix_all(repository)
    assert report.files == ()
    assert len(report.remaining.findings) == 2


def test_write_is_atomic(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changed in the meantime is kept; no temporary file is left; the mode stays."""
    path = repository / "m" / "config.pbtxt"
    path.write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))
    path.chmod(0o640)
    report = fix_all(repository)
    path.write_text("theirs")
    with pytest.raises(PublishError, match="changed in the meantime"):
        write(report.files)
    assert path.read_text() == "theirs"
    path.write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))
    write(report.files)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (CONFIG, 0o640)
    path.write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(PublishError, match="No space left"):
        write(report.files)
    assert sorted(entry.name for entry in repository.iterdir()) == ["m"]


def test_link_that_replaces_a_model_is_not_followed(repository: Path, tmp_path: Path) -> None:
    """Another model has the same config, and is not one of those to correct."""
    before = CONFIG.replace("[ 3 ]", "[ 4 ]")
    (repository / "m" / "config.pbtxt").write_text(before)
    report = fix_all(repository)
    (repository / "m").rename(tmp_path / "other")
    (repository / "m").symlink_to(tmp_path / "other")
    with pytest.raises(PublishError, match="cannot be corrected"):
        write(report.files)
    assert (tmp_path / "other" / "config.pbtxt").read_text() == before


def test_repository_behind_a_link_of_another_user(repository: Path, tmp_path: Path) -> None:
    """It could lead to another repository of this user."""
    before = CONFIG.replace("[ 3 ]", "[ 4 ]")
    (repository / "m" / "config.pbtxt").write_text(before)
    (tmp_path / "link").symlink_to(repository)
    os.chown(tmp_path / "link", 65534, -1, follow_symlinks=False)
    report = fix_all(repository)
    assert report.files
    assert fix_all(tmp_path / "link").files == ()
    with pytest.raises(PublishError, match="link is a symlink of another user"):
        write([replace(file, path=tmp_path / "link" / "m" / "config.pbtxt") for file in report.files])
    assert (repository / "m" / "config.pbtxt").read_text() == before


def test_many_corrections_of_one_file(repository: Path) -> None:
    """Each is applied at its place, and the text is read once for all of them."""
    wrong = "".join(f'parameters {{ key: "intra_op_thread_coun{n}" {TWO} }}\n' for n in range(900))
    after = fixed(repository, CONFIG.replace("dims: [ 3 ]", "dims: [ 4 ]") + wrong, unsafe=True)
    assert after == CONFIG + f"parameters {{ {NEW_KEY} {TWO} }}\n" * 900


def test_findings_of_two_versions_are_counted(repository: Path) -> None:
    """One correction can remove several findings: `check` reports it for each served version."""
    shutil.copytree(repository / "m" / "1", repository / "m" / "2")
    policy = "version_policy { all {} }\n"
    (repository / "m" / "config.pbtxt").write_text(policy + CONFIG.replace("dims: [ 3 ]", "dims: [ 4 ]"))
    findings = check(repository)
    report = fix_all(repository)
    assert len(findings) == 2
    assert ([file.fixes for file in report.files], report.remaining.findings) == ([2], ())


def test_huge_copy_of_the_config_is_not_read(tmp_path: Path) -> None:
    """The version's config.pbtxt shows whether repogen wrote the model's; it can have any size."""
    add_model(tmp_path, "m", CONFIG.replace("dims: [ 3 ]", "dims: [ 4 ]"))
    with (tmp_path / "m" / "1" / "config.pbtxt").open("wb") as copy:
        copy.truncate(2**42)
    report = fix_all(tmp_path)
    assert ([file.fixes for file in report.files], report.skipped) == ([1], ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\nd\n", "a\nB\nc\nD\nd\n"),
        ("a\nb\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("a\nb", "a\nc"),
        ("a\na\na\n", "a\na\n"),
        ("a\nb\n", "c\n"),
    ],
)
def test_diff_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """It has one hunk: difflib needs more than ten minutes for 1 MB of comments with 200 corrections."""
    monkeypatch.setattr("repogen.reporting.text.MAX_COMPARED", 0)
    monkeypatch.setattr("repogen.reporting.text.difflib", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.pbtxt").write_text(before, encoding="utf-8")
    patch = text_diff(FixedFile(tmp_path / "config.pbtxt", before, after, 1))
    assert patch.count("@@ -") == 1
    subprocess.run(["git", "apply", "-p0", "--unidiff-zero", "-"], input=patch, text=True, check=True)  # noqa: S607 - in PATH
    assert (tmp_path / "config.pbtxt").read_text(encoding="utf-8") == after


def test_diff_of_a_hostile_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch must not change another file, and lines end only with a line feed, as in git."""
    monkeypatch.chdir(tmp_path)
    name = "y\n--- Makefile\n+++ Makefile\n@@ -1 +1,2 @@\n all:\n+\tid\n"
    patch = text_diff(FixedFile(tmp_path / name / "config.pbtxt", "# a\u2028b\nc: 1\n", "# a\u2028b\nc: 2\n", 1))
    assert patch.split("\n")[2:] == ["@@ -1,2 +1,2 @@", " # a\u2028b", "-c: 1", "+c: 2", ""]


def test_mode_of_another_file_is_not_changed(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who can write to the repository replaces the new file by a link."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))
    private = tmp_path / "private"
    private.touch(0o600)
    report = fix_all(repository)
    make = tempfile.mkstemp

    def replaced(**options: Any) -> tuple[int, str]:
        descriptor, name = make(**options)
        Path(name).unlink()
        Path(name).symlink_to(private)
        return descriptor, name

    monkeypatch.setattr(tempfile, "mkstemp", replaced)
    write(report.files)
    assert private.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("part", ["m", "m/config.pbtxt"])
def test_private_file_behind_a_link_is_not_copied(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, *, is_before: bool
) -> None:
    """Another user replaces the config, or its directory, with a link after it was found to be a regular file."""
    wrong = CONFIG.replace("[ 3 ]", "[ 4 ]")
    config = repository / "m" / "config.pbtxt"
    config.write_text(wrong)
    private = tmp_path / "private"
    private.mkdir()
    (private / "config.pbtxt").write_text(f"{wrong}# secret\n")
    skip = _reason_to_skip

    def replaced(path: Path) -> str:
        reason = skip(path) if is_before else ""
        if not (repository / part).is_symlink():
            (repository / part).rename(tmp_path / "moved")
            (repository / part).symlink_to(private if part == "m" else private / "config.pbtxt")
            os.chown(repository / part, 65534, -1, follow_symlinks=False)
        return reason or skip(path)

    monkeypatch.setattr(sys.modules[fix.__module__], "_reason_to_skip", replaced)
    report = fix_all(repository)
    assert report.files == ()
    assert "secret" not in str(report)
    ((_, reason),) = report.skipped
    assert re.search("symbolic link|Not a directory|is a symlink", reason)


def test_config_that_all_users_can_write_to(repository: Path) -> None:
    """The corrected file belongs to this user, so its mode does not let others write to it."""
    config = repository / "m" / "config.pbtxt"
    config.write_text(CONFIG.replace("[ 3 ]", "[ 4 ]"))
    config.chmod(0o4777)
    write(fix_all(repository).files)
    assert config.stat().st_mode & 0o7777 == 0o775


def test_unsafe_fixes_alone_is_a_usage_error(repository: Path) -> None:
    """The option would have no effect."""
    result = CliRunner().invoke(main, ["check", str(repository), "--unsafe-fixes"])
    assert (result.exit_code, "--unsafe-fixes requires --fix or --diff" in result.output) == (2, True)
