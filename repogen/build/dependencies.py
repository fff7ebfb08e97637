"""Ensembles among the models of a spec: what each waits for, and what is handed to the worker that composes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import ConfigError
from repogen.source.common.built_step import BuiltStep
from repogen.spec.sources import EnsembleSource
from repogen.artifacts.file_names import CONFIG_FILE
from repogen.repository.layout import latest_version, model_dir, versions
from repogen.repository.manifest import read_manifest
from repogen.artifacts.steps import EnsembleStep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path


    from repogen.spec.models import ModelSpec, Spec
    from repogen.artifacts.versions import Manifest, StagedVersion


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
    from repogen.triton_config.text.parse import parse  # noqa: PLC0415 - protobuf, for ensembles of ensembles only

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
