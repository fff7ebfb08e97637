"""A version that came from a registry, made ready to be moved in; nothing of it is believed before it is checked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE
from repogen.artifacts.versions import Manifest, ModelConfig, StagedVersion
from repogen.errors import ConfigError, PublishError, RepogenError, TrackingError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.named_files import named_records, place_of
from repogen.repository.recovery import config_bytes
from repogen.repository.transaction import open_and_sync
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.sync import Wanted


def stage_wanted(private: Path, wanted: Wanted, version_dir: Path) -> StagedVersion:
    """Check a version's files, and write the config.pbtxt that serves it, and it alone, beside them.

    Args:
        private: The private repository of a stage root.
        wanted: The version.
        version_dir: Its files: ``<private>/<name>/<version>``, where they were fetched to, or where they lie in the
            repository when they need no fetching.

    Returns:
        What ``serve`` moves in.

    Raises:
        TrackingError: The files are not those that the registry's entry names.
        PublishError: Triton would not serve the version with its config.
    """
    try:
        manifest = _verified(version_dir, wanted)
        if version_dir.is_relative_to(private):
            _refuse_others(version_dir, manifest, wanted)
        config = ModelConfig(wanted.name, _config(version_dir, wanted, manifest), manifest.max_batch_size,
                             manifest.signature)  # fmt: skip
        staged = StagedVersion(wanted.name, private, wanted.version, config, manifest)
        staged.model_dir.mkdir(exist_ok=True)
        (staged.model_dir / CONFIG_FILE).write_bytes(config.text.encode())
        for record in named_records(manifest.files):
            looked_for = staged.model_dir / place_of(record.path)
            looked_for.parent.mkdir(exist_ok=True)
            shutil.copyfile(version_dir / record.path, looked_for)
        open_and_sync(staged.model_dir)
    except OSError as error:
        raise PublishError(
            f"{wanted.name}: version {wanted.version} cannot be staged: {error.strerror} ({error.filename})",
            "Free disk space or mend permissions there, and sync again.",
            code="sync.stage",
        ) from error
    return staged


def _verified(version_dir: Path, wanted: Wanted) -> Manifest:
    try:
        manifest = read_manifest(version_dir)
    except (FileNotFoundError, RepogenError) as error:
        raise _altered(wanted, f"its manifest: {error}") from error
    if manifest.model != wanted.name or manifest.content_sha256 != wanted.content:
        raise _altered(wanted, f"they are of another version, of {manifest.model}")
    if damaged := damaged_files(version_dir, manifest):
        raise _altered(wanted, "; ".join(damaged))
    return manifest


def _refuse_others(version_dir: Path, manifest: Manifest, wanted: Wanted) -> None:
    """Refuse what no digest vouches for."""
    listed = {MANIFEST_FILE, *(file.path for file in manifest.files)}
    there = {path.relative_to(version_dir).as_posix(): path for path in version_dir.rglob("*")}
    others = [name for name, path in there.items() if path.is_symlink() or not (path.is_dir() or name in listed)]
    if others:
        raise _altered(wanted, f"there is more than its manifest lists: {', '.join(sorted(others))}")


def _config(version_dir: Path, wanted: Wanted, manifest: Manifest) -> str:
    """Return the version's own config.pbtxt with another version policy, and proof that nothing else is other."""
    from repogen.triton_config.rules.config_rules import config_findings  # noqa: PLC0415 - brings protobuf along, which `repogen build` need not wait for
    from repogen.triton_config.rules.findings import errors_of  # noqa: PLC0415 - brings protobuf along, which `repogen build` need not wait for
    from repogen.triton_config.rules.graph import graph_findings  # noqa: PLC0415 - brings protobuf along, which `repogen build` need not wait for
    from repogen.triton_config.text.parse import parse  # noqa: PLC0415 - brings protobuf along, which `repogen build` need not wait for

    origin = f"config.pbtxt of {wanted.name} version {wanted.version}"
    try:
        own = (config_bytes(version_dir) or b"").decode()
        text = serving_only(own, wanted.version)
        before, after = parse(own, f"{origin} in the registry"), parse(text, origin)
        served = list(after.version_policy.specific.versions)
    except (ConfigError, UnicodeDecodeError) as error:
        raise _unservable(wanted, str(error)) from error
    findings = errors_of([*config_findings(after, wanted.name), *graph_findings(after, manifest.signature)])
    for message in (before, after):
        message.ClearField("version_policy")
    if before != after or served != [wanted.version]:
        raise _unservable(wanted, "its version policy cannot be replaced")
    if findings:
        raise _unservable(wanted, "\n".join(f"{finding.code} {finding.message}" for finding in findings))
    return text


def _altered(wanted: Wanted, what: str) -> TrackingError:
    return TrackingError(
        f"{wanted.name}: the files of version {wanted.version} are not those that the registry's entry names: {what}",
        "The registry's artifacts were altered: build the model again and promote that version.",
        code="sync.altered",
    )


def _unservable(wanted: Wanted, what: str) -> PublishError:
    return PublishError(
        f"{wanted.name}: version {wanted.version} has a config.pbtxt that Triton would not serve: {what}",
        "Build the model again with this repogen, and promote that version.",
        code="sync.config",
    )
