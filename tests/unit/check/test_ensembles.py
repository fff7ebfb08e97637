"""An ensemble is compared with the models that its steps name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from repogen.api.check import check
from repogen.check.config_text import ConfigText, read_config
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from pathlib import Path

ENSEMBLE = """\
name: "e"
platform: "ensemble"
max_batch_size: 8
input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "out" data_type: TYPE_FP32 dims: [ 3 ] }
ensemble_scheduling {
  step [
    {
      model_name: "m"
      model_version: -1
      input_map { key: "x" value: "in" }
      output_map { key: "y" value: "out" }
    }
  ]
}
"""


def with_ensemble(repository: Path, text: str) -> Path:
    """Add the ensemble."""
    (repository / "e" / "1").mkdir(parents=True)
    (repository / "e" / "config.pbtxt").write_text(text, encoding="utf-8")
    return repository


def test_valid_ensemble_has_no_findings(repository: Path) -> None:
    """Its version directory is empty, as it should be."""
    assert check(with_ensemble(repository, ENSEMBLE)) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ('model_name: "m"', 'model_name: "k"', "RG501", 9),
        ("model_version: -1", "model_version: 7", "RG501", 10),
        ('key: "x"', 'key: "z"', "RG502", 11),
        ('key: "y"', 'key: "z"', "RG502", 12),
        ("TYPE_FP32 dims: [ 4 ]", "TYPE_FP16 dims: [ 4 ]", "RG503", 11),
        ("dims: [ 3 ]", "dims: [ 3, 1 ]", "RG503", 12),
        ("dims: [ 3 ]", "dims: [ 5 ]", "RG503", 12),
        ("max_batch_size: 8", "max_batch_size: 16", "RG503", 8),
    ],
)
def test_mismatches(repository: Path, old: str, new: str, code: str, line: int) -> None:
    """Models, versions, tensors, types, shapes and batches, at the line of the ensemble's config."""
    findings = check(with_ensemble(repository, ENSEMBLE.replace(old, new)))
    assert (code, line) in {(finding.code, finding.line) for finding in findings}
    assert {finding.code for finding in findings} <= {code, "RG502"}


def test_tensors_between_steps(repository: Path) -> None:
    """A step's output must match the input of the next step."""
    add_model(repository, "n", CONFIG.replace('"m"', '"n"'))
    maps = 'input_map { key: "x" value: "t" } output_map { key: "y" value: "out" }'
    second = f'    {{ model_name: "n" model_version: -1 {maps} }}\n'
    text = ENSEMBLE.replace('value: "out" }\n    }\n', f'value: "t" }}\n    }},\n{second}')
    (finding,) = check(with_ensemble(repository, text))
    assert finding.code == "RG503"
    assert finding.message == ("tensor 't' is [ -1, 3 ] in 'm' and [ -1, 4 ] in 'n' (with the batch)")


def test_negative_batch_size_of_a_step_is_only_a_finding_of_that_step(repository: Path) -> None:
    """The ensemble's batch size and shapes are not compared with those of a model with an invalid batch size."""
    (repository / "m" / "config.pbtxt").write_text(CONFIG.replace("max_batch_size: 8", "max_batch_size: -1"))
    findings = check(with_ensemble(repository, ENSEMBLE))
    assert [(finding.code, finding.path) for finding in findings] == [("RG103", str(repository / "m" / "config.pbtxt"))]


def test_one_model_reads_only_what_its_steps_name(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other models of the repository are not parsed, however many there are."""
    add_model(repository, "other", CONFIG.replace('"m"', '"other"'))
    with_ensemble(repository, ENSEMBLE)
    parsed: list[str] = []

    def counted(path: Path, release: str, text: str | None) -> ConfigText:
        parsed.append(path.parent.name)
        return read_config(path, release, text)

    monkeypatch.setattr(import_module("repogen.check.checker"), "read_config", counted)
    assert check(repository / "m") == []
    assert parsed == ["m"]
    parsed.clear()
    assert check(repository / "e") == []
    assert sorted(parsed) == ["e", "m"]
    parsed.clear()
    assert check(repository) == []
    assert sorted(parsed) == ["e", "m", "other"]


def test_messages_do_not_grow_with_the_number_of_tensors(repository: Path) -> None:
    """Each of many steps would otherwise list the tensors of all others."""
    steps = "".join(
        f'step {{ model_name: "m" model_version: -1 input_map {{ key: "x" value: "in{index}" }} '
        f'output_map {{ key: "y" value: "out{index}" }} }}\n'
        for index in range(500)
    )
    add_model(repository, "e", f'platform: "ensemble" max_batch_size: 8 ensemble_scheduling {{ {steps} }}')
    findings = check(repository)
    assert len(findings) >= 500
    assert max(len(finding.hint) for finding in findings) < 400


def test_steps_in_reverse_order_are_not_a_cycle(repository: Path) -> None:
    """Triton orders steps by their tensors."""
    steps = "".join(
        f'step {{ model_name: "m" model_version: -1 input_map {{ key: "x" value: "t{index}" }} '
        f'output_map {{ key: "y" value: "t{index + 1}" }} }}\n'
        for index in reversed(range(1200))
    )
    tensors = 'input { name: "t0" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "t1200" data_type: TYPE_FP32 }'
    add_model(repository, "e", f'platform: "ensemble" max_batch_size: 8 {tensors} ensemble_scheduling {{ {steps} }}')
    assert "RG505" not in {finding.code for finding in check(repository)}


@pytest.mark.parametrize("name", ["..", ".", "../outside", "m/../../outside", "/", "a\\000b", "n" * 300])
def test_step_name_does_not_leave_the_repository(repository: Path, name: str) -> None:
    """Findings must not show what a config.pbtxt elsewhere contains."""
    outside = CONFIG.replace('"x"', '"SECRET"').replace("8", "3")
    add_model(repository.parent, "outside", outside)
    (repository.parent / "config.pbtxt").write_text(outside, encoding="utf-8")
    step = f'model_name: "{name}" model_version: -1 input_map {{ key: "x" value: "in" }}'
    step += ' output_map { key: "y" value: "out" }'
    tensors = (
        'input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "out" data_type: TYPE_FP32 dims: [ 3 ] }'
    )
    config = f'platform: "ensemble" max_batch_size: 8 {tensors} ensemble_scheduling {{ step {{ {step} }} }}'
    add_model(repository, "e", config)
    findings = check(repository / "e")
    assert {finding.code for finding in findings} == {"RG501"}
    assert "SECRET" not in str(findings)
