"""`repogen diff` compares versions of one repository and of two, also foreign and damaged ones."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import repogen
from repogen.cli.group import main
from repogen.errors import RepogenError
from tests.support.graphs import WEIGHT, matmul, model, value
from tests.support.published import Publisher, contents
from tests.support.simulated_registry import SimulatedRegistry
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def three(publisher: Publisher) -> Publisher:
    """Return a repository with a graph, other weights, and another graph with other inputs."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    relu = model(nodes, [value("x", ["N", 4])], [value("y", ["N", 3])], opset=18, w2=np.ones(1, np.float32), w=WEIGHT)
    publisher.publish(weights=matmul().SerializeToString())
    publisher.publish(weights=matmul(w=WEIGHT + 1).SerializeToString())
    publisher.publish(weights=relu.SerializeToString(), shape=("batch", 9), policy="latest { num_versions: 1 }")
    return publisher


def test_weights(three: Publisher) -> None:
    """Only the weights differ; nothing is changed."""
    before = contents(three.repository)
    report = repogen.diff("m", 1, 2, repository=three.repository)
    assert report.weights is not None
    assert (report.weights.same, report.weights.changed, report.weights.unchanged) == (0, ("w",), False)
    assert (report.signature, report.operators, report.config, report.facts, report.identical) == (
        (),
        (),
        (),
        (),
        False,
    )
    assert [(file.path, file.before == file.after) for file in report.files] == [("model.onnx", True)]
    assert contents(three.repository) == before


def test_everything(three: Publisher) -> None:
    """Without numbers, the newest version is compared with the one before it."""
    report = repogen.diff("m", repository=three.repository)
    assert (report.before.version, report.after.version) == (2, 3)
    assert report.signature is not None
    assert report.signature[0] == "input 'x' was float32 [-1, 4], is float32 [-1, 9]"
    assert report.weights is not None
    assert (report.weights.changed, report.weights.added, report.weights.removed) == (("w",), ("w2",), ())
    assert [(count.name, count.before, count.after) for count in report.operators] == [("Relu", 0, 1)]
    assert report.nodes == (1, 2)
    assert [(change.name, change.before, change.after) for change in report.facts] == [("opset ai.onnx", "17", "18")]
    assert next((metric.name, metric.before, metric.after) for metric in report.metrics) == ("parity cases", 1.0, 1.0)
    assert [line for line in report.config or () if line.startswith("+") and "policy" in line] == [
        "+version_policy: { latest { num_versions: 1 } }"
    ]
    report = repogen.diff("m", 3, 1, repository=three.repository)
    assert report.weights is not None
    assert (report.weights.same, report.weights.removed) == (1, ("w2",))


def test_renamed_weights(publisher: Publisher) -> None:
    """Tensors with the same values under another name are the same weights."""
    publisher.publish(weights=matmul().SerializeToString())
    proto = matmul()
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "other"
    publisher.publish(weights=proto.SerializeToString())
    weights = repogen.diff("m", repository=publisher.repository).weights
    assert weights is not None
    assert (weights.unchanged, weights.same, weights.renamed) == (True, 0, 1)


def test_two_repositories(three: Publisher, tmp_path: Path) -> None:
    """A copy is identical; without numbers, the newest versions of both are compared."""
    other = tmp_path / "other"
    repogen.publish("m", 1, source=three.repository, target=other)
    report = repogen.diff("m", 1, repository=three.repository, against=other)
    assert (report.identical, report.after.repository, report.files) == (True, other, ())
    assert repogen.diff("m", repository=three.repository, against=other).before.version == 3
    text = CliRunner().invoke(main, ["diff", "m", "1", "--repository", str(three.repository), "--against", str(other)])
    assert text.output.splitlines()[:2] == [
        f"m: version 1 of {three.repository} -> version 1 of {other}",
        "  all files are the same, according to the manifests",
    ]
    assert re.search(rf"^metric +version 1 of {three.repository}  version 1 of {other}$", text.output, re.MULTILINE)


def test_foreign_and_damaged_versions(three: Publisher) -> None:
    """What can be compared is compared, and a note has the rest."""
    directory = three.repository / "m"
    (directory / "1" / "manifest.json").unlink()
    (directory / "2" / "model.onnx").write_bytes(b"<html>")
    report = repogen.diff("m", 1, 3, repository=three.repository)
    assert (report.notes, report.nodes) == (("version 1: repogen did not build it: it has no manifest.json",), (1, 2))
    report = repogen.diff("m", 2, 3, repository=three.repository)
    assert report.notes == ("version 2: model.onnx is a web page; the graphs were not compared",)
    assert (report.weights, report.nodes, len(report.signature or ())) == (None, None, 2)
    for number in ("2", "3"):
        (directory / number / "config.pbtxt").write_text("x\n" * 3000 + number)
    config = repogen.diff("m", 2, 3, repository=three.repository).config
    assert config == ("more than 2,000 lines, so the differences are not listed",)


