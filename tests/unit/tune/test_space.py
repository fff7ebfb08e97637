"""The parameters of a model, and the section for a choice of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from repogen.artifacts.tune import PARAMETERS
from repogen.triton_config.render.spec_findings import section_findings
from repogen.triton_config.sections.model import TritonSpec
from repogen.tune.space import (
    Space,
    TunableModel,
    automatic_settings,
    common_settings,
    current_settings,
    key_of,
    space_of,
    with_settings,
)

if TYPE_CHECKING:
    import random

    from repogen.artifacts.tune import Settings

BATCH = {"max_batch_size", "dynamic_batching", "preferred_batch_size", "max_queue_delay_microseconds"}
GRAPH = {"intra_op_thread_count", "inter_op_thread_count", "execution_mode", "graph_level"}
SECTIONS: list[dict[str, Any]] = [
    {},
    {"dynamic_batching": {}},
    {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [3, 6], "max_queue_delay_microseconds": 250}},
    {"instance_group": [{"count": "auto", "kind": "KIND_AUTO"}]},
    {
        "dynamic_batching": {"preserve_ordering": True},
        "instance_group": [{"count": 3, "kind": "KIND_CPU", "host_policy": "numa0"}],
        "parameters": {"intra_op_thread_count": 3, "enable_mem_arena": False},
        "optimization": {"graph": {"level": 1}, "eager_batching": True},
        "model_warmup": [{"name": "w"}],
        "metric_tags": {"team": "a"},
    },
]


def section(values: dict[str, Any]) -> TritonSpec:
    """Return a validated section."""
    return TypeAdapter(TritonSpec).validate_python(values)


def model(values: dict[str, Any] | None = None, **facts: Any) -> TunableModel:
    """Return a graph that batches up to 8 rows."""
    return TunableModel(section(values or {}), **{"max_batch_size": 8, "is_graph": True, "cores": 4, **facts})


def test_every_parameter_of_a_graph_that_batches() -> None:
    """Without a GPU, the kind of the instances is not searched."""
    space = space_of(model())

    assert set(space.choices) == BATCH | GRAPH | {"instance_count"}
    assert space.choices["max_batch_size"] == (1, 2, 4, 8)
    assert space.choices["instance_count"] == (1, 2, 4, 8)
    assert space.choices["intra_op_thread_count"] == (0, 1, 2, 4)


def test_passes_are_a_parameter_of_models_that_were_built_with_others() -> None:
    """The published graph is that of the spec; the section does not change with them."""
    each = model(passes=("none", "int8-dynamic"))
    space = space_of(each)

    assert space.choices["passes"] == ("spec", "none", "int8-dynamic")
    assert space.effective(current_settings(each))["passes"] == "spec"
    assert space.effective(automatic_settings(each))["passes"] == "spec"
    assert with_settings(each, {**current_settings(each), "passes": "none"}) == each.triton
    assert {settings["passes"] for settings in space.neighbors({"passes": "spec"})} == {"none", "int8-dynamic"}
    assert "passes" not in space_of(model()).choices


def test_excluded_parameters_stay() -> None:
    """And those that have no effect then."""
    assert set(space_of(model(passes=("none",)), ("passes", "instance_count")).choices) == BATCH | GRAPH
    without = set(space_of(model(), ("dynamic_batching", "execution_mode")).choices)
    assert without == {"max_batch_size", "instance_count", "intra_op_thread_count", "graph_level"}
    batched = space_of(model({"dynamic_batching": {}}), ("dynamic_batching",))
    assert set(batched.choices) & BATCH == BATCH - {"dynamic_batching"}
    assert "max_queue_delay_microseconds" in batched.effective(current_settings(model({"dynamic_batching": {}})))
    assert space_of(model(passes=("none",)), PARAMETERS).choices == {}


def test_every_parameter_is_named() -> None:
    """For `--exclude`."""
    assert set(PARAMETERS) == set(current_settings(model()))


def test_kind_is_searched_with_a_gpu() -> None:
    """Not if the spec selects GPUs by number."""
    assert space_of(model(has_gpu=True)).choices["instance_kind"] == ("KIND_CPU", "KIND_GPU")
    pinned = {"instance_group": [{"kind": "KIND_GPU", "gpus": [0]}]}
    assert "instance_kind" not in space_of(model(pinned, has_gpu=True)).choices


@pytest.mark.parametrize("facts", [{"max_batch_size": 0}, {"max_batch_size": 1}])
def test_model_that_does_not_batch(facts: dict[str, Any]) -> None:
    """No parameter of the batcher applies."""
    assert not set(space_of(model({}, **facts)).choices) & BATCH


def test_sequences_are_not_batched_dynamically() -> None:
    """The sequence batcher replaces the dynamic one."""
    sequences: dict[str, Any] = {"sequence_batching": {"control_input": []}}
    assert not set(space_of(model(sequences)).choices) & BATCH


def test_python_code_has_no_parameters_of_onnxruntime() -> None:
    """Instances and batching apply."""
    assert set(space_of(model(is_graph=False)).choices) == BATCH | {"instance_count"}


def test_several_instance_groups_stay() -> None:
    """Their counts are the user's decision."""
    groups = {"instance_group": [{"count": 1, "kind": "KIND_CPU"}, {"count": 2, "kind": "KIND_CPU"}]}
    assert "instance_count" not in space_of(model(groups)).choices


