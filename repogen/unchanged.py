"""Which published versions are still what the spec asks for: decided without importing torch or the model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.fingerprint import changes, files_intact
from repogen.values.layout import CONFIG_FILE, journal_path, latest_version, model_dir
from repogen.values.manifest import read_manifest
from repogen.values.report import ModelReport, Status

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec
    from repogen.values.versions import Manifest


def unchanged_models(spec: Spec, names: list[str], repository: Path) -> dict[str, ModelReport | None]:
    """Look at all models at once: most of the time goes into hashing one large file for each."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: unchanged(spec, name, repository), names), strict=True))


def unchanged(spec: Spec, name: str, repository: Path) -> ModelReport | None:
    """Return the report of a model whose published version is current and intact; None when it must be built."""
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
        or files_intact(published, manifest.files)
    ):
        return None
    return _report(name, version, manifest, time.monotonic() - begun)


def settle_publishes(names: list[str], repository: Path) -> None:
    """Complete or undo, for each model, a publish that was killed between its two renames.

    Raises:
        PublishError: Another publish holds the lock, or the repository cannot be written.
    """
    pending = [name for name in names if journal_path(model_dir(repository, name)).exists()]
    if pending:
        from repogen.publish import recover  # noqa: PLC0415 - 13 ms, for what is hardly ever there

        for name in pending:
            recover(repository, name)


def _report(name: str, version: int, manifest: Manifest, seconds: float) -> ModelReport:
    origin = manifest.provenance
    return ModelReport(
        name,
        Status.UNCHANGED,
        version=version,
        sha256=manifest.sha256,
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
