"""What a build did, for people and machines; the console renders it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import ExportAttempt, PassOutcome
    from repogen.artifacts.serving import SmokeReport


class Status(Enum):
    """How a model's build ended."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    VERIFIED = "verified"
    """Everything passed, and ``--dry-run`` published nothing."""
    FAILED = "failed"


@dataclass(frozen=True)
class ModelReport:
    """One model's build.

    Attributes:
        name: Model name.
        status: How it ended.
        version: Version in the repository; None unless published or unchanged.
        sha256: Digest of ``model.onnx``; empty when there is none.
        exporter: ``dynamo`` or ``torchscript``; empty when none worked.
        opset: ``ai.onnx`` opset, 0 when there is no graph.
        ir_version: ONNX IR version, 0 when there is no graph.
        max_batch_size: As in config.pbtxt; None when there is none.
        parity_cases: Number of parity cases.
        parity_skipped: Cases that the compute budget left out.
        max_abs_diff: Largest absolute difference.
        max_rel_diff: Largest relative difference.
        nodes_exported: Nodes as exported.
        nodes_optimized: Nodes as published.
        size: Bytes of the version's files; 0 when there are none.
        rungs: Outcome of each exporter tried.
        passes: Outcome of each optimization pass.
        batch_reason: Why the model does not batch; empty when it does.
        notes: Things a person should know.
        smoke: What the real Triton answered; None when it was not asked.
        registry_version: Version in MLflow's registry; None when it is not registered.
        seconds: Wall time of each step.
        peak_rss_bytes: Largest resident memory of the worker, 0 when none ran.
        error: Why it failed; None when it did not.
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
    rungs: tuple[ExportAttempt, ...] = ()
    passes: tuple[PassOutcome, ...] = ()
    batch_reason: str = ""
    notes: tuple[str, ...] = ()
    smoke: SmokeReport | None = None
    registry_version: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class BuildReport:
    """Every model's build, in the spec's order.

    Attributes:
        repository: The model repository.
        models: One report a model.
        error: What went wrong beside the models: the build's own run could not be ended; None otherwise.
    """

    repository: Path
    models: tuple[ModelReport, ...]
    error: ErrorRecord | None = None

    @property
    def exit_code(self) -> int:
        """0, or the exit code of the earliest step that failed (the codes are numbered in the order of the steps)."""
        errors = (*(model.error for model in self.models), self.error)
        return min((error.exit_code for error in errors if error is not None), default=int(ExitCode.OK))
