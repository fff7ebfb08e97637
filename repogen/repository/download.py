"""Checks and stages a version that was downloaded from a registry."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.named_file import named_records, path_in_model
from repogen.artifacts.versions import Manifest, ModelConfig, StagedVersion
from repogen.errors import ConfigError, PublishError, RepogenError, TrackingError
from repogen.files import reason
from repogen.repository.filesystem import make_readable_and_sync
from repogen.repository.layout import config_bytes
from repogen.repository.manifest import damaged_files, read_manifest, unlisted_files
from repogen.repository.version_policy import serving_only
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.rules.graph import graph_findings
from repogen.triton_config.text.parse import parse

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
        staged.model_dir.mkdir(exist_ok=True)
        (staged.model_dir / CONFIG_FILE).write_bytes(text.encode())
        for record in named_records(manifest.files):
            copy = staged.model_dir / path_in_model(record.path)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(version_dir / record.path, copy)
        make_readable_and_sync(staged.model_dir)
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
    origin = f"config.pbtxt of {desired.name} version {desired.version}"
    try:
        original = (config_bytes(version_dir) or b"").decode()
        before = parse(original, f"{origin} in the registry")
        text = serving_only(original, desired.version)
        after = parse(text, origin)
    except (ConfigError, UnicodeDecodeError) as error:
        raise _unservable_error(desired, str(error)) from error
    served_numbers = list(after.version_policy.specific.versions)
    findings = errors_of([*config_findings(after, desired.name), *graph_findings(after, manifest.signature)])
    for message in (before, after):
        message.ClearField("version_policy")
    if before != after or served_numbers != [desired.version]:
        raise _unservable_error(desired, "its version policy cannot be replaced")
    if findings:
        raise _unservable_error(desired, "\n".join(f"{finding.code} {finding.message}" for finding in findings))
    return text


def _altered_error(desired: DesiredVersion, difference: str) -> TrackingError:
    return TrackingError(
        f"{desired.name}: the files of version {desired.version} are not those of the registry's entry: {difference}",
        "the registry's artifacts were altered: build the model again and promote that version",
        code="sync.altered",
    )


def _unservable_error(desired: DesiredVersion, reason: str) -> PublishError:
    return PublishError(
        f"{desired.name}: version {desired.version} has a config.pbtxt that Triton would not serve: {reason}",
        "build the model again with this repogen, and promote that version",
        code="sync.config",
    )
