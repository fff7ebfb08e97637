"""The shapes of the JSON documents; the docs and the tests use their schema."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

_STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


@with_config(_STRICT)
class ErrorDocument(TypedDict):
    """An error."""

    code: str
    """Code, see [error codes](errors.md)"""
    message: str
    """What happened"""
    hint: str
    """What to do; may be empty"""
    where: str
    """`file:line` or the path of a key; may be empty"""
    exit_code: int
    """Exit code of the error"""


@with_config(_STRICT)
class ProblemDocument(TypedDict):
    """One problem of a spec."""

    where: str
    """`file:line:column`"""
    key: str
    """Path of the key"""
    what: str
    """What is wrong"""
    hint: str
    """What to do; may be empty"""


@with_config(_STRICT)
class ParityDocument(TypedDict):
    """Parity with PyTorch."""

    cases: int
    """Number of cases"""
    skipped: list[str]
    """Cases that were skipped when `parity.budget_seconds` was used up"""
    max_abs_diff: float | None
    """Largest absolute difference; null if nothing was measured"""
    max_rel_diff: float | None
    """Largest relative difference; null if nothing was measured"""
    passed: bool
    """Whether parity was measured and passed"""


@with_config(_STRICT)
class NodesDocument(TypedDict):
    """Number of nodes of the graph."""

    exported: int | None
    """After the export"""
    optimized: int | None
    """After the optimization passes"""


@with_config(_STRICT)
class ExporterDocument(TypedDict):
    """One export attempt."""

    exporter: str
    """Name of the exporter"""
    ok: bool
    """Whether its graph passed validation"""
    reason: str
    """Why the attempt failed; empty if it succeeded"""
    seconds: float
    """Duration"""


@with_config(_STRICT)
class PassDocument(TypedDict):
    """One optimization pass."""

    name: str
    """Name of the pass"""
    applied: bool
    """Whether the result is used"""
    reason: str
    """Why the result is not used; may be empty"""
    nodes_before: int
    """Number of nodes before the pass"""
    nodes_after: int
    """Number of nodes after the pass"""


@with_config(_STRICT)
class SmokeCheckDocument(TypedDict):
    """One check of a smoke test."""

    name: str
    """Name of the check"""
    passed: bool
    """Whether it passed"""
    detail: str
    """What was measured, or why it failed"""
    warning: bool
    """Whether it passed with a warning"""
    max_abs_diff: float | str | None
    """Largest difference from the golden tensors; `nan` and `inf` are strings"""


@with_config(_STRICT)
class LatencyDocument(TypedDict):
    """Latency of one-row requests, in milliseconds."""

    p50: float
    """Median"""
    p95: float
    """95th percentile"""
    p99: float
    """99th percentile"""
    requests: int
    """Number of requests"""


@with_config(_STRICT)
class SmokeDocument(TypedDict):
    """The smoke test of one version."""

    name: NotRequired[str]
    """Name of the model; missing in the document of a build"""
    version: int
    """Version in the repository"""
    passed: bool
    """Whether every check passed"""
    server: str
    """Kind of server"""
    server_version: str
    """Version of Triton"""
    runtime: str
    """Runtime of the graph, such as ONNX Runtime 1.19.2"""
    checks: list[SmokeCheckDocument]
    """All checks"""
    overrides: list[str]
    """Changes to a private copy of config.pbtxt"""
    latency_ms: LatencyDocument | None
    """Latency; null if it was not measured"""


@with_config(_STRICT)
class ModelDocument(TypedDict):
    """One model of a build."""

    name: str
    """Name of the model"""
    status: Literal["published", "unchanged", "verified", "failed"]
    """Result"""
    version: int | None
    """Version in the repository"""
    sha256: str | None
    """Digest of `model.onnx`, of `model.py` for Python code, or of `config.pbtxt` for an ensemble"""
    size: int | None
    """Total size of the version's files in bytes"""
    exporter: str | None
    """Exporter of the published graph"""
    opset: int | None
    """Opset of the graph"""
    ir_version: int | None
    """IR version of the graph"""
    max_batch_size: int | None
    """Largest verified batch; 0 if the model does not batch"""
    batch_reason: str | None
    """Why `max_batch_size` is 0"""
    parity: ParityDocument
    """Comparison with PyTorch"""
    nodes: NodesDocument
    """Number of nodes"""
    exporters: list[ExporterDocument]
    """Every export attempt"""
    passes: list[PassDocument]
    """Every optimization pass"""
    notes: list[str]
    """Notes, one per entry"""
    smoke: SmokeDocument | None
    """Smoke test; null if none ran"""
    registry_version: int | None
    """Version in the MLflow registry"""
    seconds: dict[str, float]
    """Duration of each step, by name"""
    peak_rss_bytes: int | None
    """Peak memory of the worker"""
    error: ErrorDocument | None
    """Why the model failed"""


