"""The results of export, optimization and validation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path  # noqa: TC003 - pydantic decodes the worker's events by these annotations
from typing import ClassVar, Literal, TypeAlias

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
        path: ``model.onnx``; its external data, if any, is in ``model.onnx.data`` in the same directory.
        external_data: Whether it has external data.
        signature: Inputs and outputs of the graph.
        opset: Version of the ``ai.onnx`` domain.
        ir_version: ONNX IR version.
        nodes: Number of nodes, including those of subgraphs.
        exporter: Name of the exporter that wrote it, such as ``dynamo`` or ``torchscript-eager``.
        unused: Inputs that no node of the graph reads.
        guard_violations: Sizes of all dims at which the graph may be wrong: they violate an assumption of the exporter.
        operators: Number of nodes by operator, including those of subgraphs; ``domain::name`` outside of ``ai.onnx``.
    """

    path: Path
    external_data: bool
    signature: Signature
    opset: int
    ir_version: int
    nodes: int
    exporter: str
    unused: tuple[str, ...] = ()
    guard_violations: tuple[dict[str, int], ...] = ()
    operators: dict[str, int] = field(default_factory=dict)


Artifact: TypeAlias = OnnxArtifact | PythonArtifact | EnsembleArtifact
"""What a version contains."""


@dataclass(frozen=True)
class ExportAttempt:
    """The outcome of one exporter; ``reason`` is the failure in one line."""

    exporter: str
    ok: bool
    reason: str
    seconds: float


UNCHANGED = "it changed nothing"
"""Reason of a pass that did not change the graph; reports leave it out."""


@dataclass(frozen=True)
class Gain:
    """The effect of a pass on latency, measured in ONNX Runtime on golden inputs.

    Attributes:
        before_ms: Median latency of the graph before the pass, in milliseconds.
        after_ms: Median latency of its result.
        ratio: Median over the rounds of the latency before divided by the latency after; above 1 is faster.
        low: Lower end of the confidence interval of ``ratio``.
        high: Upper end.
        required: What ``low`` must reach for the result to be used.
    """

    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float
    required: float

    @property
    def pays(self) -> bool:
        """Whether the gain exceeds the noise."""
        return self.low >= self.required

    @property
    def obstacle(self) -> str:
        """Why a result without a certain gain is not used."""
        if self.ratio < self.required:
            return f"no measured gain: {self}"
        condition = f", of which the lower end must be at least {self.required:g})"
        return f"the gain is not certain: {str(self).removesuffix(')')}{condition}"

    def __str__(self) -> str:
        """Return the figures for messages."""
        return (
            f"{self.ratio:.2f}x as fast ({self.before_ms:.3g} -> {self.after_ms:.3g} ms; "
            f"interval {self.low:.2f} to {self.high:.2f})"
        )


@dataclass(frozen=True)
class Quality:
    """A figure of the user's code for the original and for an optimized graph; higher is better.

    Attributes:
        reference: The figure of the original.
        optimized: The figure of the graph.
        max_drop: Budget: how far the graph's may be below the original's.
    """

    reference: float
    optimized: float
    max_drop: float

    @property
    def passed(self) -> bool:
        """Whether the drop is within the budget."""
        return round(self.reference - self.optimized, 12) <= self.max_drop  # 0.95 - 0.945 must not exceed 0.005

    def __str__(self) -> str:
        """Return the figures for messages.

        >>> str(Quality(0.958, 0.9557, 0.01))
        'quality 0.958 -> 0.9557 (budget 0.01)'
        """
        return f"quality {self.reference:.6g} -> {self.optimized:.6g} (budget {self.max_drop:g})"


Precision: TypeAlias = Literal["float16", "bfloat16", "qint8"]
"""A precision below float32; ``qint8`` is 8 bits with a scale."""


@dataclass(frozen=True)
class Lossy:
    """How a published graph differs from one that has parity with the original.

    Attributes:
        passes: The lossy passes that were applied, in order.
        precision: The coarsest precision that they compute in.
        quality: The figures of the user's code; None if the graph is within the tolerances of parity.
    """

    passes: tuple[str, ...]
    precision: Precision
    quality: Quality | None = None

    @property
    def has_parity(self) -> bool:
        """Whether the outputs are within the tolerances of parity."""
        return self.quality is None

    def __str__(self) -> str:
        """Return one line for reports.

        >>> str(Lossy(("int8-dynamic",), "qint8", Quality(0.958, 0.956, 0.01)))
        'lossy: int8-dynamic, quality 0.958 -> 0.956 (budget 0.01)'
        """
        return f"lossy: {', '.join(self.passes)}, {self.quality or 'within the tolerances of parity'}"


