"""Verified models in the cache: what the worker returned, with its files, keyed by the inputs of the build."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel, OnnxArtifact
from repogen.artifacts.file_names import DATA_FILE
from repogen.artifacts.steps import PythonArtifact
from repogen.build.cache import digest
from repogen.build.fingerprint import changes, fingerprint
from repogen.worker.job import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.build.cache import Cache, Entry
    from repogen.spec.models import Spec

NOTE = "exported and verified by an earlier build with the same inputs; --force repeats both"
_ARTIFACT, _GOLDEN, _COMPANION = "artifact-", "golden-", "companion-"


@dataclass(frozen=True)
class _Document:
    """What is stored with the files.

    Attributes:
        fingerprint: All inputs of the build.
        diagnostics: Diagnostics of the build.
        built: The model; its paths are names of files in the entry.
    """

    fingerprint: dict[str, str]
    diagnostics: BuildDiagnostics
    built: BuiltModel


_DOCUMENT = TypeAdapter(_Document)


def load_verified(cache: Cache, spec: Spec, name: str, inputs: Mapping[str, str], directory: Path) -> Outcome | None:
    """Return what an earlier build of the same inputs verified; None if there is nothing.

    Args:
        cache: The cache.
        spec: The spec.
        name: The model.
        inputs: The model's ``build_inputs`` and ``step_inputs``.
        directory: Directory for the files; it must not exist.
    """
    for entry in cache.entries(_key(inputs)):
        document = _document(entry)
        if document is None or _is_stale(document, spec, name, inputs):
            continue
        if cache.copy(entry, directory):
            notes = (*document.diagnostics.notes, NOTE)
            diagnostics = replace(document.diagnostics, seconds={}, peak_rss_bytes=0, notes=notes)
            return Outcome(diagnostics, _with_paths(document.built, directory))
    return None


def store_verified(cache: Cache, inputs: Mapping[str, str], built: BuiltModel, diagnostics: BuildDiagnostics) -> None:
    """Store what a worker verified."""
    recorded = fingerprint(inputs, built.imported)
    files = _files(built)
    document = _Document(recorded, diagnostics, _with_names(built))
    cache.store(_key(inputs), digest(recorded), _DOCUMENT.dump_json(document).decode(), files)


def _key(inputs: Mapping[str, str]) -> str:
    return digest({**inputs, "python": platform.python_version(), "machine": platform.machine()})


def _is_stale(document: _Document, spec: Spec, name: str, inputs: Mapping[str, str]) -> bool:
    """Return whether an input changed that is known only after loading the model: code and distributions."""
    steps = {key: value for key, value in inputs.items() if key.startswith("step:")}
    recorded = {key: value for key, value in document.fingerprint.items() if key.startswith("step:")}
    return steps != recorded or bool(changes(document.fingerprint, spec, name))


def _document(entry: Entry) -> _Document | None:
    try:
        return _DOCUMENT.validate_json(entry.document)
    except ValidationError:
        return None


def _files(built: BuiltModel) -> dict[str, Path]:
    """Return the files of a model by their names in an entry."""
    files = {f"{_GOLDEN}{path.name}": path for path in sorted(built.golden_dir.iterdir()) if path.is_file()}
    files |= {f"{_COMPANION}{index}": path for index, path in enumerate(built.companions.values())}
    artifact = built.artifact
    if isinstance(artifact, OnnxArtifact | PythonArtifact):
        files[f"{_ARTIFACT}{artifact.path.name}"] = artifact.path
    if isinstance(artifact, OnnxArtifact) and artifact.external_data:
        files[f"{_ARTIFACT}{DATA_FILE}"] = artifact.path.with_name(DATA_FILE)
    return files


def _with_names(built: BuiltModel) -> BuiltModel:
    """Return a model whose paths are relative, so that no path of this machine is stored."""
    return _relocated(built, Path())


def _relocated(built: BuiltModel, directory: Path) -> BuiltModel:
    artifact = built.artifact
    if isinstance(artifact, OnnxArtifact | PythonArtifact):
        artifact = replace(artifact, path=directory / artifact.path.name)
    companions = {name: directory / f"{_COMPANION}{index}" for index, name in enumerate(built.companions)}
    return replace(built, artifact=artifact, golden_dir=directory, companions=companions)


def _with_paths(built: BuiltModel, directory: Path) -> BuiltModel:
    """Return a model with the paths of its files in a directory; files get back the names that they had."""
    for path in sorted(directory.iterdir()):
        for prefix in (_ARTIFACT, _GOLDEN):
            if path.name.startswith(prefix):
                path.rename(directory / path.name.removeprefix(prefix))
    return _relocated(built, directory)
