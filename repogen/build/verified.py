"""Verified models in the cache: what the worker returned, with its files, keyed by the inputs of the worker.

The worker receives only the parts of a spec that it uses (``worker_model``), and these are the key: an edit of another
part, such as ``instance_group`` or a template, needs a new config.pbtxt and a smoke test, but no new export. A verified
model is also used for another target release if the graph meets its limits, loads in its ONNX Runtime with the same
shapes, and returns the golden outputs there.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.built_model import BatchReport, BuildDiagnostics, BuiltModel, OnnxArtifact
from repogen.artifacts.file_names import DATA_FILE
from repogen.artifacts.steps import PythonArtifact
from repogen.build.cache import digest
from repogen.build.fingerprint import SPEC_PART, block_digest, fingerprint, imports_changed
from repogen.errors import RepogenError
from repogen.files import is_plain_name
from repogen.plugins import is_built_in
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.spec.models import ResourcesSpec
from repogen.targets import target_of
from repogen.triton_config.rules.target import target_findings
from repogen.triton_config.sections.model import TritonSpec
from repogen.worker.job import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repogen.build.cache import Cache, Entry
    from repogen.spec.models import ModelSpec, Spec
    from repogen.targets import Target

_TRITON_INPUTS = ("batch_input", "batch_output", "input", "max_batch_size", "sequence_batching")
"""Keys of ``triton:`` that decide how a model is verified."""
_CODE_KINDS = frozenset({"python", "ensemble"})
_CODE_INPUTS = ("max_batch_size", "parameters", "sequence_batching")
"""Keys of ``triton:`` that Python code and the verification of ensembles can read."""
_OF_CONFIG = ("the template ", "the file of triton.")
"""Beginnings of the reasons that change only config.pbtxt."""
NOTE = "exported and verified by an earlier build with the same inputs; --force repeats both"
_ARTIFACT, _GOLDEN, _COMPANION = "artifact-", "golden-", "companion-"


@dataclass(frozen=True)
class _Document:
    """What is stored with the files.

    Attributes:
        fingerprint: All inputs of the build.
        release: Target Triton release.
        requested: ``triton.max_batch_size`` of the spec.
        diagnostics: Diagnostics of the build.
        built: The model; its paths are names of files in the entry.
    """

    fingerprint: dict[str, str]
    release: str
    requested: int | Literal["auto"]
    diagnostics: BuildDiagnostics
    built: BuiltModel


_DOCUMENT = TypeAdapter(_Document)


def worker_model(model: ModelSpec) -> ModelSpec:
    """Return the part of a spec entry that the worker receives; everything for the source of a plug-in."""
    if not is_built_in("repogen.sources", model.source.kind):
        return model
    keys = _CODE_INPUTS if model.source.kind in _CODE_KINDS else _TRITON_INPUTS
    triton = TritonSpec().model_copy(update={key: getattr(model.triton, key) for key in keys})
    return model.model_copy(
        update={"triton": triton, "promotion": type(model.promotion)(), "description": "", "resources": ResourcesSpec()}
    )


def export_reasons(model: ModelSpec, reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the reasons for which a model is exported and verified again; the others change only its config.

    Args:
        model: The spec entry.
        reasons: Why the model is built, as ``repogen.build.fingerprint.changes`` returns it.
    """
    received = worker_model(model)
    if received is model:
        return tuple(reasons)
    keys = _CODE_INPUTS if model.source.kind in _CODE_KINDS else _TRITON_INPUTS
    config = [f"triton.{key} in the spec " for key in TritonSpec.model_fields if key not in keys]
    return tuple(reason for reason in reasons if not reason.startswith((*_OF_CONFIG, *config)))


def load_verified(
    cache: Cache, spec: Spec, name: str, inputs: Mapping[str, str], directory: Path, threads: int = 1
) -> Outcome | None:
    """Return what an earlier build of the same inputs verified; None if there is nothing.

    Args:
        cache: The cache.
        spec: The spec.
        name: The model.
        inputs: The model's ``build_inputs`` and ``step_inputs``.
        directory: Directory for the files; it must not exist.
        threads: Number of compute threads for another target's ONNX Runtime.
    """
    model = spec.models[name]
    for entry in cache.entries(_key(inputs, model)):
        document = _document(entry)
        if document is None or imports_changed(document.fingerprint, spec.root):
            continue
        batch = _batch_of(document, model.triton.max_batch_size)
        if batch is None or not cache.copy(entry, directory):
            continue
        try:
            built = replace(with_paths(document.built, directory), batch=batch)
        except OSError:
            shutil.rmtree(directory)
            continue
        notes = (*document.diagnostics.notes, NOTE)
        if document.release != spec.release:
            if not _meets(built, document.release, spec.release, threads):
                shutil.rmtree(directory)
                continue
            notes = (*notes, f"exported for Triton {document.release}, and checked again for {spec.release}")
        return Outcome(replace(document.diagnostics, seconds={}, peak_rss_bytes=0, notes=notes), built)
    return None


def store_verified(
    cache: Cache, spec: Spec, name: str, inputs: Mapping[str, str], built: BuiltModel, diagnostics: BuildDiagnostics
) -> None:
    """Store what a worker verified."""
    recorded = fingerprint(inputs, built.imported)
    model = spec.models[name]
    requested = model.triton.max_batch_size
    document = _Document(recorded, spec.release, requested, diagnostics, with_names(built))
    cache.store(_key(inputs, model), digest(recorded), _DOCUMENT.dump_json(document).decode(), files_of(built))


