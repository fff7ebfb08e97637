"""Splits the models of a spec into shards: balanced by cost, each ensemble in the same shard as its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.build.dependencies import ensemble_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.plan import Shard
    from repogen.spec.models import ModelSpec

_SECONDS = {"ensemble": 4.0, "python": 4.0, "onnx": 6.0, "torchscript": 8.0, "torch_export": 10.0, "huggingface": 60.0}
_DEFAULT_SECONDS = 12.0


def estimated_seconds(model: ModelSpec) -> float:
    """Return the rough wall time of a build: it depends on the spec alone, so it is equal on every machine."""
    return _SECONDS.get(model.source.kind, _DEFAULT_SECONDS)


def units(models: Mapping[str, ModelSpec], names: Iterable[str]) -> list[list[str]]:
    """Return models in groups that must be built together: ensembles with all models that they use.

    Args:
        models: The models of a spec.
        names: Those to group. Ensembles that share a step are one group, also if the step is not among these.

    Returns:
        The groups in the order of their first model; each model of ``names`` is in exactly one.
    """
    parent = {name: name for name in models}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for name in models:
        for step in ensemble_dependencies(models, name):
            parent[root(step)] = root(name)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(root(name), []).append(name)
    return list(groups.values())


def split(groups: Sequence[Sequence[str]], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Distribute groups of models: the most expensive group first, each to the shard with the lowest cost so far.

    The result depends on the arguments only, and not on the order of the groups.

    Args:
        groups: Groups of models that must not be separated.
        seconds: Cost of each model.
        count: Number of shards.

    Returns:
        The models of each shard; a shard may be empty.
    """
    milliseconds = {name: round(1000 * value) for name, value in seconds.items()}  # sums do not depend on the order
    shards: list[list[str]] = [[] for _ in range(count)]
    costs = [0] * count
    ordered = sorted(groups, key=lambda group: (-sum(milliseconds[name] for name in group), min(group)))
    for group in ordered:
        index = min(range(count), key=lambda number: (costs[number], len(shards[number]), number))
        shards[index] += group
        costs[index] += sum(milliseconds[name] for name in group)
    return shards


def select_shard(
    models: Mapping[str, ModelSpec], names: Sequence[str], shard: Shard, seconds: Mapping[str, float]
) -> list[str]:
    """Return those of ``names`` that a shard builds, in their order.

    Args:
        models: The models of a spec.
        names: The selected models.
        shard: The shard.
        seconds: Known costs, by model; the others are estimated. They must be the same for all shards.
    """
    costs = {name: seconds.get(name, estimated_seconds(models[name])) for name in names}
    selected = set(split(units(models, names), costs, shard.count)[shard.index - 1])
    return [name for name in names if name in selected]
