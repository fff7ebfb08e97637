"""Which models of a repository to deploy, and in which order: steps before their ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Protocol

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.artifacts.serving import NO_CREDENTIALS, Endpoint
from repogen.errors import ConfigError, PublishError, RepogenError, SmokeError, SpecError
from repogen.files import is_file, reason
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.ensembles import neighbor_at
from repogen.repository.inventory import require_models
from repogen.repository.layout import models_of, versions
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.serving.admission import foreign_backend
from repogen.smoke.preparation import admission_refusals, prepare_published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from repogen.smoke.preparation import PreparedModel
    from repogen.triton_config.rules.ensemble_repository import ModelInRepository

    FetchVersions = Callable[[str, tuple[int, ...]], None]

_ANY_SERVER = Endpoint("", "", "", "remote", "", "", sees_files=False, has_gpu=True, credentials=NO_CREDENTIALS)


@dataclass(frozen=True)
class PlannedModel:
    """A model to deploy.

    Attributes:
        name: Its name.
        versions: Versions that the repository selects, newest first.
        selected: Whether to load it where a server does not serve it. A model that shares an ensemble with a selected
            one is deployed where a server serves it: the ensemble was verified with the new versions of its steps.
    """

    name: str
    versions: tuple[int, ...]
    selected: bool = True


Group = tuple[PlannedModel, ...]
"""Models that are deployed or restored together: ensembles and their steps, in the order of loading."""


class Fetch(Protocol):
    """Downloads files of versions into the private copy of a repository in a store."""

    def __call__(self, name: str, versions: tuple[int, ...], *, whole: bool) -> None:
        """Download what a smoke test of versions of a model reads.

        Args:
            name: The model.
            versions: The versions.
            whole: Whether to download all files that Triton reads of them, for the verification of a signature.

        Raises:
            RepogenError: The store does not respond.
        """


def no_fetch(name: str, versions: tuple[int, ...], *, whole: bool = False) -> None:
    """Do nothing: the repository has all its files."""


def plan(repository: Path, names: tuple[str, ...], fetch: FetchVersions = no_fetch) -> tuple[Group, ...]:
    """Return the groups of models to deploy.

    Args:
        repository: The repository.
        names: The selected models; the models of their steps are added. Every model that repogen built if empty.
        fetch: Called with a model and the versions that the repository selects, before these are checked.

    Raises:
        SpecError: A model does not exist, or was not built by repogen.
        ConfigError: The repository selects no version of a model, or ensembles form a cycle.
        PublishError: A version is damaged.
        SmokeError: Triton would run code of a model that is not a Python model.
        RepogenError: The store of the repository does not respond.
    """
    require_models(repository, names)
    with work_limit(str(repository), COMMAND_SECONDS):
        models = _readable_models(repository)
    steps = {name: _steps(model) & models.keys() for name, model in models.items()}
    selected = _closure(names or _built_models(repository, models), steps)
    related = {name: set(parts) for name, parts in steps.items()}
    for name, parts in steps.items():
        for part in parts:
            related[part].add(name)
    involved = _closure(selected, related)
    order = _ordered({name: steps.get(name, set()) & involved for name in involved})
    planned = [PlannedModel(name, _versions(repository, name, fetch), name in selected) for name in order]
    return _groups(planned, steps)


def _readable_models(repository: Path) -> dict[str, ModelInRepository]:
    """Return the models whose config.pbtxt can be read; a selected one is read again, which reports the error."""
    models = {}
    for name in models_of(repository):
        try:
            models[name] = neighbor_at(repository / name)
        except (RepogenError, OSError, UnicodeDecodeError):
            continue
    return models


def _built_models(repository: Path, models: Mapping[str, ModelInRepository]) -> tuple[str, ...]:
    """Return the models of which repogen built a served version, or any version if their config cannot be read.

    Raises:
        SpecError: There is none.
    """
    names = tuple(
        name
        for name in models_of(repository)
        if any(
            is_file(repository / name / str(number) / MANIFEST_FILE)
            for number in _served_or_all(repository / name, models.get(name))
        )
    )
    if not names:
        raise SpecError(
            f"{repository} has no model that repogen built",
            "build one with `repogen build`, or pass another directory with --repository",
            code="repository.empty",
        )
    return names


def _served_or_all(directory: Path, model: ModelInRepository | None) -> Iterable[int]:
    if model is not None and model.config is not None:
        return model.versions
    try:
        return versions(directory)
    except PublishError:  # it cannot be listed
        return ()


def _steps(model: ModelInRepository) -> set[str]:
    return set() if model.config is None else {step.model_name for step in model.config.ensemble_scheduling.step}


def _closure(names: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    """Return names and all that they lead to."""
    closure, pending = set[str](), list(names)
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending += edges.get(name, ())
    return closure


def _ordered(steps: Mapping[str, set[str]]) -> list[str]:
    """Return models in the order of loading; the order of independent ones is that of their names."""
    sorter = TopologicalSorter({name: sorted(steps[name]) for name in sorted(steps)})
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise ConfigError(
            f"the steps of these ensembles form a cycle: {' -> '.join(error.args[1])}",
            "`repogen check` shows where (RG505)",
            code="deploy.cycle",
        ) from error


def _groups(models: Iterable[PlannedModel], steps: Mapping[str, set[str]]) -> tuple[Group, ...]:
    """Return the models by group, each in the order given."""
    groups: list[list[PlannedModel]] = []
    for model in models:
        joined = [group for group in groups if any(other.name in steps.get(model.name, ()) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), model])
    return tuple(map(tuple, groups))


def _versions(repository: Path, name: str, fetch: FetchVersions) -> tuple[int, ...]:
    """Return the versions that the repository selects, checked; see ``plan`` for the errors."""
    prepared = prepare(_ANY_SERVER, repository / name)
    if not prepared.versions:
        raise ConfigError(
            f"{name}: the version policy of config.pbtxt selects none of the existing versions",
            "`repogen check` shows what is wrong",
            code="deploy.no-version",
        )
    fetch(name, prepared.versions)
    with work_limit(f"model {name}", COMMAND_SECONDS):
        for version in prepared.versions:
            _check_version(repository / name / str(version), name)
    if reasons := (*admission_refusals(prepared), *foreign_backend(prepared.directory, prepared.config)):
        raise SmokeError(
            f"{name}: {'; '.join(reasons)}",
            "repogen does not load such a model: see `repogen explain RG410`",
            code="deploy.not-admitted",
        )
    return tuple(reversed(prepared.versions))


def prepare(endpoint: Endpoint, directory: Path) -> PreparedModel:
    """Return a model of the repository as a server should serve it.

    Raises:
        ConfigError: config.pbtxt cannot be parsed.
        PublishError: It cannot be read.
    """
    try:
        return prepare_published(endpoint, directory)
    except OSError as error:
        raise PublishError(
            f"{directory.name}: its config.pbtxt cannot be read: {error.strerror}",
            "make it readable, or build the model again",
            code="deploy.damaged",
        ) from error


def _check_version(directory: Path, name: str) -> None:
    try:
        manifest = read_manifest(directory)
        damage = damaged_files(directory, manifest)
    except FileNotFoundError as error:
        raise SpecError(
            f"{name} version {directory.name} was not built by repogen: it has no {MANIFEST_FILE}",
            "name the models to deploy; a model without golden tensors cannot be tested on the server",
            code="deploy.not-built",
        ) from error
    except OSError as error:
        raise PublishError(
            f"{name} version {directory.name} cannot be read: {reason(error)}",
            "make its files readable",
            code="deploy.damaged",
        ) from error
    if damage:
        raise PublishError(
            f"{name} version {directory.name} is damaged: {'; '.join(damage)}",
            "build it again, or restore its files; nothing was deployed",
            code="deploy.damaged",
        )