def _key(inputs: Mapping[str, str], model: ModelSpec) -> str:
    """Return a digest of what the worker receives and of the files that it reads, except the target and max_batch_size.

    These two are compared when an entry is read: a graph for one target may meet another, and rows that are independent
    in a batch are independent in a smaller one.
    """
    received = worker_model(model)
    irrelevant: tuple[str, ...] = (SPEC_PART,) if received is model else (SPEC_PART, "template:", "triton:")
    relevant = {key: value for key, value in inputs.items() if not key.startswith(irrelevant)}
    if _is_plain_batch(model):
        triton = received.triton.model_copy(update={"max_batch_size": TritonSpec().max_batch_size})
        received = received.model_copy(update={"triton": triton})
    relevant |= {"spec": block_digest(received), "target": "", "python": platform.python_version()}
    return digest({**relevant, "machine": platform.machine()})


def _is_plain_batch(model: ModelSpec) -> bool:
    """Return whether ``max_batch_size`` only limits how many rows are batched."""
    return worker_model(model) is not model and not model.triton.ragged and model.source.kind not in _CODE_KINDS


def _batch_of(document: _Document, requested: int | Literal["auto"]) -> BatchReport | None:
    """Return the result of the batching check for a ``max_batch_size``; None if it was not verified."""
    batch = document.built.batch
    if requested == document.requested:
        return batch
    if batch.batchable and isinstance(requested, int) and 0 < requested <= batch.max_batch_size:
        return replace(batch, max_batch_size=requested)
    return None


def _meets(built: BuiltModel, before: str, release: str, threads: int) -> bool:
    """Return whether a graph that was verified for one release can be published for another."""
    target, graph = target_of(release), built.artifact
    if not isinstance(graph, OnnxArtifact):
        return isinstance(graph, PythonArtifact)  # its code does not depend on the target
    if not target.serves_bfloat16 and any(output.dtype == "bfloat16" for output in graph.signature.outputs):
        return False
    if target_findings(graph.opset, graph.ir_version, target):
        return False
    return target.onnxruntime == target_of(before).onnxruntime or _runs_in(target, built, graph, threads)


def _runs_in(target: Target, built: BuiltModel, graph: OnnxArtifact, threads: int) -> bool:
    """Return whether the target's ONNX Runtime infers the same shapes and returns the golden outputs."""
    # Imports ONNX Runtime, which few builds need in this process.
    from repogen.onnx_graph.written_shapes import with_output_shapes  # noqa: PLC0415
    from repogen.worker.target_runtime import target_runtime  # noqa: PLC0415

    with target_runtime(target, threads) as runtime:
        if runtime.installation is None:  # graphs are not loaded in repogen's own process
            return False
        try:
            if with_output_shapes(graph, runtime.load(graph)) != graph:
                return False
            runtime.check(graph, built.golden_dir)
        except RepogenError:
            return False
    return True


def _document(entry: Entry) -> _Document | None:
    try:
        return _DOCUMENT.validate_json(entry.document)
    except ValidationError:
        return None


def files_of(built: BuiltModel) -> dict[str, Path]:
    """Return the files of a model by their names in an entry."""
    files = {f"{_GOLDEN}{name}": built.golden_dir / name for name in (GOLDEN_JSON, GOLDEN_NPZ)}
    files |= {f"{_COMPANION}{index}": path for index, path in enumerate(built.companions.values())}
    artifact = built.artifact
    if isinstance(artifact, OnnxArtifact | PythonArtifact):
        files[f"{_ARTIFACT}{artifact.path.name}"] = artifact.path
    if isinstance(artifact, OnnxArtifact) and artifact.external_data:
        files[f"{_ARTIFACT}{DATA_FILE}"] = artifact.path.with_name(DATA_FILE)
    return files


def with_names(built: BuiltModel) -> BuiltModel:
    """Return a model whose paths are relative, so that no path of this machine is stored."""
    return _relocated(built, Path())


def _relocated(built: BuiltModel, directory: Path) -> BuiltModel:
    artifact = built.artifact
    if isinstance(artifact, OnnxArtifact | PythonArtifact):
        artifact = replace(artifact, path=directory / artifact.path.name)
    if isinstance(artifact, PythonArtifact):
        artifact = replace(artifact, packed=None)  # packages are added when the model is staged
    companions = {name: directory / f"{_COMPANION}{index}" for index, name in enumerate(built.companions)}
    return replace(built, artifact=artifact, golden_dir=directory, companions=companions)


def with_paths(built: BuiltModel, directory: Path) -> BuiltModel:
    """Return a model with the paths of its files in a directory; files get back the names that they had.

    Raises:
        FileNotFoundError: A file of the model is missing.
        OSError: It is not a regular file, or has no name of its own, or two have the same one.
    """
    names = {path.name: _own_name(path.name) for path in directory.iterdir()}
    for name, own in names.items():
        others = [other for other in names if other != name and own in {other, names[other]}]
        if others or not is_plain_name(own) or not stat.S_ISREG((directory / name).lstat().st_mode):
            raise OSError(errno.EINVAL, "not a regular file with a unique name", name)
    for name, own in names.items():
        (directory / name).rename(directory / own)
    relocated = _relocated(built, directory)
    for path in files_of(relocated).values():
        if path.name not in names.values():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path.name)
    return relocated


def _own_name(name: str) -> str:
    prefix = next((prefix for prefix in (_ARTIFACT, _GOLDEN) if name.startswith(prefix)), "")
    return name.removeprefix(prefix)