def test_batch_of_the_load_is_a_minimum() -> None:
    """A smaller max_batch_size would reject the requests."""
    assert space_of(model(batch=3)).choices["max_batch_size"] == (4, 8)


def test_required_batching_is_not_switched_off() -> None:
    """Priorities and order are what the user needs."""
    space = space_of(model({"dynamic_batching": {"preserve_ordering": True}}))
    assert "dynamic_batching" not in space.choices
    assert space.applies("max_queue_delay_microseconds", {})


def test_parameters_without_effect_are_left_out() -> None:
    """Two settings that differ in nothing else are the same."""
    space = space_of(model())
    settings = {**current_settings(model()), "max_queue_delay_microseconds": 500, "inter_op_thread_count": 2}

    effective = space.effective(settings)

    assert effective["dynamic_batching"] == "off"
    assert not {"max_queue_delay_microseconds", "preferred_batch_size", "inter_op_thread_count"} & set(effective)


@pytest.mark.parametrize("values", SECTIONS)
def test_current_settings_change_nothing(values: dict[str, Any]) -> None:
    """They are in the space, and give the same section."""
    each = model(values)
    settings = space_of(each).effective(current_settings(each))

    assert settings in space_of(each)
    assert with_settings(each, settings) == each.triton


@pytest.mark.parametrize("values", SECTIONS)
def test_automatic_settings_are_in_the_space(values: dict[str, Any]) -> None:
    """They can be enqueued as a baseline."""
    each = model(values)
    settings = space_of(each).effective(automatic_settings(each))
    assert settings in space_of(each)


@pytest.mark.parametrize("values", SECTIONS)
@pytest.mark.parametrize("cores", [1, 2, 6])
def test_common_settings_are_in_the_space(values: dict[str, Any], cores: int) -> None:
    """They use every core, in instances or in threads."""
    each = model(values, cores=cores)
    space = space_of(each)

    settings = [space.effective(settings) for settings in common_settings(each)]

    assert all(one in space for one in settings)
    assert [one["instance_count"] for one in settings] == [cores, 1]


@given(st.sampled_from(SECTIONS), st.randoms(use_true_random=False), st.booleans())
def test_any_settings_give_a_valid_section(values: dict[str, Any], generator: random.Random, has_gpu: bool) -> None:  # noqa: FBT001 - hypothesis
    """The section is valid, has these settings, and everything else is as it was."""
    each = model(values, has_gpu=has_gpu)
    settings = space_of(each).random(generator)

    result = with_settings(each, settings)

    assert section(result.model_dump(mode="python", by_alias=True)) == result
    assert [finding for _, finding in section_findings(result, "torch") if finding.severity == "error"] == []
    after = TunableModel(result, 8, is_graph=True, cores=4, has_gpu=has_gpu)
    actual = {name: value for name, value in current_settings(after).items() if name in settings}
    preferred = "preferred_batch_size"
    if settings.get(preferred) in {"max", "half"} or "," in str(settings.get(preferred)):
        actual.pop(preferred)  # another name of the same sizes
    assert actual == {name: value for name, value in settings.items() if name in actual}
    untouched = ("metric_tags", "model_warmup", "input", "output", "extra", "version_policy")
    assert all(getattr(result, name) == getattr(each.triton, name) for name in untouched)
    assert result.parameters.get("enable_mem_arena") == each.triton.parameters.get("enable_mem_arena")


def test_neighbors_differ_in_one_parameter() -> None:
    """A parameter that becomes effective gets its first value."""
    space = Space(
        {"dynamic_batching": ("on", "off"), "max_queue_delay_microseconds": (0, 100), "instance_count": (1, 2)}
    )
    settings: Settings = {"dynamic_batching": "off", "instance_count": 1}

    assert {key_of(each) for each in space.neighbors(settings)} == {
        key_of({"dynamic_batching": "on", "max_queue_delay_microseconds": 0, "instance_count": 1}),
        key_of({"dynamic_batching": "off", "instance_count": 2}),
    }
    assert len(space.all(100)) == 6
    assert space.all(3) == []
