"""The report of a build; ``repogen.reporting`` renders it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import ExportAttempt, Lossy, ParityReport, PassOutcome
    from repogen.artifacts.serving import SmokeReport
    from repogen.artifacts.versions import Manifest


class Status(Enum):
    """How the build of a model ended."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    VERIFIED = "verified"
    """Every check passed; nothing was published because of ``--dry-run``."""
    FAILED = "failed"


@dataclass(frozen=True)
class ModelReport:
    """The build of one model.

    Attributes:
        name: Model name.
        status: How the build ended.
        version: Version in the repository; None unless published or unchanged.
        sha256: Digest of ``model.onnx``; empty if it was not staged.
        exporter: Exporter of the graph, such as ``dynamo`` or ``torchscript``; empty if none succeeded.
        opset: Version of the ``ai.onnx`` opset; 0 without a graph.
        ir_version: ONNX IR version; 0 without a graph.
        max_batch_size: As in config.pbtxt; None without one.
        parity_cases: Number of parity cases.
        parity_skipped: Cases that were skipped because the compute budget was used up.
        max_abs_diff: Largest absolute difference over all cases.
        max_rel_diff: Largest relative difference over all cases.
        nodes_exported: Number of nodes as exported.
        nodes_optimized: Number of nodes as published.
        size: Bytes of the graph and its weights, or of the code, as the gate ``size`` measures them; 0 for an ensemble,
            and if it was not staged.
        attempts: Outcome of each exporter that was tried.
        passes: Outcome of each optimization pass.
        lossy: The lossy passes that were applied, and the quality that was measured; None if there were none.
        batch_reason: Why the model does not batch; empty if it does.
        notes: What the user should know.
        smoke: Result of the smoke test; None without one.
        registry_version: Version in MLflow's registry; None if it is not registered.
        seconds: Wall time of each step.
        peak_rss_bytes: Largest resident memory of the worker; 0 without a worker.
        parity: Every parity case, also if some differ; None if this build did not measure any.
        operators: Number of nodes of the published graph by operator; empty if this build did not read it.
        config: Text of config.pbtxt; empty without one.
        manifest: The version's manifest; None without one.
        error: Why the model failed; None if it did not.
        reasons: Why the model was built; empty if it is up to date.
        from_cache: Whether the export and its verification are those of an earlier build.
        export_reasons: Those of the reasons that concern the export and its verification.
    """

    name: str
    status: Status
    version: int | None = None
    sha256: str = ""
    exporter: str = ""
    opset: int = 0
    ir_version: int = 0
    max_batch_size: int | None = None
    parity_cases: int = 0
    parity_skipped: tuple[str, ...] = ()
    max_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    nodes_exported: int = 0
    nodes_optimized: int = 0
    size: int = 0
    attempts: tuple[ExportAttempt, ...] = ()
    passes: tuple[PassOutcome, ...] = ()
    lossy: Lossy | None = None
    batch_reason: str = ""
    notes: tuple[str, ...] = ()
    smoke: SmokeReport | None = None
    registry_version: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    error: ErrorRecord | None = None
    parity: ParityReport | None = None
    operators: dict[str, int] = field(default_factory=dict)
    config: str = ""
    manifest: Manifest | None = None
    reasons: tuple[str, ...] = ()
    from_cache: bool = False
    export_reasons: tuple[str, ...] = ()

    @property
    def has_parity(self) -> bool:
        """Whether parity was measured, and the outputs are within its tolerances."""
        return self.parity_cases > 0 and (self.lossy is None or self.lossy.has_parity)


@dataclass(frozen=True)
class BuildReport:
    """The build of every selected model.

    Attributes:
        repository: The model repository.
        models: One report per model, in the spec's order.
        error: A failure that does not belong to a model: the build's MLflow run could not be ended; None otherwise.
        notes: What the user should know about the whole build.
        page: The report as an HTML file; None if none was written, as when every model is up to date.
    """

    repository: Path
    models: tuple[ModelReport, ...]
    error: ErrorRecord | None = None
    notes: tuple[str, ...] = ()
    page: Path | None = None

    @property
    def exit_code(self) -> int:
        """0, or the exit code of the earliest step that failed: the codes are in the order of the steps."""
        errors = (*(model.error for model in self.models), self.error)
        return min((error.exit_code for error in errors if error is not None), default=int(ExitCode.OK))
