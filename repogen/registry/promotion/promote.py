"""Promote a version, roll back an alias, and show its history.

The gates decide, and the alias moves once, last. The alias of an ensemble selects the versions of its steps as well.
"""

from __future__ import annotations

import getpass
import math
import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import History, Outcome, PromotionReport, Verdict
from repogen.artifacts.registry import AliasMove, EntryState, PromotionRun
from repogen.errors import GateError, SpecError, TrackingError
from repogen.registry.mlflow.uri import require_alias
from repogen.registry.promotion.alias_history import PROMOTE, ROLLBACK, periods, rollback_target
from repogen.registry.promotion.run_gates import run_gates
from repogen.registry.promotion.steps import follow, require_no_ensemble, shared_step_notes, step_moves
from repogen.reporting.markdown import promotion_markdown
from repogen.reporting.registry_text import outcome_text
from repogen.spec.problems import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.promotion import GateResult, StepMove
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.registry.promotion.request import PromotionRequest
    from repogen.registry.promotion.run_gates import GateRun


def promote(registry: ModelRegistry, request: PromotionRequest, progress: Progress) -> PromotionReport:
    """Move an alias to a version if the version passes its gates; that of an ensemble with those of its steps.

    Args:
        registry: The model registry.
        request: What to promote, and the gates.
        progress: Receives the steps.

    Returns:
        The report; its outcome is ``REFUSED`` if a gate failed, and then the alias was not moved.

    Raises:
        SpecError: The model, version or alias name does not exist or is invalid, or a file of a gate is missing.
        GateError: The version is pending, or was not built by repogen, or is a step of an ensemble that was verified
            with another version; or the gate of a plug-in raised an exception.
        SmokeError: No Triton of the version's target could be started, or it ended.
        TrackingError: The registry cannot be reached, artifacts are missing or modified, or the alias was moved
            in the meantime. If only the run cannot be recorded, a note in the report says so.
    """
    require_alias(request.alias)
    progress.step(request.name, "registry")
    entries = _entries(registry, request.name, request.other_names)
    champion = _with_alias(entries, request.alias)
    candidate = _candidate(entries, request)
    notes = _skip_notes(entries, candidate) if request.version is None else ()
    old_version = None if champion is None else champion.version
    manifest = registry.manifest(candidate)
    steps = step_moves(registry, candidate, manifest, request.alias)
    report = PromotionReport(
        request.name, request.alias, old_version, candidate.version, Outcome.ALREADY, notes=notes, steps=steps
    )
    if old_version == candidate.version:
        return report if request.dry_run else _completed(registry, report)
    require_no_ensemble(registry, candidate, request.alias)
    run = run_gates(registry, candidate, champion, request, progress)
    report = replace(report, gates=run.results, server=run.server, indicative=run.indicative)
    if any(result.verdict is Verdict.FAILED for result in run.results):
        report = replace(report, outcome=Outcome.REFUSED)
    else:
        notes = (*notes, *shared_step_notes(registry, candidate, manifest, request.alias))
        report = replace(report, outcome=Outcome.WOULD_MOVE, notes=notes)
        if not request.dry_run:
            move = _move(request.alias, old_version, candidate.version, PROMOTE, run)
            report = _moved(registry, replace(report, outcome=Outcome.PROMOTED), move)
    if not request.dry_run:
        progress.step(request.name, "record")
        report = _recorded(registry, report)
    progress.step(request.name, "failed" if report.outcome is Outcome.REFUSED else "done")
    return report


