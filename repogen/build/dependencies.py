"""Ensembles among the models of a spec: which models each one uses, and in which order to build them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.spec.sources import EnsembleSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repogen.spec.models import ModelSpec, Spec


def ensemble_dependencies(models: Mapping[str, ModelSpec], name: str) -> tuple[str, ...]:
    """Return the models that an ensemble uses, directly or through other ensembles, dependencies first.

    Args:
        models: The models of a spec.
        name: A model; for one that is not an ensemble, nothing is returned.
    """
    dependencies: dict[str, None] = {}
    source = models[name].source
    for step in source.steps if isinstance(source, EnsembleSource) else ():
        dependencies |= dict.fromkeys((*ensemble_dependencies(models, step.model), step.model))
    return tuple(dependencies)


def build_order(spec: Spec, names: Iterable[str]) -> list[str]:
    """Return names with every ensemble after the models that it uses; other models keep their order."""
    selected = list(names)
    order = dict.fromkeys(member for name in selected for member in (*ensemble_dependencies(spec.models, name), name))
    return [name for name in order if name in selected]


def with_ensembles(spec: Spec, names: Iterable[str], changed: Iterable[str]) -> list[str]:
    """Return those of ``names`` to build: changed models, and ensembles that use one."""
    pending_names = set(changed)
    return [
        name
        for name in names
        if name in pending_names or pending_names.intersection(ensemble_dependencies(spec.models, name))
    ]


def step_versions(spec: Spec) -> frozenset[tuple[str, int]]:
    """Return the models and versions that steps name; the other steps use the newest version of their model."""
    sources = (model.source for model in spec.models.values())
    steps = (step for source in sources if isinstance(source, EnsembleSource) for step in source.steps)
    return frozenset((step.model, step.version) for step in steps if step.version is not None)
