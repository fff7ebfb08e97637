"""Which version of each model a repository should serve, and which models change together.

The alias of an ensemble selects its steps as well: each one is served at the version that the ensemble was verified
with, whatever its own alias points to. An ensemble and its steps are a group, which changes as one.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState
from repogen.errors import RepogenError, TrackingError
from repogen.registry.ensembles import pinned_steps
from repogen.repository.hold import hold_of
from repogen.repository.layout import archive_dir, model_dir, models_of
from repogen.repository.manifest import read_manifest
from repogen.repository.mirror import served_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.versions import Manifest


@dataclass
class Selection:
    """The versions to serve.

    Attributes:
        aliased: Model -> version that the alias points to.
        pinned: Step -> version that an ensemble was verified with.
        users: Step -> ensembles that use it: as they should be served, and as they are served now.
        steps: Ensemble -> its steps: as it should be served, and as it is served now.
        frozen: Step -> ensemble that is not changed, so that the step must not change.
        failures: Ensemble -> why its version cannot be served.
    """

    aliased: dict[str, RegistryEntry]
    pinned: dict[str, RegistryEntry] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    steps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    frozen: dict[str, str] = field(default_factory=dict)
    failures: dict[str, RepogenError] = field(default_factory=dict)

    def entry(self, name: str) -> RegistryEntry | None:
        """Return the version of a model that should be served; None for no version."""
        return self.pinned.get(name) or self.aliased.get(name)

    def group(self, name: str) -> tuple[str, ...]:
        """Return the models that change together with a model, and itself: steps before the ensembles that use them."""
        members, pending = set[str](), [name]
        while pending:
            member = pending.pop()
            if member not in members:
                members.add(member)
                pending += [*self.users.get(member, ()), *self.steps.get(member, ())]
        # an ensemble's steps include those of the ensembles that it uses, so it has more of them
        return tuple(sorted(members, key=lambda each: (len(self.steps.get(each, ())), each)))


def select(registry: ModelRegistry, repository: Path, aliased: dict[str, RegistryEntry]) -> Selection:
    """Return the versions that a repository should serve.

    Args:
        registry: The registry.
        repository: The repository, which need not exist.
        aliased: Model -> version that the alias points to.

    Raises:
        TrackingError: The registry does not respond.
    """
    served = {name: _served_steps(repository, name) for name in {*aliased, *models_of(repository)}}
    failures = dict[str, RepogenError]()
    desired = _desired_steps(registry, repository, aliased, failures)
    while conflict := _conflict(aliased, desired, served):
        step, ensembles = conflict
        for name in ensembles:
            failures[name] = _conflict_error(step, aliased[name], ensembles)
            del desired[name]
    pinned = {step: entry for steps in desired.values() for step, entry in steps.items()}
    selection = Selection(aliased, pinned, failures=failures)
    for name in served.keys() | desired.keys():
        for step in {*served.get(name, ()), *desired.get(name, ())}:
            selection.users[step].add(name)
            selection.steps[name].add(step)
            if name in aliased and name not in desired:
                selection.frozen[step] = name
    return selection


def _desired_steps(
    registry: ModelRegistry, repository: Path, aliased: dict[str, RegistryEntry], failures: dict[str, RepogenError]
) -> dict[str, dict[str, RegistryEntry]]:
    """Return the steps of each model that follows its alias, none if it is not an ensemble; add errors to failures."""
    desired: dict[str, dict[str, RegistryEntry]] = {}
    for name, entry in aliased.items():
        try:
            if _follows_alias(repository, entry):
                desired[name] = pinned_steps(registry, entry, _manifest(registry, repository, entry))
        except RepogenError as error:
            failures[name] = error
    for name in desired:
        if any(_pins_another(steps, aliased[name]) for steps in desired.values()):
            desired[name] = {}  # it is a step of an ensemble whose steps include its own
    return desired


def _pins_another(steps: Mapping[str, RegistryEntry], entry: RegistryEntry) -> bool:
    return entry.name in steps and steps[entry.name].content != entry.content


def _follows_alias(repository: Path, entry: RegistryEntry) -> bool:
    """Return whether a model can change to the version of its alias: that is published, and no other one is held."""
    return entry.state is EntryState.PUBLISHED and hold_of(model_dir(repository, entry.name)) is None


def _manifest(registry: ModelRegistry, repository: Path, entry: RegistryEntry) -> Manifest:
    """Return the manifest of a version: from the repository or its archive if it is the same one, or the registry."""
    for directory in (model_dir(repository, entry.name), archive_dir(repository) / entry.name):
        with suppress(OSError, RepogenError):
            manifest = read_manifest(directory / str(entry.version))
            if manifest.content_sha256 == entry.content:
                return manifest
    return registry.manifest(entry)


def _served_steps(repository: Path, name: str) -> dict[str, str]:
    """Return the content of each step of an ensemble as the repository serves it; empty for another model."""
    try:
        model = model_dir(repository, name)
        versions = served_from(model)
        return read_manifest(model / str(versions[0])).provenance.steps if versions else {}
    except (OSError, RepogenError):
        return {}


def _conflict(
    aliased: Mapping[str, RegistryEntry],
    desired: Mapping[str, Mapping[str, RegistryEntry]],
    served: Mapping[str, Mapping[str, str]],
) -> tuple[str, list[str]] | None:
    """Return a step of which ensembles need different versions, and those of them that would change; None without one.

    An ensemble that does not change needs the version that it is served with.
    """
    contents = defaultdict[str, dict[str, str]](dict)
    for name, steps in desired.items():
        for step, entry in steps.items():
            contents[step][name] = entry.content
    for name in aliased.keys() - desired.keys():
        for step, content in served.get(name, {}).items():
            contents[step][name] = content
    for step, needed in sorted(contents.items()):
        changing = sorted(needed.keys() & desired.keys())
        if changing and len(set(needed.values())) > 1:
            return step, changing
    return None


def _conflict_error(step: str, ensemble: RegistryEntry, ensembles: Iterable[str]) -> TrackingError:
    others = [name for name in ensembles if name != ensemble.name]
    with_text = f"{', '.join(others)} need" if others else "an ensemble that is not changed need"
    return TrackingError(
        f"{ensemble.name} was not changed: version {ensemble.version} and {with_text} different versions of {step}",
        "promote versions of the ensembles that were built together",
        code="sync.shared-step",
    )
