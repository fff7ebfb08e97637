"""The alias of an ensemble's steps: it follows that of the ensemble.

The alias of the ensemble selects the set, because its version names the versions of its steps. It is moved first, by
one call: this is the moment at which the set changes, also for `repogen sync`. The aliases of the steps follow, so that
MLflow's pages show the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import StepMove
from repogen.errors import GateError, TrackingError
from repogen.registry.ensembles import pinned_steps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from repogen.artifacts.registry import AliasMove, ModelRegistry, RegistryEntry
    from repogen.artifacts.versions import Manifest


def step_moves(
    registry: ModelRegistry, ensemble: RegistryEntry, manifest: Manifest, alias: str
) -> tuple[StepMove, ...]:
    """Return the models that an ensemble uses, and where their alias points to.

    Raises:
        TrackingError: The registry does not have the version of a step, or does not respond.
    """
    steps = pinned_steps(registry, ensemble, manifest)
    return tuple(StepMove(name, _aliased(registry, name, alias), entry.version) for name, entry in steps.items())


def follow(registry: ModelRegistry, move: AliasMove, name: str, steps: Iterable[StepMove]) -> Iterator[str]:
    """Move the alias of the steps of an ensemble whose alias was moved; yield a note for each that was not moved."""
    for step in steps:
        if step.moves:
            try:
                registry.move_alias(
                    step.model,
                    replace(move, old=step.old, new=step.new, figures={}, values={}, ensemble=f"{name} {move.new}"),
                )
            except TrackingError as error:
                yield (
                    f"{move.alias} of {step.model} was not moved to version {step.new}: {error.message}; "
                    "`repogen sync` still serves that version with the ensemble"
                )


def require_no_ensemble(registry: ModelRegistry, entry: RegistryEntry, alias: str) -> None:
    """Require that no ensemble with the alias uses another version of a model: they are promoted together.

    Raises:
        GateError: An ensemble does.
        TrackingError: The registry does not respond.
    """
    for ensemble, manifest in _users(registry, {entry.name}, alias):
        if manifest.provenance.steps.get(entry.name, entry.content) != entry.content:
            raise GateError(
                f"{entry.name} is a step of {ensemble.name}, whose version {ensemble.version} has {alias} and was "
                f"verified with another version of {entry.name}",
                f"promote a version of {ensemble.name} that was built with version {entry.version}: "
                f"`repogen promote {ensemble.name} --alias {alias}` moves its steps as well",
                code="promotion.step",
            )


def shared_step_notes(
    registry: ModelRegistry, ensemble: RegistryEntry, manifest: Manifest, alias: str
) -> Iterator[str]:
    """Yield a note for each other ensemble with the alias that was verified with another version of the same step."""
    steps = manifest.provenance.steps
    for other, built in _users(registry, steps.keys(), alias) if steps else ():
        names = [name for name, content in built.provenance.steps.items() if steps.get(name, content) != content]
        if names and other.name != ensemble.name:
            yield (
                f"{', '.join(names)}: also used by {other.name}, whose version {other.version} was verified with "
                f"another version; `repogen sync` changes neither ensemble until {other.name} is promoted as well"
            )


def _users(registry: ModelRegistry, names: Collection[str], alias: str) -> Iterator[tuple[RegistryEntry, Manifest]]:
    """Yield the ensembles with an alias that use one of the models, with their manifests."""
    for ensemble in registry.ensembles_with_alias(alias):
        if not set(names).isdisjoint(ensemble.steps):
            yield ensemble, registry.manifest(ensemble)


def _aliased(registry: ModelRegistry, name: str, alias: str) -> int | None:
    return next((entry.version for entry in registry.entries(name) if alias in entry.aliases), None)
