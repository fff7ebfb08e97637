"""Stages versions in a private repository, as the real repository will contain them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Artifact, FileRecord, OnnxArtifact
from repogen.artifacts.file_names import (
    CONFIG_FILE,
    DATA_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PACKED_CODE_FILE,
    PYTHON_FILE,
    REQUIREMENTS_FILE,
    RESERVED_FILES,
)
from repogen.artifacts.named_file import path_in_model
from repogen.artifacts.steps import EnsembleArtifact, PythonArtifact
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.errors import PublishError
from repogen.files import is_inside, is_plain_name, open_inside
from repogen.files.content import write_new
from repogen.files.tree import remove_tree, walk
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.filesystem import make_readable
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.repository.layout import model_dir, next_version, require_own_directories, versions
from repogen.repository.manifest import manifest_to_json
from repogen.repository.workspace import private_repository, write_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def stage_version(  # noqa: PLR0913 - the parts of a version
    root: Path,
    repository: Path,
    config: ModelConfig,
    artifact: Artifact,
    golden_dir: Path,
    provenance: Provenance,
    *,
    companions: Mapping[str, Path] | None = None,
) -> StagedVersion:
    """Write ``<root>/repository/<name>/`` with one version; its manifest is written last.

    Files below ``root`` are hard-linked, so a model of many GB is not copied; other files may be written to later, and
    are copied. Equal arguments give equal bytes.

    Args:
        root: As ``prepare_stage_root`` yields it.
        repository: The real repository; it determines the tentative version number.
        config: The checked config.pbtxt.
        artifact: The verified ONNX file, Python code, or ensemble.
        golden_dir: Directory with ``golden.json`` and ``golden.npz``.
        provenance: How the version was built.
        companions: Files to publish with it, by name, for example a tokenizer or a license. They are copied.

    Returns:
        The staged version with its manifest: sha256 and size of every other file of the version directory.

    Raises:
        PublishError: A file is missing or cannot be written.
    """
    version = next_version(model_dir(repository, config.name))
    directory = model_dir(private_repository(root), config.name) / str(version)
    try:
        directory.mkdir(parents=True)
        write_new(directory.parent / CONFIG_FILE, config.text.encode())
        sources = _sources(artifact, golden_dir, companions or {})
        files = [_link_or_copy(source, directory, name, root) for name, source in sources.items()]
        files.append(_write(directory / CONFIG_FILE, config.text.encode()))
        if isinstance(artifact, PythonArtifact) and artifact.requirements and artifact.packed is None:
            files.append(_write(directory / REQUIREMENTS_FILE, "\n".join([*artifact.requirements, ""]).encode()))
        for file in config.named_files:
            files.append(_write(directory / file.name, file.content))
            copy = directory.parent / path_in_model(file.name)
            copy.parent.mkdir(exist_ok=True)
            _write(copy, file.content)
        files.sort(key=lambda file: file.path)
        manifest = Manifest(config.name, config.max_batch_size, config.signature, tuple(files), provenance)
        _write(directory / MANIFEST_FILE, manifest_to_json(manifest).encode())
        make_readable(directory.parent)  # smoke tests may run a Triton of another user on it
    except OSError as error:
        raise write_error(config.name, root, error) from error
    return StagedVersion(config.name, private_repository(root), version, config, manifest)


def stage_dependencies(scratch: Path, repository: Path, names: Iterable[str]) -> None:
    """Hard-link published models into a private repository, except for those that are staged there already.

    Args:
        scratch: The private repository.
        repository: The real one, on the same filesystem.
        names: The models that an ensemble depends on.

    Raises:
        PublishError: A model is in neither repository, or can't be linked.
    """
    for name in names:
        staged_dir, published_dir = model_dir(scratch, name), model_dir(repository, name)
        if versions(staged_dir):
            continue
        require_step(published_dir)
        try:
            remove_tree(staged_dir)  # the rest of a version that was published from here
            shutil.copytree(published_dir, staged_dir, symlinks=True, copy_function=os.link)
        except (OSError, shutil.Error, RecursionError) as error:
            raise PublishError(f"{name} can't be staged as a step: {error}", code="stage.write") from error


def require_step(directory: Path) -> None:
    """Require that a model which an ensemble uses was published.

    Raises:
        PublishError: Its directory has no version, or another user created it.
    """
    require_own_directories(directory)
    if not versions(directory):
        raise PublishError(
            f"{directory.name} is a step of an ensemble and is not in {directory.parent} yet",
            "build it together with the ensemble: pass both with --model, or omit --model",
            code="stage.no-step",
        )


def _sources(artifact: Artifact, golden_dir: Path, companions: Mapping[str, Path]) -> dict[str, Path]:
    if conflicts := [name for name in companions if name in RESERVED_FILES or not is_plain_name(name)]:
        raise PublishError(
            f"cannot be staged: a companion file is named {conflicts[0]!r}, which is reserved or not a plain name",
            "rename it",
            code="stage.companion-name",
        )
    sources = {
        **companions,
        **_model_files(artifact),
        GOLDEN_JSON: golden_dir / GOLDEN_JSON,
        GOLDEN_NPZ: golden_dir / GOLDEN_NPZ,
    }
    if missing_files := [str(path) for path in sources.values() if not path.is_file()]:
        raise PublishError(f"cannot be staged, no such file: {', '.join(missing_files)}", code="stage.missing-file")
    return sources


def _model_files(artifact: Artifact) -> dict[str, Path]:
    match artifact:
        case OnnxArtifact():
            # every ONNX Runtime reads external data only from the model's directory, by a plain name
            data = {DATA_FILE: artifact.path.with_name(DATA_FILE)} if artifact.external_data else {}
            return {MODEL_FILE: artifact.path, **data}
        case PythonArtifact() if artifact.packed is not None:
            return {**_files_below(artifact.packed), PACKED_CODE_FILE: artifact.path}
        case PythonArtifact():
            return {PYTHON_FILE: artifact.path}
        case EnsembleArtifact():
            return {}  # Triton requires the version's directory, and no file in it


def _files_below(directory: Path) -> dict[str, Path]:
    files = (folder / name for folder, _, names in walk(directory, strict=True) for name in names)
    return {path.relative_to(directory).as_posix(): path for path in files}


def _link_or_copy(source: Path, directory: Path, name: str, root: Path) -> FileRecord:
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() or not is_inside(source, root):
        # code of Python steps; another user may have replaced it by a link
        with open_inside(source, source.parent) as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer)
    else:
        os.link(source, target)
    return FileRecord(name, sha256_file(target), target.stat().st_size)


def _write(target: Path, content: bytes) -> FileRecord:
    write_new(target, content)
    return FileRecord(target.name, sha256_bytes(content), len(content))
