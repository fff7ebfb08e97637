"""A release that the command line asks for takes the place of the spec's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.spec.load import load_spec
from repogen.spec.problems import SpecProblemsError

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
target: {triton: "24.10"}
models:
  m:
    source: {factory: models.py:build}
    inputs: {x: {dtype: float32, shape: [4]}}
    outputs: [y]
    export: {opset: OPSET}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec for release 24.10 with an opset that older releases cannot load."""
    (tmp_path / "models.py").write_text("", encoding="utf-8")
    path = tmp_path / "repogen.yaml"
    path.write_text(SPEC.replace("OPSET", "20"), encoding="utf-8")
    return path


def test_the_asked_for_release_wins(spec: Path) -> None:
    """Without a wish it is the spec's."""
    assert load_spec(spec).release == "24.10"
    assert load_spec(spec, "24.12").release == "24.12"


def test_rules_are_those_of_the_asked_for_release(spec: Path) -> None:
    """What the spec's own release loads may be too new for the one that was asked for."""
    with pytest.raises(SpecProblemsError, match=r"opset 20 is too new: Triton 23\.08"):
        load_spec(spec, "23.08")


def test_an_unknown_release_is_named(spec: Path) -> None:
    """The flag is named, and releases that there are."""
    with pytest.raises(SpecError, match=r'--target: "1\.0" is not a Triton release that') as told:
        load_spec(spec, "1.0")
    assert "newest: " in told.value.hint
