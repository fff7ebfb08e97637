"""The models of an ensemble's steps beside it: as staged, else as published, by links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import PublishError
from repogen.repository.stage import stage_dependencies

if TYPE_CHECKING:
    from pathlib import Path


def model(directory: Path, text: str) -> Path:
    """Write a model of one version."""
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(text)
    (directory / "1" / "model.onnx").write_text(text)
    return directory


def test_a_published_one_is_linked(tmp_path: Path) -> None:
    """Nothing is copied, and the published files stay what they are."""
    published = model(tmp_path / "real" / "m", "published")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    linked = tmp_path / "private" / "m" / "1" / "model.onnx"
    assert linked.stat().st_ino == (published / "1" / "model.onnx").stat().st_ino


def test_a_staged_one_is_what_is_tested(tmp_path: Path) -> None:
    """A dry run publishes nothing."""
    model(tmp_path / "real" / "m", "published")
    staged = model(tmp_path / "private" / "m", "staged")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert (staged / "config.pbtxt").read_text() == "staged"


def test_what_a_publish_leaves_of_a_staged_one_is_replaced(tmp_path: Path) -> None:
    """Its version was moved into the repository, its config may still lie here."""
    model(tmp_path / "real" / "m", "published")
    (tmp_path / "private" / "m").mkdir(parents=True)
    (tmp_path / "private" / "m" / "config.pbtxt").write_text("left")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert (tmp_path / "private" / "m" / "config.pbtxt").read_text() == "published"


def test_one_that_is_nowhere_is_told(tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(PublishError, match=r"m is a step of an ensemble and is not in .*real yet") as refused:
        stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert "--model" in refused.value.hint
