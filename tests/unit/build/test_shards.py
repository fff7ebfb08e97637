"""Shards: every model is in exactly one, ensembles are with their steps, and the costs are balanced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.plan import Shard
from repogen.build.pipeline import BuildOptions, plan_build
from repogen.build.shards import select_shard, split, units
from repogen.errors import SpecError
from repogen.spec.models import ModelSpec

from .conftest import PLAIN, ensemble_of, write_spec

if TYPE_CHECKING:
    from pathlib import Path

_PLAIN = ModelSpec.model_validate({"source": {"kind": "torch", "factory": "models.py:build"}})


def _models(steps: list[set[int]]) -> dict[str, ModelSpec]:
    """Return models by name; the n-th one is an ensemble of the given models before it."""
    models = {}
    for number, members in enumerate(steps):
        names = [f"m{member}" for member in sorted(members) if member < number]
        source = {"kind": "ensemble", "steps": [{"model": name} for name in names]}
        models[f"m{number}"] = ModelSpec.model_validate({"source": source}) if names else _PLAIN
    return models


SPECS = st.lists(st.sets(st.integers(0, 20), max_size=3), min_size=1, max_size=20).map(_models)
COSTS = st.dictionaries(st.integers(0, 20).map("m{}".format), st.floats(0, 1e5))


@given(SPECS, COSTS, st.integers(1, 8), st.data())
def test_every_selected_model_is_in_exactly_one_shard(
    models: dict[str, ModelSpec], costs: dict[str, float], count: int, data: st.DataObject
) -> None:
    """For any ensembles, costs and selection; the order of the spec does not matter."""
    names = data.draw(st.lists(st.sampled_from(sorted(models)), unique=True))
    shards = [select_shard(models, names, Shard(number, count), costs) for number in range(1, count + 1)]
    assert sorted(name for shard in shards for name in shard) == sorted(names)
    shuffled = data.draw(st.permutations(names))
    again = [select_shard(models, shuffled, Shard(number, count), costs) for number in range(1, count + 1)]
    assert [set(shard) for shard in again] == [set(shard) for shard in shards]


@given(SPECS, st.integers(1, 8))
def test_ensembles_are_in_the_shard_of_their_steps(models: dict[str, ModelSpec], count: int) -> None:
    """Also steps of steps, and ensembles that share a step."""
    shards = {name: n for n in range(1, count + 1) for name in select_shard(models, list(models), Shard(n, count), {})}
    for name, model in models.items():
        for step in getattr(model.source, "steps", ()):
            assert shards[step.model] == shards[name]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 6))
def test_costs_are_balanced(seconds: list[int], count: int) -> None:
    """No shard exceeds the mean by more than one model."""
    costs = {f"m{number}": float(value) for number, value in enumerate(seconds)}
    shards = split([[name] for name in costs], costs, count)
    largest = max(sum(costs[name] for name in shard) for shard in shards)
    assert largest <= sum(seconds) / count + max(seconds)


def test_models_that_cost_nothing_are_spread() -> None:
    """A plan gives models that are up to date no cost."""
    costs = {f"m{number}": 0.0 for number in range(6)}
    assert [len(shard) for shard in split([[name] for name in costs], costs, 3)] == [2, 2, 2]


def test_groups_keep_the_order_of_the_spec(tmp_path: Path) -> None:
    """Ensembles that share a step are one group."""
    spec = write_spec(tmp_path, e=ensemble_of("a"), other=PLAIN, f=ensemble_of("a", "b"), a=PLAIN, b=PLAIN)
    assert units(spec.models, spec.models) == [["e", "f", "a", "b"], ["other"]]
    assert units(spec.models, ["f", "e"]) == [["f", "e"]]


def test_plan_has_the_models_of_its_shard_only(tmp_path: Path) -> None:
    """A shard without models has a note."""
    spec = write_spec(tmp_path, a=PLAIN, b=PLAIN, c=PLAIN)
    costs = {"b": 100.0}
    plans = [plan_build(spec, BuildOptions(shard=Shard(number, 4), costs=costs)) for number in range(1, 5)]
    assert [plan.names for plan in plans] == [("b",), ("a",), ("c",), ()]
    assert "shard 4/4 has no models" in plans[3].notes


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "1/2 ", "9999999/9999999"])
def test_wrong_shard_is_rejected(text: str) -> None:
    """With an example."""
    with pytest.raises(SpecError, match="is not a shard") as caught:
        Shard.parse(text)
    assert caught.value.code == "plan.shard"
