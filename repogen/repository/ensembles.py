"""Ensembles in a repository: whether Triton can load one with the models that its steps name."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf import text_format

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.errors import RepogenError
from repogen.files import is_file
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.layout import directory_of_step, triton_versions
from repogen.repository.version_policy import served_versions
from repogen.triton_config.rules.ensemble_repository import ModelInRepository, ensemble_findings
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.text.parse import PbtxtError, parse, parse_file, read_config_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from repogen.artifacts.versions import StagedVersion
    from repogen.triton_config.text.parse import ModelConfig

_MAX_MODELS = 256


def neighbor_at(directory: Path) -> ModelInRepository:
    """Return the config of a model in a repository, with the versions that it serves.

    Raises:
        ConfigError: Its config.pbtxt can't be parsed.
        OSError: It can't be read.
    """
    path = directory / CONFIG_FILE
    config = parse_file(path, f"{directory.name}/{CONFIG_FILE}") if is_file(path) else None
    return ModelInRepository(config, served_versions(config, triton_versions(directory)))


def with_steps(repository: Path, names: Iterable[str]) -> list[str]:
    """Return names of models, and of the models that they use as ensembles, directly or not; at most 257 of these.

    The names of steps need not be those of models. A config.pbtxt that cannot be read has no steps here.
    """
    selection: dict[str, None] = {}
    pending = list(names)
    limit = len(pending) + _MAX_MODELS
    while pending and len(selection) <= limit:
        name = pending.pop()
        directory = None if name in selection else directory_of_step(repository, name)
        selection[name] = None
        if directory is not None:
            with suppress(RepogenError, OSError):
                status = (directory / CONFIG_FILE).stat()
                pending += _steps(directory / CONFIG_FILE, status.st_mtime_ns, status.st_size, status.st_ino)
    return list(selection)


@lru_cache(maxsize=4096)
def _steps(path: Path, mtime: int, size: int, inode: int) -> tuple[str, ...]:  # noqa: ARG001 - the key of the cache
    config = parse_file(path, f"{path.parent.name}/{path.name}")
    return tuple(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def steps_reason(config: ModelConfig, name: str, repository: Path) -> str:
    """Return that the steps of an ensemble lead back to it, or to very many models; empty if they do not.

    tritonserver 2.51 crashes when another ensemble uses an ensemble in a cycle.
    """
    used = with_steps(repository, {step.model_name for step in config.ensemble_scheduling.step})
    if name in used:
        return f"the steps of {name!r} lead back to {name!r}"
    return f"the steps of {name!r} lead to more than {_MAX_MODELS} models" if len(used) > _MAX_MODELS else ""


def unfit_users(repository: Path, staged: StagedVersion, building: Collection[str]) -> dict[str, str]:
    """Return the ensembles in a repository that use a model, each with the reason why it would no longer load.

    A config.pbtxt that can't be read does not load already; it is a finding of ``repogen check``.

    Args:
        repository: The repository.
        staged: The model's new version.
        building: Models to skip: their ensembles are built again.

    Returns:
        Ensemble -> reason; an empty reason for an ensemble that would load.
    """
    new = {staged.name: _after_publishing(repository, staged)}
    reasons = {}
    with work_limit(str(repository), COMMAND_SECONDS):
        for path in sorted(repository.glob(f"*/{CONFIG_FILE}")):
            name = path.parent.name
            ensemble = None if name in building else _ensemble_at(path)
            steps = () if ensemble is None else ensemble.ensemble_scheduling.step
            if ensemble is not None and any(step.model_name == staged.name for step in steps):
                reasons[name] = _reason(ensemble, repository, new)
    return reasons


def _ensemble_at(path: Path) -> ModelConfig | None:
    """Return the config of an ensemble; None for another model, and for a file that can't be read."""
    origin = f"{path.parent.name}/{CONFIG_FILE}"
    with suppress(PbtxtError, OSError):
        text = read_config_text(path, origin)
        return parse(text, origin) if "ensemble_scheduling" in text else None
    return None


def steps_of(text: str, name: str) -> tuple[str, ...]:
    """Return the models that an ensemble's steps name, sorted; empty for another model.

    Args:
        text: Text of the model's config.pbtxt.
        name: The model.

    Raises:
        PbtxtError: It can't be parsed.
    """
    config = parse(text, f"{name}/{CONFIG_FILE}")
    return tuple(sorted({step.model_name for step in config.ensemble_scheduling.step}))


def with_suffix(text: str, name: str, steps: Collection[str], suffix: str) -> str:
    """Return the config.pbtxt of a model under another name, whose steps are models under other names.

    Args:
        text: Text of the config.pbtxt.
        name: The model.
        steps: The models whose names get the suffix in the steps of an ensemble.
        suffix: Text to add to the names.

    Raises:
        PbtxtError: It can't be parsed.
    """
    config = parse(text, f"{name}/{CONFIG_FILE}")
    config.name = f"{name}{suffix}"
    for step in config.ensemble_scheduling.step:
        if step.model_name in steps:
            step.model_name += suffix
    renamed: str = text_format.MessageToString(config)
    return renamed


def unfit(text: str, name: str, repository: Path, staged: Iterable[StagedVersion] = ()) -> str:
    """Return why Triton could not load an ensemble with a repository's models; empty if it could.

    Args:
        text: Text of the config.pbtxt of any model; empty is returned for one that is not an ensemble.
        name: The model.
        repository: The repository.
        staged: Versions that are published into it before.
    """
    new = {version.name: _after_publishing(repository, version) for version in staged}
    config = parse(text, f"{name}/{CONFIG_FILE}")
    with work_limit(str(repository), COMMAND_SECONDS):
        return steps_reason(config, name, repository) or _reason(config, repository, new)


def _after_publishing(repository: Path, staged: StagedVersion) -> ModelInRepository:
    """Return a model as it will be in a repository."""
    config = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    numbers = (*triton_versions(repository / staged.name), staged.version)
    return ModelInRepository(config, served_versions(config, numbers))


def _reason(config: ModelConfig, repository: Path, new: Mapping[str, ModelInRepository]) -> str:
    if not config.HasField("ensemble_scheduling"):
        return ""
    names = {step.model_name for step in config.ensemble_scheduling.step} - new.keys()
    directories = {name: directory_of_step(repository, name) for name in names}
    neighbors = {name: neighbor_at(path) for name, path in directories.items() if path is not None}
    errors = errors_of(list(ensemble_findings(config, {**neighbors, **new})))
    return errors[0].message if errors else ""
