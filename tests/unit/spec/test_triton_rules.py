"""Well-formed ``triton:`` sections that Triton would reject, with position, key path and text of the problem."""

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
# Four lines each: name, section, position and key of the problem, text of the problem.
BLOCKS = Path(__file__).with_name("triton_refused.txt").read_text(encoding="utf-8").split("\n\n")
REJECTED = {block.splitlines()[0]: block.splitlines()[1:] for block in BLOCKS}


@pytest.mark.parametrize("name", REJECTED)
def test_section_is_rejected_at_its_position(name: str, problems: Problems) -> None:
    """Each mistake gives exactly one problem, with the code of the rule of `repogen check`."""
    triton, location, text = REJECTED[name]
    position, key = location.split()
    assert problems(SPEC % triton) == [(position, f"models.m.triton.{key}", text)]


def test_all_problems_are_reported_at_once(problems: Problems) -> None:
    """One run reports all problems of a section."""
    sequence = "sequence_batching: {state: [{input_name: x, output_name: q}]}"
    triton = f"parameters: {{execution_mode: 2}}, input: {{z: {{}}}}, {sequence}"
    keys = [key.removeprefix("models.m.triton.") for _, key, _ in problems(SPEC % triton)]
    assert keys == ["parameters.execution_mode", "input.z", "sequence_batching.state[0].output_name"]


def test_files_are_relative_to_the_spec(folder: Path) -> None:
    """The section lists the files that a build depends on."""
    (folder / "classes.txt").write_text("cat\n")
    (folder / "repogen.yaml").write_text(SPEC % "output: {y: {label_filename: classes.txt}}")
    triton = load_spec(folder / "repogen.yaml").models["m"].triton
    assert triton.files == {("output", "y", "label_filename"): "classes.txt"}


def test_warmups_of_many_inputs(problems: Callable[[str | bytes], list[tuple[str, str, str]]]) -> None:
    """Each warmup has a value for each input: a spec of 100 KB needed gigabytes."""
    inputs = ", ".join(f"x{number}: {{}}" for number in range(250))
    triton = f"{{input: {{{inputs}}}, model_warmup: [{', '.join(['{}'] * 250)}]}}"
    all_problems = problems(f'models: {{m: {{source: {{factory: "models.py:e"}}, triton: {triton}}}}}')
    assert any("250 warmups for 250 inputs are more" in what for _, _, what in all_problems)
