"""Notes about a model that accompany its figures in every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.built_model import UNCHANGED
from repogen.artifacts.report import Status

if TYPE_CHECKING:
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.serving import SmokeReport

_KIB = 1024
_LARGE = 4 * 2**30  # more than a common CI runner has free


def model_notes(model: ModelReport) -> list[str]:
    """Return the notes about a model, one line each."""
    notes = list(model.notes)
    # When no exporter succeeded, the error lists every attempt.
    if model.status is not Status.FAILED or any(attempt.ok for attempt in model.attempts):
        failures = [attempt for attempt in model.attempts if not attempt.ok]
        notes += [f"{attempt.exporter} was tried first: {attempt.reason}" for attempt in failures]
    if model.lossy is not None:
        notes.append(str(model.lossy))
    notes += [f"{p.name} was applied: {p.gain}" for p in model.passes if p.applied and p.gain is not None]
    notes += [f"{p.name} was skipped: {p.reason}" for p in model.passes if not p.applied and p.reason != UNCHANGED]
    if model.batch_reason and model.max_batch_size == 0:
        notes.append(f"max_batch_size is 0: {model.batch_reason}")
    if model.parity_skipped:
        case_names = "; ".join(model.parity_skipped)
        notes.append(f"parity.budget_seconds was used up; skipped parity cases: {case_names}")
    if model.peak_rss_bytes >= _LARGE:
        notes.append(f"peak memory of the worker: {size_text(model.peak_rss_bytes)}")
    if model.registry_version is not None:
        notes.append(f"registered as version {model.registry_version} of {model.name}")
    return notes + ([] if model.smoke is None else smoke_notes(model.smoke))


def parity_text(model: ModelReport, cases: str = "") -> str:
    """Return the difference from the original in one cell of a table.

    Args:
        model: The report.
        cases: What follows the number of cases.
    """
    if not model.parity_cases:
        return "-"
    text = f"{model.max_abs_diff:.1e} in {model.parity_cases}{cases}"
    return text if model.has_parity else f"lossy, {text}"


def smoke_notes(report: SmokeReport) -> list[str]:
    """Return the notes about a smoke test, one line each."""
    notes = [f"smoke test ran with {override}" for override in report.overrides]
    return notes + [f"{check.name}: {check.detail}" for check in report.checks if check.warning]


def size_text(size: int) -> str:
    """Return a number of bytes with its unit.

    >>> size_text(512), size_text(2048), size_text(95 * 2**20), size_text(0)
    ('512 B', '2.0 KiB', '95.0 MiB', '-')
    """
    if not size:
        return "-"
    amount, unit = float(size), "B"
    for larger_unit in ("KiB", "MiB", "GiB"):
        if amount < _KIB:
            break
        amount, unit = amount / _KIB, larger_unit
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
