"""Lay out one version privately, as the repository will hold it, with a manifest that vouches for every file."""

from __future__ import annotations

import os
import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Artifact, FileRecord, OnnxArtifact
from repogen.artifacts.file_names import (
    CONFIG_FILE,
    DATA_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PYTHON_FILE,
    REQUIREMENTS_FILE,
    RESERVED_FILES,
)
from repogen.artifacts.steps import EnsembleArtifact, PythonArtifact
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.errors import PublishError
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.repository.layout import model_dir, next_version
from repogen.repository.manifest import manifest_to_json
from repogen.repository.named_files import place_of
from repogen.repository.workspace import private_repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def stage_version(  # noqa: PLR0913 - all that a version is made of
    root: Path,
    repository: Path,
    config: ModelConfig,
    artifact: Artifact,
    golden_dir: Path,
    provenance: Provenance,
    *,
    companions: Mapping[str, Path] | None = None,
) -> StagedVersion:
    """Lay out ``<root>/repository/<name>/`` with one version; its manifest is written last.

    Files below ``root`` are hard-linked, so a model of many GB is not copied; files elsewhere belong to somebody who
    may go on writing to them, and are copied. Equal arguments give equal bytes.

    Args:
        root: As ``prepare_stage_root`` yields it.
        repository: The real repository; it decides the tentative version number.
        config: The checked config.pbtxt.
        artifact: What was verified: an ONNX file, Python code, an ensemble.
        golden_dir: Directory holding ``golden.json`` and ``golden.npz``.
        provenance: How the version came to be.
        companions: Files that travel with it, by name: a tokenizer, a license. They are copied.

    Returns:
        The staged version with its manifest: sha256 and size of every other file of the version directory.

    Raises:
        PublishError: A file is missing or cannot be written.
    """
    version = next_version(model_dir(repository, config.name))
    directory = model_dir(private_repository(root), config.name) / str(version)
    try:
        directory.mkdir(parents=True)
        (directory.parent / CONFIG_FILE).write_bytes(config.text.encode())
        sources = _sources(artifact, golden_dir, companions or {})
        files = [_place(source, directory / name, root) for name, source in sources.items()]
        files.append(_write(directory / CONFIG_FILE, config.text.encode()))
        if isinstance(artifact, PythonArtifact) and artifact.requirements:
            files.append(_write(directory / REQUIREMENTS_FILE, "\n".join([*artifact.requirements, ""]).encode()))
        for file in config.named_files:
            files.append(_write(directory / file.name, file.content))
            looked_for = directory.parent / place_of(file.name)
            looked_for.parent.mkdir(exist_ok=True)
            _write(looked_for, file.content)
        files.sort(key=lambda file: file.path)
        manifest = Manifest(config.name, config.max_batch_size, config.signature, tuple(files), provenance)
        _write(directory / MANIFEST_FILE, manifest_to_json(manifest).encode())
    except OSError as error:
        raise PublishError(
            f"{config.name}: cannot be staged in {root}: {error.strerror} ({error.filename})",
            "Free disk space or mend permissions there, or choose another place with --stage-dir.",
            code="stage.write",
        ) from error
    return StagedVersion(config.name, private_repository(root), version, config, manifest)


def _sources(artifact: Artifact, golden_dir: Path, companions: Mapping[str, Path]) -> dict[str, Path]:
    if taken := [name for name in companions if name in RESERVED_FILES or PurePath(name).name != name]:
        raise PublishError(f"cannot be staged, a companion is called {taken[0]!r}", code="stage.companion-name")
    sources = {
        **companions,
        **_model_files(artifact),
        GOLDEN_JSON: golden_dir / GOLDEN_JSON,
        GOLDEN_NPZ: golden_dir / GOLDEN_NPZ,
    }
    if missing := [str(path) for path in sources.values() if not path.is_file()]:
        raise PublishError(f"cannot be staged, no such file: {', '.join(missing)}", code="stage.missing-file")
    return sources


def _model_files(artifact: Artifact) -> dict[str, Path]:
    match artifact:
        case OnnxArtifact():
            # the only place from which every ONNX Runtime reads external data is beside the model, by a plain name
            data = {DATA_FILE: artifact.path.with_name(DATA_FILE)} if artifact.external_data else {}
            return {MODEL_FILE: artifact.path, **data}
        case PythonArtifact():
            return {PYTHON_FILE: artifact.path}
        case EnsembleArtifact():
            return {}  # Triton wants the version's directory, and nothing in it


def _place(source: Path, target: Path, root: Path) -> FileRecord:
    if source.is_symlink() or not source.resolve().is_relative_to(root.resolve()):
        shutil.copyfile(source, target)
    else:
        os.link(source, target)
    return FileRecord(target.name, sha256_file(target), target.stat().st_size)


def _write(target: Path, content: bytes) -> FileRecord:
    target.write_bytes(content)
    return FileRecord(target.name, sha256_bytes(content), len(content))