@with_config(_STRICT)
class BuildDocument(TypedDict):
    """``repogen build --json`` and ``repogen diagnose --json``."""

    repository: str
    """Directory of the repository"""
    models: list[ModelDocument]
    """One entry per model"""
    notes: list[str]
    """Notes about the whole build"""
    error: ErrorDocument | None
    """An error that is not about one model"""


@with_config(_STRICT)
class FailureDocument(TypedDict):
    """Any command with ``--json`` that failed before it had anything to report."""

    repository: None
    """Always null"""
    models: list[ModelDocument]
    """Always empty"""
    error: ErrorDocument
    """The error"""
    problems: list[ProblemDocument]
    """Every problem of an invalid spec"""


@with_config(_STRICT)
class SmokeRunDocument(TypedDict):
    """``repogen smoke --json``."""

    repository: str
    """Directory of the repository"""
    models: list[SmokeDocument]
    """One entry per version"""


@with_config(_STRICT)
class FindingDocument(TypedDict):
    """A finding."""

    code: str
    """Code of the [rule](rules.md)"""
    severity: Literal["error", "warning"]
    """Severity"""
    path: str
    """File or directory"""
    line: int | None
    """Line, from 1; null if the finding is about a whole file"""
    column: int | None
    """Column, from 1; null if the finding is about a whole file"""
    field: str
    """Field of ModelConfig; may be empty"""
    message: str
    """What was found"""
    hint: str
    """What to do; may be empty"""
    fix: str
    """Replacement text, if there is exactly one fix; may be empty"""
    applicability: Literal["safe", "unsafe"] | None
    """Whether `--fix` applies the fix, or only `--fix --unsafe-fixes`; null without a fix"""


@with_config(_STRICT)
class FixedFileDocument(TypedDict):
    """A file that ``repogen check --fix`` corrected."""

    path: str
    """Path of the file"""
    fixes: int
    """Number of findings that were fixed in it"""


@with_config(_STRICT)
class StatisticDocument(TypedDict):
    """The number of findings with one code."""

    code: str
    """Code of the [rule](rules.md)"""
    count: int
    """Number of findings"""
    safe_fixes: int
    """How many of them `--fix` corrects"""
    unsafe_fixes: int
    """How many more of them `--fix --unsafe-fixes` corrects"""


@with_config(_STRICT)
class FindingsDocument(TypedDict):
    """``repogen check --format json``."""

    schema: int
    """Version of this document's format"""
    findings: list[FindingDocument]
    """All findings"""
    checked_models: int
    """Number of models that were checked"""
    errors: int
    """Number of errors"""
    warnings: int
    """Number of warnings"""
    fixed: list[FixedFileDocument]
    """Files that `--fix` corrected"""
    statistics: list[StatisticDocument]
    """Number of findings per code"""


@with_config(_STRICT)
class GateDocument(TypedDict):
    """One gate of a promotion."""

    gate: str
    """Gate and limit, such as `latency.max_ratio`"""
    verdict: Literal["passed", "failed", "recorded"]
    """Result; `recorded` without a limit"""
    measured: str
    """The measurement as text"""
    limit: str | None
    """The limit as text; null if there is none"""
    value: float | None
    """The measured number; null if there is none"""
    note: str
    """Note; may be empty"""


@with_config(_STRICT)
class MoveDocument(TypedDict):
    """A move of an alias."""

    alias: str
    """The alias"""
    old: int | None
    """Version that it pointed to; null if it did not exist"""
    new: int
    """Version that it points to"""
    by: str
    """Who moved it"""
    at: str
    """Time in UTC, ISO 8601"""
    why: str
    """`promote`, `rollback` or `outside`"""
    figures: dict[str, str]
    """Measurements by gate"""


