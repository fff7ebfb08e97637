"""Well-formed ``triton:`` sections that Triton would refuse, each with its place, its key path and its words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

SPEC = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}, start: {dtype: float32, shape: [batch, 1]}}
    outputs: [y, after]
    dims: {batch: {max: 8}}
    triton: {%s}
"""
# Four lines each: a name, what the section says, the problem's place and key, its words.
BLOCKS = Path(__file__).with_name("triton_refused.txt").read_text(encoding="utf-8").split("\n\n")
REFUSED = {block.splitlines()[0]: block.splitlines()[1:] for block in BLOCKS}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_at_its_place_and_nothing_else_is(name: str, problems: Problems) -> None:
    """Each mistake gives exactly one problem, which names the rule that `repogen check` has of it."""
    triton, at, words = REFUSED[name]
    place, key = at.split()
    assert problems(SPEC % triton) == [(place, f"models.m.triton.{key}", words)]


def test_all_are_told_at_once(problems: Problems) -> None:
    """Of one section, in one go."""
    sequence = "sequence_batching: {state: [{input_name: x, output_name: q}]}"
    triton = f"parameters: {{execution_mode: 2}}, input: {{z: {{}}}}, {sequence}"
    keys = [key.removeprefix("models.m.triton.") for _, key, _ in problems(SPEC % triton)]
    assert keys == ["parameters.execution_mode", "input.z", "sequence_batching.state[0].output_name"]


def test_files_that_config_pbtxt_names_are_the_specs(folder: Path) -> None:
    """Found from the spec's directory, and known to whoever asks what a build depends on."""
    (folder / "classes.txt").write_text("cat\n")
    (folder / "repogen.yaml").write_text(SPEC % "output: {y: {label_filename: classes.txt}}")
    triton = load_spec(folder / "repogen.yaml").models["m"].triton
    assert triton.files == {("output", "y", "label_filename"): "classes.txt"}