def test_adopted_version_has_the_config_from_before(three: Publisher) -> None:
    """A version that existed before ``build --adopt`` has no config.pbtxt of its own."""
    model = three.repository / "m"
    for name in ("manifest.json", "config.pbtxt"):
        (model / "1" / name).unlink()
    (model / "config.pbtxt.adopted").write_text('name: "m" backend: "onnxruntime"\n')
    config = repogen.diff("m", 1, 3, repository=three.repository).config
    assert config is not None
    assert config[:2] == ("--- config.pbtxt.adopted of version 1", "+++ config.pbtxt of version 3")
    assert '-name: "m" backend: "onnxruntime"' in config
    (model / "config.pbtxt.adopted").unlink()
    assert repogen.diff("m", 1, 3, repository=three.repository).config == ()


def test_config_that_was_not_compared_is_not_the_same(three: Publisher) -> None:
    """A config.pbtxt that is too large has no difference, and the summary does not claim that it is the same."""
    with (three.repository / "m" / "2" / "config.pbtxt").open("r+b") as stream:
        stream.truncate(2**40)
    report = repogen.diff("m", 1, 2, repository=three.repository)
    assert report.config is None
    text = CliRunner().invoke(main, ["diff", "m", "1", "2", "--repository", str(three.repository)]).output
    assert "version 2: config.pbtxt was not compared: m/2/config.pbtxt: is larger than 1 MiB" in text
    assert "config.pbtxt: the same" not in text


def test_errors(three: Publisher, tmp_path: Path) -> None:
    """A version, model or repository that does not exist; and a model with one version."""
    three.publish("single")
    cases = [
        (("m", 9), "repository.no-such-version"),
        (("m", 1, 9), "repository.no-such-version"),
        (("single",), "repository.no-such-version"),
        (("none",), "repository.no-such-model"),
    ]
    for arguments, code in cases:
        with pytest.raises(RepogenError) as caught:
            repogen.diff(*arguments, repository=three.repository)  # type: ignore[arg-type]
        assert (caught.value.code, int(caught.value.exit_code)) == (code, 2)
    with pytest.raises(RepogenError, match="is not a directory"):
        repogen.diff("m", repository=three.repository, against=tmp_path / "none")


def test_newest_version_is_not_compared_with_itself(three: Publisher) -> None:
    """Unless both are passed."""
    with pytest.raises(RepogenError, match="version 3 of m is the newest one") as caught:
        repogen.diff("m", 3, repository=three.repository)
    assert caught.value.code == "repository.no-such-version"
    assert repogen.diff("m", 3, 3, repository=three.repository).identical


@pytest.mark.parametrize("name", ["m/1", "m"])
def test_link_of_another_user(three: Publisher, tmp_path: Path, name: str) -> None:
    """The texts of a private model would be in a comment on a pull request."""
    path = three.repository / name
    path.rename(tmp_path / "private")
    path.symlink_to(tmp_path / "private")
    os.chown(path, 65534, -1, follow_symlinks=False)
    with pytest.raises(RepogenError) as caught:
        repogen.diff("m", repository=three.repository)
    assert caught.value.code == "foreign-link"


def test_file_that_is_a_link_to_another_file(three: Publisher, tmp_path: Path) -> None:
    """It is not compared, whoever made the link."""
    path = three.repository / "m" / "3" / "config.pbtxt"
    path.write_text(path.read_text() + "# SECRET\n")
    assert "SECRET" in str(repogen.diff("m", repository=three.repository))
    path.rename(tmp_path / "private")
    path.symlink_to(tmp_path / "private")
    report = repogen.diff("m", repository=three.repository)
    assert "SECRET" not in str(report)
    assert any("leads out of" in note for note in report.notes)


