"""Reads the versions that an ensemble uses, for the worker that composes the ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.steps import EnsembleStep
from repogen.build.dependencies import ensemble_dependencies
from repogen.errors import ConfigError
from repogen.repository.layout import latest_version, model_dir, versions
from repogen.repository.manifest import read_manifest
from repogen.source.interface import BuiltStep
from repogen.spec.sources import EnsembleSource
from repogen.triton_config.text.parse import parse_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.versions import Manifest
    from repogen.spec.models import Spec


def built_steps(spec: Spec, name: str, repository: Path) -> dict[str, BuiltStep]:
    """Return the versions that an ensemble uses, by model name.

    Args:
        spec: The spec.
        name: The ensemble; for any other model nothing is returned.
        repository: A repository that contains the ensemble's dependencies.

    Raises:
        ConfigError: A version does not exist, or was not built by repogen.
    """
    source = spec.models[name].source
    steps = source.steps if isinstance(source, EnsembleSource) else ()
    pinned = {step.model: step.version for step in steps if step.version is not None}
    result = {}
    for dependency in ensemble_dependencies(spec.models, name):
        directory = model_dir(repository, dependency)
        version = pinned.get(dependency) or latest_version(directory)
        manifest = _manifest(directory, version, f"models.{name}.source.steps")
        model = spec.models[dependency]
        result[dependency] = BuiltStep(
            model,
            directory / str(version),
            manifest.signature,
            manifest.max_batch_size,
            _steps_in_config(directory / str(version)) if isinstance(model.source, EnsembleSource) else (),
            manifest.provenance.lossy,
            manifest.provenance.parity_max_abs_diff,
        )
    return result


def require_version(version: int | None, existing: Sequence[int], step: str, where: str) -> None:
    """Require the version of a step.

    Args:
        version: The version that an ensemble uses.
        existing: The versions of the step's model.
        step: The step's model.
        where: Key path of the ensemble's steps in the spec.

    Raises:
        ConfigError: It does not exist.
    """
    if version not in existing:
        raise ConfigError(
            f"step {step} needs version {version}; existing versions: {', '.join(map(str, existing)) or 'none'}",
            "remove `version` from the step to use the newest version",
            code="config.step-version",
            where=where,
        )


def _manifest(directory: Path, version: int | None, where: str) -> Manifest:
    require_version(version, versions(directory), directory.name, where)
    try:
        return read_manifest(directory / str(version))
    except FileNotFoundError as error:
        raise ConfigError(
            f"version {version} of step {directory.name} was not built by repogen, so its inputs are unknown",
            "build it from this spec; use an existing ONNX file with `kind: onnx`",
            code="config.foreign-step",
            where=where,
        ) from error


def _steps_in_config(version_dir: Path) -> tuple[EnsembleStep, ...]:
    """Return the steps in a version's own config.pbtxt."""
    config = parse_file(version_dir / CONFIG_FILE, f"config.pbtxt of {version_dir.parent.name}")
    return tuple(
        EnsembleStep(
            step.model_name,
            dict(step.input_map),
            dict(step.output_map),
            step.model_version if step.model_version > 0 else None,
        )
        for step in config.ensemble_scheduling.step
    )
