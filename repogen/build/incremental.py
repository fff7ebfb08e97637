"""Which published versions are up to date with the spec; decided without importing torch or the model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.report import ModelReport, Status
from repogen.build.cache import digests_file
from repogen.build.dependencies import ensemble_dependencies
from repogen.build.fingerprint import changed_steps, changes
from repogen.errors import RepogenError
from repogen.files import exists, is_directory, is_file
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.hold import held_version, hold_note, hold_of
from repogen.repository.layout import (
    config_bytes,
    journal_path,
    latest_version,
    model_dir,
    require_own_directories,
    stage_container,
    temporary_files,
    versions,
)
from repogen.repository.manifest import damaged_files, damaged_named_files, read_manifest
from repogen.repository.ownership import NEW_OWNER_FILE
from repogen.repository.remembered import remembered_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from repogen.artifacts.versions import Manifest
    from repogen.repository.remembered import Remembered
    from repogen.spec.models import Spec


def compare_models(
    spec: Spec, names: Iterable[str], repository: Path, *, registered: bool = False
) -> dict[str, ModelReport | tuple[str, ...]]:
    """Return, for each model, the report of its newest published version if it is up to date, or why it is not.

    The models are checked at the same time, because most of the time is spent on hashing one large file of each.

    Args:
        spec: The spec.
        names: The models to check.
        repository: The model repository.
        registered: Whether versions go into a model registry; one that is not in it then counts as changed.
    """

    def check(name: str) -> ModelReport | tuple[str, ...]:
        start = time.monotonic()
        current = newest_version(repository, name)
        if isinstance(current, str):
            return (current,)
        if reasons := _reasons_to_build(comparison, name, current):
            return tuple(reasons)
        held = hold_of(model_dir(repository, name))
        notes = () if held is None else (hold_note(held),)
        return replace(_report(name, *current, time.monotonic() - start), notes=notes)

    selected = list(names)
    with (
        work_limit(str(repository), COMMAND_SECONDS),
        remembered_digests(digests_file()) as remembered,
        ThreadPoolExecutor() as pool,
    ):
        comparison = _Comparison(spec, repository, registered, remembered)
        return dict(zip(selected, pool.map(check, selected), strict=True))


@dataclass(frozen=True)
class _Comparison:
    """What the models of one spec are compared with.

    Attributes:
        spec: The spec.
        repository: The model repository.
        registered: Whether a version that is not in a model registry counts as changed.
        remembered: Digests of earlier runs.
    """

    spec: Spec
    repository: Path
    registered: bool
    remembered: Remembered


def _reasons_to_build(comparison: _Comparison, name: str, current: tuple[int, Manifest]) -> Sequence[str]:
    """Return why a published version is not what a build would publish now; empty if it is, and its files are intact.

    Its files are compared with its manifest only if its inputs did not change.

    Args:
        comparison: What to compare with.
        name: The model.
        current: Number and manifest of the newest published version.
    """
    version, manifest = current
    spec, remembered = comparison.spec, comparison.remembered
    directory = model_dir(comparison.repository, name)
    inputs = manifest.provenance.fingerprint
    reasons = changes(inputs, spec, name, remembered)
    reasons += changed_steps(inputs, ensemble_dependencies(spec.models, name), comparison.repository)
    if comparison.registered and not manifest.provenance.registered:
        reasons.append(f"version {version} is not in the model registry")
    if reasons:
        return reasons
    damage = damaged_files(directory / str(version), manifest, remembered)
    # While a version is held, the files that its config names are needed, and not those of the newest version.
    if hold_of(directory) is None:
        damage += damaged_named_files(directory, manifest.files)
    return [f"version {version}: {line}" for line in damage]


def unconfirmed_versions(names: Iterable[str], repository: Path) -> tuple[tuple[str, int], ...]:
    """Return model and version of each published version that the model registry still lists as pending."""
    return tuple(
        (name, version)
        for name in names
        for version in versions(model_dir(repository, name))
        if (model_dir(repository, name) / str(version) / UNCONFIRMED_FILE).is_file()
    )


def recover_interrupted_publishes(names: Iterable[str], repository: Path) -> None:
    """Complete or undo, for each model, a publish that was killed between its two renames.

    Raises:
        PublishError: Another publish holds the lock, or the repository cannot be written.
    """
    interrupted = [name for name in names if exists(journal_path(model_dir(repository, name)))]
    if interrupted:
        from repogen.repository.recovery import recover  # noqa: PLC0415 - costs 13 ms and is rarely needed

        for name in interrupted:
            recover(repository, name)


def remove_leftovers(repository: Path, stage_dir: Path | None) -> None:
    """Remove the staging directories and temporary files of builds that were killed; those in use are kept."""
    container = stage_container(repository, stage_dir)
    with suppress(RepogenError):  # a directory that cannot be read is reported when a model is published
        new_owner = is_file(repository / NEW_OWNER_FILE)
        if new_owner or is_directory(container) or any(map(temporary_files, {repository, container.parent})):
            from repogen.repository.workspace import sweep  # noqa: PLC0415 - imports the lock, and is rarely needed

            sweep(repository, stage_dir)


def newest_version(repository: Path, name: str) -> tuple[int, Manifest] | str:
    """Return number and manifest of a model's newest version if Triton serves it with the config.pbtxt of its build.

    While another version is held, the newest one need not be served. Otherwise the reason is returned.
    """
    version = None
    try:
        directory = model_dir(repository, name)
        version = latest_version(directory)
        if version is None:
            return "no version is published"
        require_own_directories(directory)
        manifest = read_manifest(directory / str(version))
        built_config, served_config = (config_bytes(folder) for folder in (directory / str(version), directory))
    except FileNotFoundError:
        return f"version {version} was not built by repogen"
    except (OSError, RepogenError) as error:
        return f"version {version} can't be read: {error}"
    is_current = built_config == served_config or held_version(served_config) is not None
    if built_config is not None and is_current:
        return version, manifest
    return f"config.pbtxt is not the one that version {version} was built with"


def _report(name: str, version: int, manifest: Manifest, seconds: float) -> ModelReport:
    origin = manifest.provenance
    return ModelReport(
        name,
        Status.UNCHANGED,
        version=version,
        sha256=manifest.sha256,
        size=manifest.model_size,
        exporter=origin.exporter,
        opset=origin.opset,
        ir_version=origin.ir_version,
        max_batch_size=manifest.max_batch_size,
        parity_cases=origin.parity_cases,
        max_abs_diff=origin.parity_max_abs_diff,
        max_rel_diff=origin.parity_max_rel_diff,
        nodes_exported=origin.nodes_exported,
        nodes_optimized=origin.nodes_optimized,
        lossy=origin.lossy,
        seconds={"fingerprint": seconds},
        manifest=manifest,
    )
