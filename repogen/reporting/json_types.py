"""The shapes of the JSON documents; the docs and the tests use their schema."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class ErrorDocument(TypedDict):
    """An error. ``where`` is ``file:line`` or empty."""

    code: str
    message: str
    hint: str
    where: str
    exit_code: int


@with_config(_STRICT)
class ProblemDocument(TypedDict):
    """One problem of a spec. ``where`` is ``file:line:column``, ``key`` the path of the key."""

    where: str
    key: str
    what: str
    hint: str


@with_config(_STRICT)
class ParityDocument(TypedDict):
    """Parity with PyTorch. Differences are null when nothing was measured."""

    cases: int
    skipped: list[str]
    max_abs_diff: float | None
    max_rel_diff: float | None
    passed: bool


@with_config(_STRICT)
class NodesDocument(TypedDict):
    """Number of nodes of the graph."""

    exported: int | None
    optimized: int | None


@with_config(_STRICT)
class ExporterDocument(TypedDict):
    """One export attempt."""

    exporter: str
    ok: bool
    reason: str
    seconds: float


@with_config(_STRICT)
class PassDocument(TypedDict):
    """One optimization pass."""

    name: str
    applied: bool
    reason: str
    nodes_before: int
    nodes_after: int


@with_config(_STRICT)
class SmokeCheckDocument(TypedDict):
    """One check of a smoke test. ``max_abs_diff`` may be ``nan`` or ``inf`` as text."""

    name: str
    passed: bool
    detail: str
    warning: bool
    max_abs_diff: float | str | None


@with_config(_STRICT)
class LatencyDocument(TypedDict):
    """Latency of one-row requests, in milliseconds."""

    p50: float
    p95: float
    p99: float
    requests: int


@with_config(_STRICT)
class SmokeDocument(TypedDict):
    """The smoke test of one version. ``name`` is missing inside a build's model."""

    name: NotRequired[str]
    version: int
    passed: bool
    server: str
    server_version: str
    runtime: str
    checks: list[SmokeCheckDocument]
    overrides: list[str]
    latency_ms: LatencyDocument | None


@with_config(_STRICT)
class ModelDocument(TypedDict):
    """One model of a build."""

    name: str
    status: Literal["published", "unchanged", "verified", "failed"]
    version: int | None
    sha256: str | None
    size: int | None
    exporter: str | None
    opset: int | None
    ir_version: int | None
    max_batch_size: int | None
    batch_reason: str | None
    parity: ParityDocument
    nodes: NodesDocument
    exporters: list[ExporterDocument]
    passes: list[PassDocument]
    notes: list[str]
    smoke: SmokeDocument | None
    registry_version: int | None
    seconds: dict[str, float]
    peak_rss_bytes: int | None
    error: ErrorDocument | None


@with_config(_STRICT)
class BuildDocument(TypedDict):
    """``repogen build --json`` and ``repogen diagnose --json``."""

    repository: str
    models: list[ModelDocument]
    error: ErrorDocument | None


@with_config(_STRICT)
class FailureDocument(TypedDict):
    """Any command with ``--json`` that failed before it had anything to report."""

    repository: None
    models: list[ModelDocument]
    error: ErrorDocument
    problems: list[ProblemDocument]


@with_config(_STRICT)
class SmokeRunDocument(TypedDict):
    """``repogen smoke --json``."""

    repository: str
    models: list[SmokeDocument]


@with_config(_STRICT)
class FindingDocument(TypedDict):
    """A finding. ``line`` and ``column`` count from 1; null where it is about a whole file."""

    code: str
    severity: Literal["error", "warning"]
    path: str
    line: int | None
    column: int | None
    field: str
    message: str
    hint: str
    fix: str
    applicability: Literal["safe", "unsafe"] | None


@with_config(_STRICT)
class FixedFileDocument(TypedDict):
    """A file that ``repogen check --fix`` corrected."""

    path: str
    fixes: int


@with_config(_STRICT)
class StatisticDocument(TypedDict):
    """The number of findings with one code, and how many of them ``--fix`` and ``--unsafe-fixes`` correct."""

    code: str
    count: int
    safe_fixes: int
    unsafe_fixes: int


@with_config(_STRICT)
class FindingsDocument(TypedDict):
    """``repogen check --format json``."""

    schema: int
    findings: list[FindingDocument]
    checked_models: int
    errors: int
    warnings: int
    fixed: list[FixedFileDocument]
    statistics: list[StatisticDocument]


@with_config(_STRICT)
class GateDocument(TypedDict):
    """One gate of a promotion. ``value`` is the measured number, null where there is none."""

    gate: str
    verdict: Literal["passed", "failed", "recorded"]
    measured: str
    limit: str | None
    value: float | None
    note: str


@with_config(_STRICT)
class MoveDocument(TypedDict):
    """A move of an alias. ``at`` is UTC in ISO 8601; ``why`` is ``promote``, ``rollback`` or ``outside``."""

    alias: str
    old: int | None
    new: int
    by: str
    at: str
    why: str
    figures: dict[str, str]


@with_config(_STRICT)
class PromotionDocument(TypedDict):
    """``repogen promote --json``."""

    model: str
    alias: str
    old: int | None
    new: int | None
    outcome: str
    gates: list[GateDocument]
    server: str | None
    indicative: bool
    move: MoveDocument | None
    notes: list[str]


@with_config(_STRICT)
class PeriodDocument(TypedDict):
    """What an alias pointed to, from ``since`` to ``until``, UTC in ISO 8601; ``present`` when it still does."""

    alias: str
    version: int | None
    since: str | None
    until: str | None
    present: bool
    by: str
    why: str
    figures: dict[str, str]


@with_config(_STRICT)
class HistoryDocument(TypedDict):
    """``repogen history --json``."""

    model: str
    periods: list[PeriodDocument]


@with_config(_STRICT)
class SyncedDocument(TypedDict):
    """One version that ``sync`` handled."""

    name: str
    action: str
    version: int | None
    note: str | None
    error: ErrorDocument | None


@with_config(_STRICT)
class SyncDocument(TypedDict):
    """``repogen sync --json``."""

    repository: str
    alias: str
    dry_run: bool
    changed: bool
    models: list[SyncedDocument]


@with_config(_STRICT)
class CheckDocument(TypedDict):
    """One check of the environment."""

    name: str
    found: str
    ok: bool
    optional: bool
    remedy: str


@with_config(_STRICT)
class DoctorDocument(TypedDict):
    """``repogen doctor --json``."""

    ok: bool
    checks: list[CheckDocument]


DOCUMENTS: dict[str, type] = {
    "build": BuildDocument,
    "check": FindingsDocument,
    "smoke": SmokeRunDocument,
    "promote": PromotionDocument,
    "history": HistoryDocument,
    "sync": SyncDocument,
    "doctor": DoctorDocument,
    "a command that failed": FailureDocument,
}
"""What prints a document -> its type."""
