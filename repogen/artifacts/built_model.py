"""What export, optimize and validate hand on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - the worker's answer is decoded by these annotations
from typing import TypeAlias

from repogen.artifacts.steps import EnsembleArtifact, PythonArtifact
from repogen.artifacts.tensors import Signature  # noqa: TC001 - the same


@dataclass(frozen=True)
class FileRecord:
    """A file that a step wrote.

    Attributes:
        path: Path relative to the directory that holds it, with forward slashes.
        sha256: Hex digest of its bytes.
        size: Bytes.
    """

    path: str
    sha256: str
    size: int


@dataclass(frozen=True)
class OnnxArtifact:
    """An ONNX model on disk.

    Attributes:
        path: ``model.onnx``; its external data, if any, lies beside it as ``model.onnx.data``.
        external_data: Whether that data file exists.
        signature: The graph's inputs and outputs as the graph states them.
        opset: Version of the ``ai.onnx`` domain.
        ir_version: ONNX IR version.
        nodes: Number of nodes, those of subgraphs included.
        exporter: Name of the rung that made it, such as ``dynamo`` or ``torchscript-eager``.
        unused: Inputs that nothing in the graph reads.
        doubts: Sizes of all dims at which something may not hold that the exporter took for granted.
    """

    path: Path
    external_data: bool
    signature: Signature
    opset: int
    ir_version: int
    nodes: int
    exporter: str
    unused: tuple[str, ...] = ()
    doubts: tuple[dict[str, int], ...] = ()


Artifact: TypeAlias = OnnxArtifact | PythonArtifact | EnsembleArtifact
"""What is published as a version."""


@dataclass(frozen=True)
class ExportAttempt:
    """What one exporter did: ``ok`` or why not, in one line."""

    exporter: str
    ok: bool
    reason: str
    seconds: float


UNCHANGED = "it changed nothing"
"""Reason of a pass that left the graph as it was: nothing that a person needs to know."""


@dataclass(frozen=True)
class PassOutcome:
    """What one optimization pass did; a dropped pass says why."""

    name: str
    applied: bool
    nodes_before: int
    nodes_after: int
    reason: str = ""


@dataclass(frozen=True)
class ParityCase:
    """One comparison of PyTorch and ONNX Runtime.

    Attributes:
        name: For example ``batch=2,sequence=16 seed=0``.
        max_abs_diff: Largest absolute difference over all outputs.
        max_rel_diff: Largest relative difference.
        cosine: Smallest cosine similarity over the outputs.
        passed: Within tolerance, equal shapes and dtypes, no NaN or Inf.
        reason: Why it failed; empty when it passed.
    """

    name: str
    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class ParityReport:
    """Every case, those left out because the budget was spent, and sizes that the original itself does not take."""

    cases: tuple[ParityCase, ...]
    skipped: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True when at least one case ran and none failed."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    @property
    def max_abs_diff(self) -> float:
        """Largest absolute difference over all cases."""
        return max((case.max_abs_diff for case in self.cases), default=0.0)

    @property
    def max_rel_diff(self) -> float:
        """Largest relative difference over all cases."""
        return max((case.max_rel_diff for case in self.cases), default=0.0)


@dataclass(frozen=True)
class Divergence:
    """The first operator of the original whose output the graph does not compute.

    Attributes:
        operator: For example ``aten.floor_divide``.
        module: Path of the module that runs it; empty for the model itself.
        where: ``file.py:line`` that calls it.
        shape: Of its output.
        place: Index of the value that is farthest off.
        expected: PyTorch's value there.
        actual: The graph's, in its nearest value of that shape; None when it has none.
        node: Operator and name of that value in the graph.
    """

    operator: str
    module: str
    where: str
    shape: tuple[int, ...]
    place: tuple[int, ...]
    expected: float
    actual: float | None
    node: str

    def __str__(self) -> str:
        """Say it in one line."""
        inside = f" in module {self.module!r}" if self.module else ""
        at = f" ({self.where})" if self.where else ""
        begin = f"{self.operator}{inside}{at} is the first to differ: output {list(self.shape)}"
        if self.actual is None:
            return (
                f"{begin}, PyTorch {self.expected:.6g} at {list(self.place)}, and no value of that shape in the graph"
            )
        return (
            f"{begin}, at {list(self.place)} PyTorch {self.expected:.6g}, "
            f"nearest in the graph {self.actual:.6g} ({self.node})"
        )


@dataclass(frozen=True)
class BatchReport:
    """Whether rows are independent and every output has the batch on axis 0.

    Attributes:
        batchable: The verdict, measured.
        max_batch_size: What config.pbtxt may say; 0 when not batchable or not asked for.
        reason: Why not batchable; empty otherwise.
    """

    batchable: bool
    max_batch_size: int
    reason: str = ""


@dataclass(frozen=True)
class GoldenTensor:
    """Where one golden array lies in ``golden.npz``."""

    name: str
    key: str


@dataclass(frozen=True)
class GoldenCase:
    """One input and PyTorch's output, kept for smoke tests anywhere.

    Attributes:
        name: The parity case it was taken from.
        batch: Size of axis 0 of every tensor when the model batches, else 0.
        inputs: Input arrays.
        outputs: Output arrays as PyTorch computed them.
    """

    name: str
    batch: int
    inputs: tuple[GoldenTensor, ...]
    outputs: tuple[GoldenTensor, ...]


@dataclass(frozen=True)
class Golden:
    """Contents of ``golden.json``, beside ``golden.npz``: the cases, and the tolerance of each output by name."""

    cases: tuple[GoldenCase, ...]
    tolerances: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class ImportedCode:
    """What the worker imported: the model's code outside site-packages, and the distributions it used.

    Attributes:
        files: Path relative to the spec's directory (``..`` allowed) -> sha256.
        distributions: Distribution name -> version.
    """

    files: dict[str, str]
    distributions: dict[str, str]


@dataclass(frozen=True)
class BuildDiagnostics:
    """Diagnostics of a build: complete, or up to the point where something ended it.

    Attributes:
        notes: Notes for the report, such as that the factory returned a model in training mode.
        attempts: Outcome of each exporter that was tried.
        passes: Outcome of each optimization pass, for the last exporter whose graph was optimized.
        seconds: Wall time of each step.
        peak_rss_bytes: Largest resident memory of the worker.
    """

    notes: tuple[str, ...] = ()
    attempts: tuple[ExportAttempt, ...] = ()
    passes: tuple[PassOutcome, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0


@dataclass(frozen=True)
class BuiltModel:
    """What the worker hands back for one model that holds: verified bytes and their proofs.

    Attributes:
        artifact: What to publish, with the spec's names.
        golden_dir: Directory holding ``golden.json`` and ``golden.npz``.
        nodes_exported: Nodes as the exporter wrote them.
        parity: The comparison with PyTorch.
        batch: The verdict on batching.
        imported: Code the build depended on.
        companions: Files that travel with the model, by name.
        labels: Names of classes by output.
    """

    artifact: Artifact
    golden_dir: Path
    nodes_exported: int
    parity: ParityReport
    batch: BatchReport
    imported: ImportedCode
    companions: dict[str, Path] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