def rollback(registry: ModelRegistry, name: str, alias: str, *, dry_run: bool = False) -> PromotionReport:
    """Move an alias back to its previous version; no gate is measured, because that version has served before.

    The alias of an ensemble is moved back with those of its steps.

    Args:
        registry: The model registry.
        name: Registered model.
        alias: The alias.
        dry_run: Report the version only.

    Raises:
        SpecError: The model does not exist.
        GateError: The alias does not exist, has no previous version, repogen did not build that version, or it is a
            step of an ensemble that was verified with another version.
        TrackingError: That version was deleted, the registry cannot be reached, or the alias was moved in the meantime.
    """
    require_alias(alias)
    entries = _entries(registry, name)
    current = _with_alias(entries, alias)
    if current is None:
        raise GateError(
            f"{name} does not have the alias {alias!r}, so it can't be rolled back",
            f"its aliases are: {', '.join(sorted({each for entry in entries for each in entry.aliases})) or 'none'}",
            code="promotion.no-alias",
        )
    moves = registry.moves(name, alias)
    version = rollback_target(moves, current.version)
    if version is None:
        raise GateError(
            f"{name}: no version is recorded before version {current.version} of {alias!r}",
            f"`repogen history {name}` shows the recorded moves; to move the alias to a version, run `repogen promote "
            f"{name} VERSION --alias {alias}`",
            code="promotion.nothing-before",
        )
    target = next((entry for entry in entries if entry.version == version), None)
    if target is None:
        raise TrackingError(
            f"{name}: version {version}, the previous version of {alias!r}, was deleted from the registry",
            f"promote another version: `repogen promote {name} VERSION --alias {alias}`",
            code="promotion.version-deleted",
        )
    _require_promotable(target)
    require_no_ensemble(registry, target, alias)
    notes = ["no gates were measured, because the version was served before"]
    if not moves or moves[-1].new != current.version:
        notes.append(f"the alias was moved to version {current.version} outside of repogen")
    steps: tuple[StepMove, ...] = ()
    try:
        steps = step_moves(registry, target, registry.manifest(target), alias)
    except TrackingError as error:  # the alias can still be moved, and `repogen sync` reports what is missing
        notes.append(f"its files could not be read, so the aliases of steps are not moved: {error.message}")
    report = PromotionReport(name, alias, current.version, version, Outcome.WOULD_MOVE, notes=tuple(notes), steps=steps)
    if dry_run:
        return report
    move = _move(alias, current.version, version, ROLLBACK)
    return _moved(registry, replace(report, outcome=Outcome.ROLLED_BACK), move)


def history(registry: ModelRegistry, name: str, alias: str | None = None) -> History:
    """Return the versions that each alias of a model, or one alias, pointed to, with times.

    Args:
        registry: The model registry.
        name: Registered model.
        alias: The alias; None for all.

    Raises:
        SpecError: The model does not exist, or never had that alias.
        TrackingError: The registry cannot be reached.
    """
    entries = _entries(registry, name)
    moves = registry.moves(name, alias)
    current = {each: entry.version for entry in entries for each in entry.aliases if alias in {None, each}}
    aliases = sorted({*current, *(move.alias for move in moves)})
    if alias is not None and not aliases:
        raise SpecError(f"{name} never had the alias {alias!r}", code="promotion.no-such-alias")
    all_periods = (
        period
        for each in aliases
        for period in periods(each, [move for move in moves if move.alias == each], current.get(each))
    )
    return History(name, tuple(all_periods))


def _entries(registry: ModelRegistry, name: str, other_names: Sequence[str] = ()) -> tuple[RegistryEntry, ...]:
    entries = registry.entries(name)
    if not entries:
        raise SpecError(
            f"the registry does not have a model {name!r}",
            suggestion([name], other_names, "`repogen build` registers models if the spec has an mlflow: section"),
            code="promotion.no-such-model",
        )
    return entries


def _with_alias(entries: Iterable[RegistryEntry], alias: str) -> RegistryEntry | None:
    return next((entry for entry in entries if alias in entry.aliases), None)


def _candidate(entries: tuple[RegistryEntry, ...], request: PromotionRequest) -> RegistryEntry:
    """Return the requested version, or the newest published one."""
    if request.version is None:
        published_entries = (entry for entry in entries if entry.state is EntryState.PUBLISHED)
        candidate: RegistryEntry | None = next(published_entries, entries[0])
    else:
        candidate = next((entry for entry in entries if entry.version == request.version), None)
    if candidate is None:
        raise SpecError(
            f"the registry does not have version {request.version} of {request.name}",
            f"it has {', '.join(str(entry.version) for entry in entries)}",
            code="promotion.no-such-version",
        )
    _require_promotable(candidate)
    return candidate


