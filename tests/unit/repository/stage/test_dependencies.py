"""Staging of the models that an ensemble depends on."""

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


def test_published_model_is_linked(tmp_path: Path) -> None:
    """Nothing is copied, and the published files are unchanged."""
    published = model(tmp_path / "real" / "m", "published")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    linked = tmp_path / "private" / "m" / "1" / "model.onnx"
    assert linked.stat().st_ino == (published / "1" / "model.onnx").stat().st_ino


def test_staged_model_is_kept(tmp_path: Path) -> None:
    """A staged version is used rather than the published one, for example in a dry run."""
    model(tmp_path / "real" / "m", "published")
    staged = model(tmp_path / "private" / "m", "staged")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert (staged / "config.pbtxt").read_text() == "staged"


def test_rest_of_a_published_version_is_replaced(tmp_path: Path) -> None:
    """Its version was moved into the repository, its config may still be here."""
    model(tmp_path / "real" / "m", "published")
    (tmp_path / "private" / "m").mkdir(parents=True)
    (tmp_path / "private" / "m" / "config.pbtxt").write_text("left")

    stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert (tmp_path / "private" / "m" / "config.pbtxt").read_text() == "published"


def test_missing_model_is_an_error(tmp_path: Path) -> None:
    """The hint names the command."""
    with pytest.raises(PublishError, match=r"m is a step of an ensemble and is not in .*real yet") as refused:
        stage_dependencies(tmp_path / "private", tmp_path / "real", ["m"])

    assert "--model" in refused.value.hint
