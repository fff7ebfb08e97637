"""The release of the command line replaces that of the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.spec.load import load_spec
from repogen.spec.problems import SpecProblemsError
from repogen.targets import newest_target

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
    """Return a spec for release 24.10 with an opset that older releases cannot load."""
    (tmp_path / "models.py").write_text("", encoding="utf-8")
    path = tmp_path / "repogen.yaml"
    path.write_text(SPEC.replace("OPSET", "20"), encoding="utf-8")
    return path


def test_release_option_replaces_the_spec_release(spec: Path) -> None:
    """Without the option the spec's release is used."""
    assert load_spec(spec).release == "24.10"
    assert load_spec(spec, "24.12").release == "24.12"


def test_rules_use_the_release_option(spec: Path) -> None:
    """An opset that the spec's release loads may be too new for the requested release."""
    with pytest.raises(SpecProblemsError, match=r"opset 20 is too new: Triton 23\.08"):
        load_spec(spec, "23.08")


def test_unknown_release_is_rejected(spec: Path) -> None:
    """The error names the flag and the known releases."""
    with pytest.raises(SpecError, match=r'--target: "1\.0" is not a Triton release that') as caught:
        load_spec(spec, "1.0")
    assert "newest: " in caught.value.hint


def test_release_newer_than_the_table_is_judged_by_the_newest(spec: Path) -> None:
    """It is a note, not an error; month 13 does not exist."""
    loaded = load_spec(spec, "98.11")
    assert loaded.release == "98.11"
    (note,) = loaded.notes
    assert note.startswith(
        f"Triton 98.11 is newer than the releases that this version of repogen knows; the limits of {newest()}"
    )
    with pytest.raises(SpecError, match=r'"98\.13" is not a Triton release'):
        load_spec(spec, "98.13")


def test_spec_without_a_target_has_a_note(spec: Path) -> None:
    """The default is explicit; a target in the spec or on the command line needs no note."""
    assert load_spec(spec).notes == ()
    spec.write_text(spec.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    (note,) = load_spec(spec).notes
    assert note.startswith("the spec has no target: the default is Triton 24.10")
    assert f'target: {{triton: "{newest()}"}}' in note
    assert load_spec(spec, "24.12").notes == ()


def newest() -> str:
    """Return the newest release of the table."""
    return newest_target().release
