"""Ensembles among models: what each waits for, in which order all are built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.build.dependencies import built_steps, in_order, members, with_ensembles
from repogen.errors import ConfigError
from repogen.spec.load import load_spec
from repogen.spec.sources import EnsembleSource

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return an ensemble of an ensemble, first in the file, and a model that has nothing to do with it."""
    (tmp_path / "models.py").touch()
    plain = "{{source: {{factory: models.py:build}}, inputs: {{x: {{dtype: float32, shape: [2]}}}}}}"
    made_of = "{{source: {{kind: ensemble, steps: [{0}]}}}}"
    models = {
        "outer": made_of.format("{model: inner}, {model: c}"),
        "other": plain.format(),
        "inner": made_of.format("{model: a}, {model: b}"),
        **{name: plain.format() for name in "abc"},
    }
    path = tmp_path / "repogen.yaml"
    path.write_text("models:\n" + "".join(f"  {name}: {text}\n" for name, text in models.items()))
    return load_spec(path)


def test_members_are_those_of_the_steps_too(spec: Spec) -> None:
    """Each after what it is made of."""
    assert members(spec.models, "outer") == ("a", "b", "inner", "c")
    assert members(spec.models, "a") == ()


def test_an_ensemble_is_built_after_its_steps(spec: Spec) -> None:
    """Else it would wait for what waits for it."""
    assert in_order(spec, spec.models) == ["a", "b", "inner", "c", "outer", "other"]
    assert in_order(spec, ["outer", "c"]) == ["c", "outer"]


def test_what_a_changed_model_is_part_of_is_built_again(spec: Spec) -> None:
    """In the order of the spec."""
    assert with_ensembles(spec, spec.models, ["a"]) == ["outer", "inner", "a"]
    assert with_ensembles(spec, spec.models, ["other"]) == ["other"]


@pytest.mark.parametrize(
    ("version", "message"),
    [(1, "version 1 of step a was not built by repogen"), (2, "step a is asked for in version 2, and there are 1")],
)
def test_a_step_that_repogen_did_not_build_is_told(tmp_path: Path, spec: Spec, version: int, message: str) -> None:
    """Its shapes are nowhere; and a version that is pinned must be there."""
    (tmp_path / "models" / "a" / "1").mkdir(parents=True)
    step = {"model": "a", "version": version}
    source = EnsembleSource.model_validate({"kind": "ensemble", "steps": [step]})
    models = {**spec.models, "inner": spec.models["inner"].model_copy(update={"source": source})}

    with pytest.raises(ConfigError, match=message) as refused:
        built_steps(replace(spec, models=models), "inner", tmp_path / "models")

    assert refused.value.where == "models.inner.source.steps"
