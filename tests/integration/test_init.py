"""From `repogen init` to a published model, with nothing written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse_file
from tests.support.text_classifier import write_text_classifier, write_text_encoder
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project


@pytest.mark.full
def test_text_classifier_from_hugging_face(tmp_path: Path, project_at: Callable[[Path], Project]) -> None:
    """Text in, label out, verified on a real Triton."""
    write_text_classifier(tmp_path / "mood")
    project = project_at(tmp_path)
    assert project.run("init", "--from", "mood", "--ensemble").returncode == 0
    run = project.run("build", "--json")
    assert run.returncode == 0, run.stderr
    statuses = {model["name"]: model["status"] for model in json.loads(run.stdout)["models"]}
    assert statuses == dict.fromkeys(("mood_tokenizer", "mood_encoder", "mood_labels", "mood"), "published")


@pytest.mark.full
def test_text_encoder_from_hugging_face(tmp_path: Path, project_at: Callable[[Path], Project]) -> None:
    """Text in, one vector per text out, verified on a real Triton."""
    write_text_encoder(tmp_path / "words")
    project = project_at(tmp_path)
    assert project.run("init", "--from", "words", "--ensemble").returncode == 0
    run = project.run("build", "--json")
    assert run.returncode == 0, run.stderr
    statuses = {model["name"]: model["status"] for model in json.loads(run.stdout)["models"]}
    assert statuses == dict.fromkeys(("words_tokenizer", "words_encoder", "words_pooling", "words"), "published")


@pytest.mark.full
def test_repository_is_adopted(tmp_path: Path, project_at: Callable[[Path], Project]) -> None:
    """The spec of an existing repository publishes the next version of its models."""
    add_model(tmp_path / "repo", "m", CONFIG, 1, 4)
    before = (tmp_path / "repo" / "m" / "config.pbtxt").read_bytes()
    project = project_at(tmp_path / "spec")
    project.directory.mkdir()
    assert project.run("init", "--from", "../repo").returncode == 0
    assert "publish.foreign-model" in project.run("build").stdout
    run = project.run("build", "--adopt", "m", "--json")
    assert json.loads(run.stdout)["models"][0]["version"] == 5
    assert (tmp_path / "repo" / "m" / "config.pbtxt.adopted").read_bytes() == before
    configs = [parse_file(tmp_path / "repo" / "m" / name, name) for name in ("config.pbtxt.adopted", "config.pbtxt")]
    configs[0].instance_group.add()  # a group that sets nothing: Triton chooses device and number, as without a group
    assert differences(*configs) == []
    assert sorted(path.name for path in (tmp_path / "repo" / "m").iterdir() if path.is_dir()) == ["1", "4", "5"]
    assert project.run("check", "../repo").returncode == 0
