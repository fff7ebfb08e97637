"""Checks and stages a version that was downloaded from a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.versions import Manifest, ModelConfig, StagedVersion
from repogen.errors import PublishError, RepogenError, TrackingError
from repogen.files import reason
from repogen.repository.manifest import damaged_files, read_manifest, unlisted_files
from repogen.repository.own_config import UnservableError, config_serving, stage_config
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.sync import DesiredVersion


def stage_download(scratch: Path, desired: DesiredVersion, version_dir: Path) -> StagedVersion:
    """Check a version's files, and stage them with a config.pbtxt that serves this version alone.

    Args:
        scratch: The private repository of a stage root.
        desired: The version.
        version_dir: Its files: ``<private>/<name>/<version>``, the download, or the version's directory in the
            repository if it is intact.

    Returns:
        The version to ``serve``.

    Raises:
        TrackingError: The files are not those of the registry's entry.
        PublishError: Triton would not serve the version with its config, or it cannot be staged.
    """
    try:
        manifest = _verify(version_dir, desired)
        if version_dir.is_relative_to(scratch) and (unlisted := unlisted_files(version_dir, manifest)):
            raise _altered_error(desired, f"its manifest does not list {', '.join(unlisted)}")
        text = _config_text(version_dir, desired, manifest)
        config = ModelConfig(desired.name, text, manifest.max_batch_size, manifest.signature)
        staged = StagedVersion(desired.name, scratch, desired.version, config, manifest)
        stage_config(staged, version_dir)
    except OSError as error:
        raise PublishError(
            f"{desired.name}: version {desired.version} cannot be staged: {reason(error)}",
            "free disk space or fix the permissions there, and sync again",
            code="sync.stage",
        ) from error
    return staged


def _verify(version_dir: Path, desired: DesiredVersion) -> Manifest:
    try:
        manifest = read_manifest(version_dir)
    except (FileNotFoundError, RepogenError) as error:
        raise _altered_error(desired, f"its manifest: {error}") from error
    if manifest.model != desired.name or manifest.content_sha256 != desired.content:
        raise _altered_error(desired, f"they are those of another version of {manifest.model}")
    if damaged := damaged_files(version_dir, manifest):
        raise _altered_error(desired, "; ".join(damaged))
    return manifest


def _config_text(version_dir: Path, desired: DesiredVersion, manifest: Manifest) -> str:
    """Return the version's own config.pbtxt with another version policy; the rest is verified to be unchanged."""
    try:
        return config_serving(version_dir, manifest, serving_only)
    except UnservableError as error:
        raise _unservable_error(desired, str(error)) from error


def _altered_error(desired: DesiredVersion, difference: str) -> TrackingError:
    return TrackingError(
        f"{desired.name}: the files of version {desired.version} are not those of the registry's entry: {difference}",
        "the registry's artifacts were altered: build the model again and promote that version",
        code="sync.altered",
    )


def _unservable_error(desired: DesiredVersion, reason: str) -> PublishError:
    return PublishError(
        f"{desired.name}: version {desired.version} has a config.pbtxt that Triton would not serve: {reason}",
        "build the model again with this version of repogen, and promote that version",
        code="sync.config",
    )