@dataclass(frozen=True)
class PassOutcome:
    """The outcome of one optimization pass.

    Attributes:
        name: Name of the pass.
        applied: Whether its result is used.
        nodes_before: Number of nodes of the graph before it.
        nodes_after: Number of nodes after it; the same if the result is not used.
        reason: Why the result is not used; empty if it is.
        lossy: Whether the pass computes in a lower precision.
        gain: The measured effect on latency; None if it was not measured.
        quality: The figures of the user's code; None if they were not measured.
        operators_before: Number of nodes by operator of the graph before it.
        operators_after: The same after it; equal if the result is not used.
    """

    name: str
    applied: bool
    nodes_before: int
    nodes_after: int
    reason: str = ""
    lossy: bool = False
    gain: Gain | None = None
    quality: Quality | None = None
    operators_before: dict[str, int] = field(default_factory=dict)
    operators_after: dict[str, int] = field(default_factory=dict)

    def dropped(self, reason: str) -> PassOutcome:
        """Return the outcome of the same pass if its result is not used."""
        return replace(
            self, applied=False, nodes_after=self.nodes_before, operators_after=self.operators_before, reason=reason
        )


_INFINITY_AS_TEXT = {"ser_json_inf_nan": "strings"}
"""pydantic writes infinity as null otherwise."""


@dataclass(frozen=True)
class OutputDifference:
    """The differences of one output in one parity case; as in ``ParityCase``."""

    __pydantic_config__: ClassVar = _INFINITY_AS_TEXT
    name: str
    max_abs_diff: float
    max_rel_diff: float


@dataclass(frozen=True)
class ErrorDistribution:
    """The errors of one output over all parity cases.

    Attributes:
        name: Name of the output.
        rtol: Relative tolerance.
        atol: Absolute tolerance, at the magnitude of the output over all cases; None if it has no tolerance, as for a
            lossy model that is judged by its quality.
        exact: Number of values that are equal.
        histogram: Number of the other values by ``floor(2 * log10(error))``: the error of bin ``k`` is at least
            ``10 ** (k / 2)`` and less than ``10 ** ((k + 1) / 2)``. Values that are not finite are not counted.
    """

    name: str
    rtol: float
    atol: float | None
    exact: int
    histogram: dict[int, int]


@dataclass(frozen=True)
class ParityCase:
    """One comparison of PyTorch and ONNX Runtime.

    Attributes:
        name: For example ``batch=2,sequence=16 seed=0``.
        max_abs_diff: Largest absolute difference over all outputs.
        max_rel_diff: ``max_abs_diff`` relative to the output's largest value.
        cosine: Smallest cosine similarity over the outputs.
        passed: Within tolerance, equal shapes, dtypes and infinities, no NaN.
        reason: Why it failed; empty when it passed.
        sizes: Size of each symbolic dim.
        outputs: The differences of each output; empty if the published model failed.
    """

    __pydantic_config__: ClassVar = _INFINITY_AS_TEXT
    name: str
    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    passed: bool
    reason: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    outputs: tuple[OutputDifference, ...] = ()