def _require_promotable(entry: RegistryEntry) -> None:
    if entry.state is EntryState.PENDING:
        raise GateError(
            f"{entry.name}: version {entry.version} is pending: it was registered, but its publication was not "
            "confirmed",
            "run `repogen build` again to complete it",
            code="promotion.pending",
        )
    if entry.state is EntryState.FOREIGN:
        raise GateError(
            f"{entry.name}: version {entry.version} was not built by repogen, so it is not verified that Triton "
            "serves it",
            "build it with `repogen build` and a spec with an mlflow: section, which registers it",
            code="promotion.foreign",
        )


def _skip_notes(entries: Iterable[RegistryEntry], candidate: RegistryEntry) -> tuple[str, ...]:
    reasons = {EntryState.PENDING: "it is pending", EntryState.FOREIGN: "it was not built by repogen"}
    return tuple(
        f"version {entry.version} was skipped: {reasons[entry.state]}"
        for entry in entries
        if entry.version > candidate.version and entry.state in reasons
    )


def _move(alias: str, old: int | None, new: int, why: str, run: GateRun | None = None) -> AliasMove:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    figures, values = ({}, {}) if run is None else (_figures(run), _values(run.results))
    return AliasMove(alias, old, new, _user(), now, why, figures, values)


def _moved(registry: ModelRegistry, report: PromotionReport, move: AliasMove) -> PromotionReport:
    """Move the alias, then those of the steps; return the report, with a note for each step that was not moved."""
    registry.move_alias(report.model, move)
    notes = tuple(follow(registry, move, report.model, report.steps))
    return replace(report, move=move, notes=(*report.notes, *notes))


def _completed(registry: ModelRegistry, report: PromotionReport) -> PromotionReport:
    """Move the aliases of steps that do not follow the ensemble, for example because a promotion was interrupted."""
    move = _move(report.alias, report.old, report.new, PROMOTE)
    return replace(report, notes=(*report.notes, *follow(registry, move, report.model, report.steps)))


def _user() -> str:
    """Return the user who moves the alias; in GitHub Actions the user who started the workflow run."""
    actor = os.environ.get("GITHUB_ACTOR")
    if actor:
        return actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user ID without a name, as in a container
        return f"uid {os.getuid()}"


def _recorded(registry: ModelRegistry, report: PromotionReport) -> PromotionReport:
    """Record a promotion, or its refusal, as a run; return the report, with a note if that failed."""
    run = PromotionRun(
        name=f"promote {report.model} version {report.new} to {report.alias}",
        passed=report.outcome is not Outcome.REFUSED,
        tags={
            "mlflow.note.content": outcome_text(report),
            "repogen.model": report.model,
            "repogen.alias": report.alias,
            "repogen.version": str(report.new),
            "repogen.champion": "none" if report.old is None else str(report.old),
            "repogen.outcome": report.outcome.value,
            **{f"repogen.step.{step.model}": str(step.new) for step in report.steps},
            **{f"repogen.gate.{gate.gate}": gate.verdict.value for gate in report.gates},
        },
        metrics={f"gate/{name}": value for name, value in _values(report.gates).items()},
        page=promotion_markdown(report),
    )
    try:
        registry.record(run)
    except TrackingError as error:
        return replace(report, notes=(*report.notes, f"the promotion could not be logged to MLflow: {error.message}"))
    return report


def _values(gates: Iterable[GateResult]) -> dict[str, float]:
    """Return the measured numbers, without NaN and infinity, which JSON does not have."""
    return {gate.gate: gate.value for gate in gates if gate.value is not None and math.isfinite(gate.value)}


def _figures(run: GateRun) -> dict[str, str]:
    """Return the measured figures with their limits, and the server, as the registry stores them."""
    figures = {
        result.gate: f"{result.measured}{f' [{result.limit}]' if result.limit else ''}"
        for result in run.results
        if result.measured != "-"
    }
    if run.server:
        figures["server"] = run.server + (", indicative" if run.indicative else "")
    return figures