@with_config(_STRICT)
class PromotionDocument(TypedDict):
    """``repogen promote --json``."""

    model: str
    """Registered model"""
    alias: str
    """The alias"""
    old: int | None
    """Version that the alias pointed to; null if it did not exist"""
    new: int | None
    """Version that was measured"""
    outcome: str
    """Result"""
    gates: list[GateDocument]
    """One entry per limit or measurement"""
    server: str | None
    """Triton server that was used for the measurements"""
    indicative: bool
    """Whether times are only indicative"""
    move: MoveDocument | None
    """The move of the alias; null if it was not moved"""
    notes: list[str]
    """Notes"""


@with_config(_STRICT)
class PeriodDocument(TypedDict):
    """A version that an alias pointed to, and when."""

    alias: str
    """The alias"""
    version: int | None
    """Version that it pointed to; null after the alias was deleted"""
    since: str | None
    """Start in UTC, ISO 8601; null if it was not recorded"""
    until: str | None
    """End in UTC, ISO 8601; null if it has not ended or was not recorded"""
    present: bool
    """Whether the alias still points to the version"""
    by: str
    """Who moved the alias"""
    why: str
    """`promote`, `rollback` or `outside`"""
    figures: dict[str, str]
    """Measurements by gate"""


@with_config(_STRICT)
class HistoryDocument(TypedDict):
    """``repogen history --json``."""

    model: str
    """Registered model"""
    periods: list[PeriodDocument]
    """What the aliases pointed to"""


@with_config(_STRICT)
class DeployedDocument(TypedDict):
    """One model on one server."""

    name: str
    """Name of the model"""
    action: Literal["deployed", "unchanged", "restored", "failed", "unloaded", "skipped"]
    """What was done, see [deploy](../guides/deploy.md#the-report)"""
    expected: list[int]
    """Versions that the repository selects, newest first"""
    before: list[int] | None
    """Versions that the server served before; null if unknown"""
    serving: list[int] | None
    """Versions that the server serves now; null if unknown"""
    note: str | None
    """Note"""
    smoke: list[SmokeDocument]
    """Smoke tests of the expected versions on the server"""
    error: ErrorDocument | None
    """Why it failed"""


@with_config(_STRICT)
class DeployServerDocument(TypedDict):
    """One server of a deploy."""

    server: str
    """Its address"""
    mode: Literal["explicit", "poll"] | None
    """`poll` for every server that rejects load requests; null if unknown"""
    models: list[DeployedDocument]
    """One entry per model"""
    note: str | None
    """Note"""
    error: ErrorDocument | None
    """Why the server could not be used"""


@with_config(_STRICT)
class DeployDocument(TypedDict):
    """``repogen deploy --json``."""

    repository: str
    """Directory of the repository"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    interrupted: bool
    """Whether Ctrl-C ended the run"""
    servers: list[DeployServerDocument]
    """One entry per server, in order"""


@with_config(_STRICT)
class SyncedDocument(TypedDict):
    """One version that ``sync`` handled."""

    name: str
    """Name of the model"""
    action: str
    """What was done, see [sync](../guides/sync.md#what-sync-does-with-a-model)"""
    version: int | None
    """Version in the registry"""
    note: str | None
    """Reason"""
    error: ErrorDocument | None
    """Why it failed"""


@with_config(_STRICT)
class SyncDocument(TypedDict):
    """``repogen sync --json``."""

    repository: str
    """Directory of the repository"""
    alias: str
    """The alias that it follows"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    changed: bool
    """Whether the served models changed"""
    models: list[SyncedDocument]
    """One entry per model"""
    deploy: NotRequired[DeployDocument]
    """What the servers of `--deploy` serve; missing without it"""


@with_config(_STRICT)
class CheckDocument(TypedDict):
    """One check of the environment."""

    name: str
    """What was checked"""
    found: str
    """What was found"""
    ok: bool
    """Whether it is sufficient"""
    optional: bool
    """Whether repogen works without it"""
    remedy: str
    """How to fix it; may be empty"""
    group: str
    """What it belongs to: `repogen`, an extra, or `servers`"""


@with_config(_STRICT)
class DoctorDocument(TypedDict):
    """``repogen doctor --json``."""

    ok: bool
    """Whether every check passed"""
    checks: list[CheckDocument]
    """All checks"""


DOCUMENTS: dict[str, type] = {
    "build": BuildDocument,
    "check": FindingsDocument,
    "smoke": SmokeRunDocument,
    "promote": PromotionDocument,
    "history": HistoryDocument,
    "sync": SyncDocument,
    "deploy": DeployDocument,
    "doctor": DoctorDocument,
    "a command that failed": FailureDocument,
}
"""What prints a document -> its type."""