@dataclass(frozen=True)
class ParityReport:
    """The result of all comparisons.

    Attributes:
        cases: The cases.
        skipped: Names of the cases that were skipped when the time budget was spent.
        unanswered: Names of the cases that the original model rejects.
        notes: Messages for the report, such as on outputs that prove nothing.
        outputs: The errors of each output.
    """

    cases: tuple[ParityCase, ...]
    skipped: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: tuple[ErrorDistribution, ...] = ()

    @property
    def passed(self) -> bool:
        """True if at least one case ran and none failed."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    @property
    def max_abs_diff(self) -> float:
        """Largest absolute difference over all cases."""
        return max((case.max_abs_diff for case in self.cases), default=0.0)

    @property
    def max_rel_diff(self) -> float:
        """Largest relative difference over all cases."""
        return max((case.max_rel_diff for case in self.cases), default=0.0)


def distinct_texts(first: float, second: float) -> tuple[str, str]:
    """Return two numbers as text, with six digits, or as many as are necessary to show that they differ.

    >>> distinct_texts(0.1, 0.2), distinct_texts(8.2805611, 8.2805615)
    (('0.1', '0.2'), ('8.2805611', '8.2805615'))
    """
    pairs = ((f"{first:.{digits}g}", f"{second:.{digits}g}") for digits in range(6, 18))
    shortest = next(pairs)
    return next((pair for pair in (shortest, *pairs) if pair[0] != pair[1]), shortest)


@dataclass(frozen=True)
class Divergence:
    """The first operator of the original model whose output differs from the graph's.

    Attributes:
        operator: Name, such as ``aten.floor_divide``.
        module: Path of the module that contains it; empty for the model itself.
        where: ``file.py:line`` of the call.
        shape: Shape of its output.
        place: Index of the value with the largest difference.
        expected: PyTorch's value at that index.
        actual: Value of the graph's most similar tensor of that shape; None if there is no tensor of that shape.
        node: Operator and name of that tensor in the graph.
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
        """Return one line for messages."""
        inside = f" in module {self.module!r}" if self.module else ""
        at = f" ({self.where})" if self.where else ""
        begin = f"{self.operator}{inside}{at} is the first to differ: output {list(self.shape)}"
        if self.actual is None:
            return (
                f"{begin}, PyTorch {self.expected:.6g} at {list(self.place)}, and no value of that shape in the graph"
            )
        expected, actual = distinct_texts(self.expected, self.actual)
        return f"{begin}, at {list(self.place)} PyTorch {expected}, nearest in the graph {actual} ({self.node})"


@dataclass(frozen=True)
class BatchReport:
    """Whether rows are independent and every output has the batch on axis 0.

    Attributes:
        batchable: Whether the model can be batched, as measured.
        max_batch_size: Value for config.pbtxt; 0 if the model is not batchable, or batching is disabled.
        reason: Why not batchable; empty otherwise.
        compared: Whether rows were compared; False if the inputs have no batch on axis 0, or only equal rows.
    """

    batchable: bool
    max_batch_size: int
    reason: str = ""
    compared: bool = True


@dataclass(frozen=True)
class GoldenTensor:
    """Name of a tensor, and key of its array in ``golden.npz``."""

    name: str
    key: str


@dataclass(frozen=True)
class GoldenCase:
    """Inputs and expected outputs, for smoke tests.

    Attributes:
        name: The parity case that it comes from.
        batch: Size of axis 0 of every tensor if the model is batched, else 0.
        inputs: Input arrays.
        outputs: Output arrays as the original computed them; for a lossy model without parity, as ONNX Runtime did.
    """

    name: str
    batch: int
    inputs: tuple[GoldenTensor, ...]
    outputs: tuple[GoldenTensor, ...]


@dataclass(frozen=True)
class Golden:
    """Contents of ``golden.json``: the cases, and the tolerances (rtol, atol) of each output by name."""

    cases: tuple[GoldenCase, ...]
    tolerances: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class ImportedCode:
    """The code that a worker imported: files outside site-packages, and distributions.

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
        notes: Notes for the report, such as that the model was in training mode.
        attempts: Outcome of each exporter that was tried.
        passes: Outcome of each optimization pass, for the last exporter whose graph was optimized.
        seconds: Wall time of each step.
        peak_rss_bytes: Largest resident memory of the worker.
        parity: The comparison of the last graph that disagreed with the original; None if none did.
    """

    notes: tuple[str, ...] = ()
    attempts: tuple[ExportAttempt, ...] = ()
    passes: tuple[PassOutcome, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    parity: ParityReport | None = None


@dataclass(frozen=True)
class BuiltModel:
    """A verified model, as the worker returns it.

    Attributes:
        artifact: What to publish, with the tensor names of the spec.
        golden_dir: Directory of ``golden.json`` and ``golden.npz``.
        nodes_exported: Number of nodes before optimization.
        parity: The comparison with PyTorch.
        batch: The result of the batching checks.
        imported: Code that the build depends on.
        companions: Additional files of the version, by name.
        labels: Class names by output.
        lossy: The lossy passes that were applied; None if there were none.
    """

    artifact: Artifact
    golden_dir: Path
    nodes_exported: int
    parity: ParityReport
    batch: BatchReport
    imported: ImportedCode
    companions: dict[str, Path] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lossy: Lossy | None = None
