"""A model version: its config, provenance and manifest, staged and published."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, DATA_FILE, MODEL_FILE, PACKED_CODE_FILE, PYTHON_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import FileRecord, Lossy
    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Signature

REGISTERED = "registered"
"""Key in the fingerprint of a version that went into a model registry."""
STEP = "step:"
"""Prefix of the keys in an ensemble's fingerprint with the content of each model that it uses."""


@dataclass(frozen=True)
class ModelConfig:
    """A config.pbtxt that was rendered, parsed back and checked.

    Attributes:
        name: Model name.
        text: The file's text, UTF-8, Unix line ends.
        max_batch_size: 0 if the model does not batch.
        signature: Inputs and outputs with full shapes, the batch included.
        named_files: The files that it names: class names, warmup data, initial states.
        notes: Notes for the report.
    """

    name: str
    text: str
    max_batch_size: int
    signature: Signature
    named_files: tuple[NamedFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """How a version was built, as recorded in the manifest; without paths of the machine and times of day.

    Attributes:
        tools: Tool -> version.
        git_commit: Commit of the spec's repository, with ``-dirty`` if it had changes; empty outside git.
        spec_sha256: Digest of the model's spec block.
        fingerprint: Key -> digest or version of everything the build depends on (see ``repogen.build.fingerprint``).
        target: Triton release.
        exporter: ``dynamo`` or ``torchscript``; ``python`` or ``ensemble`` for a model without a graph.
        opset: ``ai.onnx`` opset; 0 without a graph.
        ir_version: ONNX IR version; 0 without a graph.
        nodes_exported: Nodes before optimization.
        nodes_optimized: Nodes of the published graph.
        parity_cases: Number of parity cases.
        parity_max_abs_diff: Largest absolute difference from the original.
        parity_max_rel_diff: Largest relative difference from the original.
        lossy: The lossy passes that were applied, and the quality that was measured; None if there were none.
    """

    tools: dict[str, str]
    git_commit: str
    spec_sha256: str
    fingerprint: dict[str, str]
    target: str
    exporter: str
    opset: int
    ir_version: int
    nodes_exported: int
    nodes_optimized: int
    parity_cases: int
    parity_max_abs_diff: float
    parity_max_rel_diff: float
    lossy: Lossy | None = None

    @property
    def registered(self) -> bool:
        """Whether the version went into a model registry."""
        return REGISTERED in self.fingerprint

    @property
    def steps(self) -> dict[str, str]:
        """The models that an ensemble uses, directly or not -> ``content_sha256`` of the version it was verified with.

        Empty for a model that is not an ensemble.
        """
        return {key.removeprefix(STEP): value for key, value in self.fingerprint.items() if key.startswith(STEP)}


@dataclass(frozen=True)
class Manifest:
    """``manifest.json`` of a version directory, written last.

    Attributes:
        model: Model name.
        max_batch_size: As in the version's config.pbtxt.
        signature: Full shapes.
        files: Every other file of the version directory.
        provenance: How it was built.
    """

    model: str
    max_batch_size: int
    signature: Signature
    files: tuple[FileRecord, ...]
    provenance: Provenance

    @cached_property
    def sha256(self) -> str:
        """Digest of ``model.onnx``, of the user's file for Python code, or of config.pbtxt for an ensemble."""
        digests = {record.path: record.sha256 for record in self.files}
        names = (MODEL_FILE, PACKED_CODE_FILE, PYTHON_FILE, CONFIG_FILE)
        return next(digests[name] for name in names if name in digests)

    @cached_property
    def model_size(self) -> int:
        """Bytes of the graph and its weights, or of the Python code; 0 for an ensemble."""
        names = {MODEL_FILE, DATA_FILE, PACKED_CODE_FILE, PYTHON_FILE}
        return sum(record.size for record in self.files if record.path in names)

    @cached_property
    def size(self) -> int:
        """Total bytes of the files that it lists."""
        return sum(record.size for record in self.files)

    @cached_property
    def content_sha256(self) -> str:
        """Digest over the path and digest of every file; it identifies a version in a registry and in a repository."""
        lines = sorted(f"{record.path} {record.sha256}\n" for record in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class StagedVersion:
    """A private one-version model directory: ``<repository>/<name>/{config.pbtxt,<version>/…}``.

    Attributes:
        name: Model name.
        repository: Root of the private repository, outside the real one and on the same filesystem.
        version: Number of the staged directory; publish may change it.
        config: Its config.
        manifest: Its manifest.
    """

    name: str
    repository: Path
    version: int
    config: ModelConfig
    manifest: Manifest

    @property
    def model_dir(self) -> Path:
        """Directory of the model in the private repository."""
        return self.repository / self.name

    @property
    def version_dir(self) -> Path:
        """Directory of the version in the private repository."""
        return self.model_dir / str(self.version)


@dataclass(frozen=True)
class PublishedVersion:
    """A version in the real repository.

    Attributes:
        name: The model.
        version: Its number.
        path: Its directory.
        sha256: As ``Manifest.sha256``.
        held: The version that is served instead, because `repogen rollback` holds it; None without a hold.
    """

    name: str
    version: int
    path: Path
    sha256: str
    held: int | None = None
