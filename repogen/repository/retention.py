"""Which versions of a repository may be deleted; `repogen prune` and `repogen sync --prune` decide it in this way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.files import is_file
from repogen.repository.layout import models_of, versions
from repogen.triton_config.text.parse import parse, read_config_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.inventory import ModelRecord, VersionRecord

    Pins = Mapping[tuple[str, int], str]


def reasons_to_keep(model: ModelRecord, pins: Pins, served: int | None = None) -> dict[int, str]:
    """Return why versions of a model must not be deleted.

    Args:
        model: The model, with the aliases in the model registry.
        pins: As ``pinned_versions`` returns them.
        served: The version that will be the only one served; None for what config.pbtxt serves now.

    Returns:
        Version -> reason; a version that is not in it may be deleted.
    """
    current = model.newest_served if served is None else served
    if current is None:
        return {version.version: f"it is not known what is served: {model.problem}" for version in model.versions}
    reasons = {}
    for version in model.versions:
        is_served = version.served if served is None else version.version == served
        reason = _reason(version, is_served=is_served, held=model.held, current=current)
        if reason := reason or _pin(version, pins):
            reasons[version.version] = reason
    return reasons


def pinned_versions(repository: Path) -> dict[tuple[str, int], str]:
    """Return the versions that ensembles name in their steps: model and version -> the ensemble.

    The configs of all versions of an ensemble count, because `repogen rollback` can serve them again.

    Raises:
        ConfigError: The config of an ensemble can't be parsed, so what it names is not known.
        OSError: A config can't be read.
        PublishError: A directory can't be read.
    """
    pins: dict[tuple[str, int], str] = {}
    for name in models_of(repository):
        directory = repository / name
        for folder in (directory, *(directory / str(version) for version in versions(directory))):
            path = folder / CONFIG_FILE
            text = ""
            with suppress(FileNotFoundError):  # another command may delete a version at the same time
                text = read_config_text(path, "/".join(path.parts[-3:])) if is_file(path) else ""
            if "ensemble_scheduling" in text:
                steps = parse(text, "/".join(path.parts[-3:])).ensemble_scheduling.step
                pins |= {(step.model_name, step.model_version): name for step in steps if step.model_version >= 0}
    return pins


def _reason(version: VersionRecord, *, is_served: bool, held: int | None, current: int) -> str:
    if version.version == held:
        return "held"
    if is_served:
        return "served"
    if version.version > current:
        return f"newer than version {current}, which is served"
    if version.manifest is None:
        return version.problem
    if not version.confirmed:
        return "the model registry lists it as pending"
    return f"alias {', '.join(version.aliases)} in the model registry" if version.aliases else ""


def _pin(version: VersionRecord, pins: Pins) -> str:
    ensemble = pins.get((version.model, version.version))
    return "" if ensemble is None else f"ensemble {ensemble} uses this version"
