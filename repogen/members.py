"""Ensembles among the models of a spec: what each waits for, and what is handed to the worker that composes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import ConfigError
from repogen.source.built import BuiltStep
from repogen.spec.sources import EnsembleSource
from repogen.values.layout import CONFIG_FILE, latest_version, model_dir, versions
from repogen.values.manifest import read_manifest
from repogen.values.steps import EnsembleStep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.pbtxt import Neighbor
    from repogen.spec.models import ModelSpec, Spec
    from repogen.values.versions import Manifest, StagedVersion


def members(models: Mapping[str, ModelSpec], name: str) -> tuple[str, ...]:
    """Return the models of an ensemble's steps, and of theirs, each after those that it is made of."""
    found: dict[str, None] = {}
    source = models[name].source
    for step in source.steps if isinstance(source, EnsembleSource) else ():
        found |= dict.fromkeys((*members(models, step.model), step.model))
    return tuple(found)


def in_order(spec: Spec, names: Iterable[str]) -> list[str]:
    """Return names so that every ensemble comes after its steps; other models keep their order."""
    wanted = list(names)
    ordered = dict.fromkeys(each for name in wanted for each in (*members(spec.models, name), name))
    return [name for name in ordered if name in wanted]


def with_ensembles(spec: Spec, names: Iterable[str], pending: Iterable[str]) -> list[str]:
    """Return those of ``names`` to build: what is pending, and the ensembles of which a step is."""
    waiting = set(pending)
    return [name for name in names if name in waiting or waiting.intersection(members(spec.models, name))]


def built_steps(spec: Spec, name: str, repository: Path) -> dict[str, BuiltStep]:
    """Return what an ensemble is made of, by name.

    Args:
        spec: The spec.
        name: The ensemble; for any other model nothing is returned.
        repository: A repository that holds its members.

    Raises:
        ConfigError: A version is not there, or was not built by repogen.
    """
    pinned = _pinned(spec, name)
    found = {}
    for member in members(spec.models, name):
        directory = model_dir(repository, member)
        version = pinned.get(member) or latest_version(directory)
        manifest = _manifest(directory, version, f"models.{name}.source.steps")
        found[member] = BuiltStep(
            spec.models[member],
            directory / str(version),
            manifest.signature,
            manifest.max_batch_size,
            _steps_of(directory / str(version)) if isinstance(spec.models[member].source, EnsembleSource) else (),
        )
    return found


def _manifest(directory: Path, version: int | None, where: str) -> Manifest:
    there = ", ".join(map(str, versions(directory))) or "none"
    if version not in versions(directory):
        what = f"step {directory.name} is asked for in version {version}, and there are {there}"
        raise ConfigError(what, "leave version: out for the newest", code="config.step-version", where=where)
    try:
        return read_manifest(directory / str(version))
    except FileNotFoundError as error:
        raise ConfigError(
            f"version {version} of step {directory.name} was not built by repogen: nothing says what it takes",
            "build it from this spec; an existing file with kind: onnx",
            code="config.foreign-step",
            where=where,
        ) from error


def _pinned(spec: Spec, name: str) -> dict[str, int]:
    source = spec.models[name].source
    steps = source.steps if isinstance(source, EnsembleSource) else ()
    return {step.model: step.version for step in steps if step.version is not None}


def _steps_of(version_dir: Path) -> tuple[EnsembleStep, ...]:
    """Return the steps that a version's own config names."""
    from repogen.pbtxt import parse  # noqa: PLC0415 - protobuf, for ensembles of ensembles only

    config = parse(
        (version_dir / CONFIG_FILE).read_text(encoding="utf-8"), f"config.pbtxt of {version_dir.parent.name}"
    )
    return tuple(
        EnsembleStep(
            step.model_name,
            dict(step.input_map),
            dict(step.output_map),
            step.model_version if step.model_version > 0 else None,
        )
        for step in config.ensemble_scheduling.step
    )


def unfit_users(repository: Path, staged: StagedVersion, building: Collection[str]) -> dict[str, str]:
    """Return a repository's ensembles that a model is a step of, each with why it would no longer load, if so.

    Args:
        repository: The repository.
        staged: The model's new version.
        building: Models to pass over: their ensembles are built again.
    """
    from repogen.pbtxt import Neighbor, parse  # noqa: PLC0415 - for what is published

    there = (*versions(repository / staged.name), staged.version)
    new = {staged.name: Neighbor(parse(staged.config.text, f"config.pbtxt of {staged.name}"), there)}
    found = {}
    for path in sorted(repository.glob(f"*/{CONFIG_FILE}")):
        name, text = path.parent.name, path.read_text(encoding="utf-8", errors="replace")
        if name not in building and "ensemble_scheduling" in text:
            config = parse(text, f"{name}/{CONFIG_FILE}")
            if any(step.model_name == staged.name for step in config.ensemble_scheduling.step):
                found[name] = _misfit(config, repository, new)
    return found


def unfit(text: str, name: str, repository: Path) -> str:
    """Return why a config's ensemble would not load beside a repository's models; empty where it would, or is none.

    Args:
        text: Of its config.pbtxt.
        name: The model.
        repository: The repository.
    """
    from repogen.pbtxt import parse  # noqa: PLC0415 - as above

    return _misfit(parse(text, f"{name}/{CONFIG_FILE}"), repository, {})


def _misfit(config: ModelConfig, repository: Path, new: Mapping[str, Neighbor]) -> str:
    from repogen.pbtxt import ensemble_findings, errors_of, neighbor_at  # noqa: PLC0415 - as above

    if not config.HasField("ensemble_scheduling"):
        return ""
    names = {step.model_name for step in config.ensemble_scheduling.step}
    there = {name: neighbor_at(repository / name) for name in names - new.keys() if (repository / name).is_dir()}
    errors = errors_of(list(ensemble_findings(config, {**there, **new})))
    return errors[0].message if errors else ""
