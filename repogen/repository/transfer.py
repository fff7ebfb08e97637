"""Copies a version out of a repository that is not trusted, and compares every byte with its manifest."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import ATTESTATION_FILES, CONFIG_FILE, MANIFEST_FILE, UNCONFIRMED_FILE
from repogen.artifacts.versions import Manifest, ModelConfig, StagedVersion
from repogen.errors import PublishError, RepogenError
from repogen.files import open_inside, read_inside, reason, require_allocated
from repogen.files.content import write_new
from repogen.repository.layout import model_dir, next_version
from repogen.repository.manifest import manifest_from_json, repeated_files
from repogen.repository.own_config import UnservableError, config_serving, stage_config
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

    from repogen.artifacts.built_model import FileRecord

_BLOCK = 2**20
_UNLISTED = {MANIFEST_FILE, UNCONFIRMED_FILE, *ATTESTATION_FILES}


def stage_copy(scratch: Path, repository: Path, name: str, version_dir: Path) -> StagedVersion:
    """Copy a version into a private repository; the copy has the bytes that the manifest lists, and no other file.

    Each file is read once: it is hashed while it is copied, and no more bytes are read than the manifest states. The
    version's config.pbtxt must pass the rules that a build applies.

    Args:
        scratch: The private repository of a stage root.
        repository: The repository to publish to; it determines the tentative version number.
        name: The model.
        version_dir: The version's directory in the source, without symlinks; one that replaces it is not followed.

    Returns:
        The staged version, for ``publish``.

    Raises:
        PublishError: A file differs from the manifest, leads out of the directory, or cannot be copied; or Triton would
            not serve the version.
    """
    where = f"{name} version {version_dir.name}"
    number = next_version(model_dir(repository, name))
    directory = model_dir(scratch, name) / str(number)
    try:
        manifest, content = _manifest(version_dir, name)
        directory.mkdir(parents=True)
        for record in manifest.files:
            (directory / record.path).parent.mkdir(parents=True, exist_ok=True)
            with open_inside(version_dir / record.path, version_dir, version_dir) as reader:
                _copy(reader, directory / record.path, record)
        for file in (file for file in ATTESTATION_FILES if os.path.lexists(version_dir / file)):
            write_new(directory / file, read_inside(version_dir / file, version_dir, version_dir))
        write_new(directory / MANIFEST_FILE, content)
        written = (version_dir / MANIFEST_FILE).stat()
        os.utime(directory / MANIFEST_FILE, ns=(written.st_atime_ns, written.st_mtime_ns))
        config_serving(directory, manifest, serving_only)
        text = (directory / CONFIG_FILE).read_bytes().decode()
        config = ModelConfig(name, text, manifest.max_batch_size, manifest.signature)
        staged = StagedVersion(name, scratch, number, config, manifest)
        stage_config(staged, directory)
    except UnservableError as error:
        raise PublishError(
            f"{where} has a config.pbtxt that Triton would not serve: {error}",
            "build the model again with this version of repogen",
            code="publish.unservable",
        ) from error
    except (ValueError, RepogenError) as error:
        raise PublishError(
            f"{where} cannot be published: {error}",
            "`repogen verify` lists every difference in the source",
            code="publish.altered-source",
        ) from error
    except OSError as error:
        raise PublishError(
            f"{where} cannot be copied: {reason(error)}",
            "the target is unchanged; free disk space or fix the permissions, and run the command again",
            code="publish.copy",
        ) from error
    return staged


def _manifest(version_dir: Path, name: str) -> tuple[Manifest, bytes]:
    """Return a version's manifest, and its bytes.

    Raises:
        ValueError: It is that of another model, lists a file that cannot be copied, or many links to the same file.
        MalformedRecordError: It is damaged.
        OSError: It can't be read.
    """
    content = read_inside(version_dir / MANIFEST_FILE, version_dir, version_dir)
    manifest = manifest_from_json(content.decode(), "/".join((version_dir / MANIFEST_FILE).parts[-3:]))
    paths = [record.path for record in manifest.files]
    if manifest.model != name:
        raise ValueError(f"its manifest is that of a version of {manifest.model}")
    if CONFIG_FILE not in paths or len(set(paths)) != len(paths) or _UNLISTED & set(paths):
        raise ValueError(f"its manifest must list {CONFIG_FILE}, each file once, and not {MANIFEST_FILE}")
    if problem := repeated_files(version_dir, manifest):
        raise ValueError(problem)
    return manifest, content


def _copy(reader: BufferedReader, target: Path, record: FileRecord) -> None:
    """Copy a file.

    Raises:
        ValueError: Its size or digest differs from the record.
        OSError: It can't be read or written, or is a sparse file.
    """
    digest, left = hashlib.sha256(), record.size
    require_allocated(reader)
    with target.open("xb") as writer:
        while block := reader.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise ValueError(f"{record.path} has more than {record.size} bytes")
            digest.update(block)
            writer.write(block)
    if left:
        raise ValueError(f"{record.path} has {record.size - left} bytes, not {record.size}")
    if digest.hexdigest() != record.sha256:
        raise ValueError(f"{record.path} has a different sha256")
