"""Ensembles in a repository: whether one would still load next to the models that its steps name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.repository.layout import versions
from repogen.triton_config.rules.ensemble_repository import ModelInRepository, ensemble_findings
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from repogen.artifacts.versions import StagedVersion
    from repogen.triton_config.text.parse import ModelConfig


def neighbor_at(directory: Path) -> ModelInRepository:
    """Return a model as it lies in a repository.

    Raises:
        ConfigError: Its config.pbtxt can't be parsed.
    """
    path = directory / CONFIG_FILE
    config = parse(path.read_text(encoding="utf-8"), f"{directory.name}/{CONFIG_FILE}") if path.is_file() else None
    return ModelInRepository(config, tuple(versions(directory)))


def unfit_users(repository: Path, staged: StagedVersion, building: Collection[str]) -> dict[str, str]:
    """Return a repository's ensembles that a model is a step of, each with why it would no longer load, if so.

    Args:
        repository: The repository.
        staged: The model's new version.
        building: Models to pass over: their ensembles are built again.
    """
    there = (*versions(repository / staged.name), staged.version)
    new = {staged.name: ModelInRepository(parse(staged.config.text, f"config.pbtxt of {staged.name}"), there)}
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
    return _misfit(parse(text, f"{name}/{CONFIG_FILE}"), repository, {})


def _misfit(config: ModelConfig, repository: Path, new: Mapping[str, ModelInRepository]) -> str:

    if not config.HasField("ensemble_scheduling"):
        return ""
    names = {step.model_name for step in config.ensemble_scheduling.step}
    there = {name: neighbor_at(repository / name) for name in names - new.keys() if (repository / name).is_dir()}
    errors = errors_of(list(ensemble_findings(config, {**there, **new})))
    return errors[0].message if errors else ""