@pytest.mark.parametrize("name", ["config.pbtxt", "model.onnx", "manifest.json"])
def test_version_that_another_user_replaces(
    three: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is a link to private files when a file in it is opened."""
    version = three.repository / "m" / "3"
    shutil.copytree(three.repository / "m" / "1", tmp_path / "private")
    swap_when_opened(monkeypatch, version / name, version, tmp_path / "private")
    assert any("leads out of" in note for note in repogen.diff("m", repository=three.repository).notes)


def test_command(three: Publisher) -> None:
    """Text, JSON and Markdown; what comes from the files is escaped."""
    arguments = ["diff", "m", "--repository", str(three.repository)]
    text = CliRunner().invoke(main, arguments).output
    assert text.startswith("m: version 2 -> version 3\n  inputs and outputs: differ\n  input 'x' was float32 [-1, 4]")
    assert "  weights: 0 the same, 1 changed (w), 1 new (w2)\n" in text
    assert "\noperator  version 2  version 3\n" in text
    assert json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)["nodes"] == [1, 2]
    proto = matmul()
    proto.graph.node[0].op_type = "<b>|\x1b[2J\n"
    three.publish(weights=proto.SerializeToString())
    for option in ([], ["--markdown"]):
        output = CliRunner().invoke(main, [*arguments, *option]).output
        assert "\x1b" not in output
    assert output.startswith("### repogen diff: m: version 3 -&gt; version 4\n")
    assert "&lt;b&gt;&#124;" in output
    assert CliRunner().invoke(main, [*arguments, "--markdown", "--json"]).exit_code == 2


def test_unknown_signature_is_not_the_same(three: Publisher) -> None:
    """Without a manifest, the summary does not claim that inputs and outputs are the same."""
    (three.repository / "m" / "1" / "manifest.json").unlink()
    assert repogen.diff("m", 1, 2, repository=three.repository).signature is None
    arguments = ["diff", "m", "1", "2", "--repository", str(three.repository)]
    assert "signature" not in CliRunner().invoke(main, arguments).output
    assert json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)["signature"] is None


@pytest.fixture
def registry(three: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedRegistry:
    """Return the registry of the server in MLFLOW_TRACKING_URI: versions 1 and 2, the first is the champion."""
    simulated = SimulatedRegistry(tmp_path / "registry")
    simulated.register(three.repository / "m" / "1", "champion")
    simulated.register(three.repository / "m" / "2")
    simulated.register_foreign("m", "foreign")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example.com")
    monkeypatch.setattr("repogen.registry.mlflow.access.open_registry", lambda _tracking: simulated)
    return simulated


@pytest.mark.usefixtures("registry")
def test_registered_version(three: Publisher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A registered version is compared with the newest version of the repository, or with the one that is specified."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    report = repogen.diff("m", repository=three.repository, against="models:/m@champion")
    assert (str(report.before.repository), report.before.version) == ("models:/m/1", 1)
    assert (report.after.repository, report.after.version) == (three.repository, 3)
    assert report.signature is not None
    assert len(report.signature) > 0
    command = ["diff", "m", "2", "--repository", str(three.repository), "--against", "models:/m/2"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("m: models:/m/2 -> version 2 of ")
    assert re.search(r"^metric +models:/m/2 +version 2 of ", result.output, re.MULTILINE)
    assert "all files are the same, according to the manifests" in result.output
    assert "| metric | models:/m/2 | version 2 of " in CliRunner().invoke(main, [*command, "--markdown"]).output
    document = json.loads(CliRunner().invoke(main, [*command, "--json"]).output)
    assert (document["before"]["repository"], document["identical"]) == ("models:/m/2", True)
    assert not list(scratch.iterdir()), "the download is removed"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("uri", "code", "words"),
    [
        ("models:/other@champion", "repository.model-uri", "is not a version of m"),
        ("models:/m", "repository.model-uri", "is not a version of m"),
        ("models:/m@foreign", "repository.model-uri", "was not registered by repogen"),
        ("models:/m@challenger", "promotion.no-such-alias", "does not have models:/m@challenger"),
        ("models:/m/9", "promotion.no-such-version", "does not have models:/m/9"),
    ],
)
def test_invalid_registered_version(uri: str, code: str, words: str, three: Publisher) -> None:
    """Each mistake is an error with its own code."""
    with pytest.raises(RepogenError, match=words) as raised:
        repogen.diff("m", repository=three.repository, against=uri)
    assert raised.value.code == code
    result = CliRunner().invoke(main, ["diff", "m", "--repository", str(three.repository), "--against", uri])
    assert result.exit_code == 2


def test_registered_version_with_two_versions(three: Publisher) -> None:
    """Only one version of the repository can be compared with it."""
    with pytest.raises(RepogenError, match="only one version of the repository"):
        repogen.diff("m", 1, 2, repository=three.repository, against="models:/m@champion")
