"""Which published versions are still what the spec asks for: decided without importing torch or the model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.build.fingerprint import changes, steps_changed, was_registered
from repogen.build.dependencies import members
from repogen.artifacts.file_names import CONFIG_FILE, UNCONFIRMED_FILE
from repogen.repository.layout import journal_path, latest_version, model_dir, versions
from repogen.repository.manifest import damaged_files, damaged_named_files, read_manifest
from repogen.artifacts.report import ModelReport, Status

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec
    from repogen.artifacts.versions import Manifest


def unchanged_models(
    spec: Spec, names: list[str], repository: Path, *, registered: bool = False
) -> dict[str, ModelReport | None]:
    """Look at all models at once: most of the time goes into hashing one large file for each."""

    def look(name: str) -> ModelReport | None:
        return unchanged(spec, name, repository, registered=registered)

    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(look, names), strict=True))


def unchanged(spec: Spec, name: str, repository: Path, *, registered: bool = False) -> ModelReport | None:
    """Return the report of a model whose published version is current and intact; None when it must be built.

    Args:
        spec: The spec.
        name: The model.
        repository: The repository.
        registered: Whether a version that was never registered counts as changed.
    """
    begun = time.monotonic()
    try:
        directory = model_dir(repository, name)
        version = latest_version(directory)
        if version is None:
            return None
        published = directory / str(version)
        manifest = read_manifest(published)
        kept, served = ((place / CONFIG_FILE).read_bytes() for place in (published, directory))
    except (OSError, RepogenError):
        return None
    if (
        kept != served
        or changes(manifest.provenance.fingerprint, spec, name)
        or steps_changed(manifest.provenance.fingerprint, members(spec.models, name), repository)
        or (registered and not was_registered(manifest.provenance.fingerprint))
        or damaged_files(published, manifest)
        or damaged_named_files(directory, manifest.files)
    ):
        return None
    return _report(name, version, manifest, time.monotonic() - begun)


def unconfirmed_versions(names: list[str], repository: Path) -> list[tuple[str, int]]:
    """Return the published versions of which the registry does not know that they are."""
    found = []
    for name in names:
        directory = model_dir(repository, name)
        found += [(name, n) for n in versions(directory) if (directory / str(n) / UNCONFIRMED_FILE).exists()]
    return found


def settle_publishes(names: list[str], repository: Path) -> None:
    """Complete or undo, for each model, a publish that was killed between its two renames.

    Raises:
        PublishError: Another publish holds the lock, or the repository cannot be written.
    """
    pending = [name for name in names if journal_path(model_dir(repository, name)).exists()]
    if pending:
        from repogen.repository.recovery import recover  # noqa: PLC0415 - 13 ms, for what is hardly ever there

        for name in pending:
            recover(repository, name)


def _report(name: str, version: int, manifest: Manifest, seconds: float) -> ModelReport:
    origin = manifest.provenance
    return ModelReport(
        name,
        Status.UNCHANGED,
        version=version,
        sha256=manifest.sha256,
        size=manifest.size,
        exporter=origin.exporter,
        opset=origin.opset,
        ir_version=origin.ir_version,
        max_batch_size=manifest.max_batch_size,
        parity_cases=origin.parity_cases,
        max_abs_diff=origin.parity_max_abs_diff,
        max_rel_diff=origin.parity_max_rel_diff,
        nodes_exported=origin.nodes_exported,
        nodes_optimized=origin.nodes_optimized,
        seconds={"fingerprint": seconds},
    )
