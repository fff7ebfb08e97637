"""The result of ``repogen diff``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class VersionRef:
    """A version in a repository."""

    repository: Path
    model: str
    version: int


@dataclass(frozen=True)
class Change:
    """A value that differs.

    Attributes:
        name: What it is.
        before: Its text in the first version; empty if it has none.
        after: Its text in the second version; empty if it has none.
    """

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Metric:
    """A measurement; None where it was not recorded."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class OperatorCount:
    """Number of nodes of an operator, ``domain::name`` outside of ``ai.onnx``."""

    name: str
    before: int
    after: int


@dataclass(frozen=True)
class FileChange:
    """A file that differs.

    Attributes:
        path: Path in the version's directory.
        before: Its size in bytes; None if the first version does not have it.
        after: Its size in bytes; None if the second version does not have it.
    """

    path: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class WeightsDiff:
    """The tensors of two graphs, compared by digest.

    Attributes:
        same: Number of tensors with the same name, type, shape and values.
        changed: Names of tensors whose type, shape or values differ.
        added: Names of tensors that only the second graph has.
        removed: Names of tensors that only the first graph has.
        renamed: Number of tensors with the same content under another name; they are not in ``added`` and ``removed``.
    """

    same: int
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: int

    @property
    def unchanged(self) -> bool:
        """Whether both graphs have the same weights, under any names."""
        return not (self.changed or self.added or self.removed)


@dataclass(frozen=True)
class DiffReport:
    """The result of ``repogen diff``.

    Attributes:
        before: The first version.
        after: The second version.
        identical: Whether all files have the same content.
        signature: Differences of inputs and outputs that a client notices, one line each; None if a version has no
            manifest that can be read.
        weights: The weights; None if one version has no graph that can be read.
        facts: What else is recorded or in the graph and differs: opset, IR, exporter, target, tools, commit.
        nodes: Number of nodes of both graphs; None if one version has no graph that can be read.
        operators: Operators whose number of nodes differs, the largest difference first.
        metrics: Measurements, also those that do not differ.
        sizes: Bytes of the files of both versions.
        files: Files that differ.
        config: Unified diff of the two config.pbtxt; empty if they are the same, None if they were not compared.
        inputs: Inputs of the build that differ, as in the fingerprint: ``spec``, ``weights``, ``file:models.py``.
        notes: What was not compared, and why.
    """

    before: VersionRef
    after: VersionRef
    identical: bool
    signature: tuple[str, ...] | None
    weights: WeightsDiff | None
    facts: tuple[Change, ...]
    nodes: tuple[int, int] | None
    operators: tuple[OperatorCount, ...]
    metrics: tuple[Metric, ...]
    sizes: tuple[int, int]
    files: tuple[FileChange, ...]
    config: tuple[str, ...] | None
    inputs: tuple[str, ...]
    notes: tuple[str, ...]
