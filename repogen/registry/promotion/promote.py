"""Promote, roll back, look back: choose the versions, have them measured and judged, move the alias once."""

from __future__ import annotations

import getpass
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import History, Outcome, PromotionReport
from repogen.artifacts.registry import AliasMove, EntryState
from repogen.errors import GateError, SpecError, TrackingError
from repogen.registry.gates.alias_history import PROMOTE, ROLLBACK, before, periods
from repogen.registry.gates.evaluate import judge, passed
from repogen.registry.promotion.measure import measure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.promotion import GateResult
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.registry.promotion.measure import Measured
    from repogen.registry.promotion.request import PromotionRequest

# Source: MLflow reserves `latest` and `v<number>`, and takes word characters and hyphens.
_ALIAS = re.compile(r"(?!latest$|v[0-9]+$)[A-Za-z0-9_][A-Za-z0-9_-]{0,254}", re.ASCII)
_UNPROMOTABLE = {
    EntryState.PENDING: (
        "is pending: it was registered, and its publication was never confirmed",
        "run `repogen build` again: it completes what was interrupted",
    ),
    EntryState.FOREIGN: (
        "was not built by repogen, so nothing proves that Triton serves it",
        "build it with `repogen build` from a spec with an mlflow: section, which registers it",
    ),
}


def promote(registry: ModelRegistry, request: PromotionRequest, progress: Progress) -> PromotionReport:
    """Move an alias to a version that passes its gates; one that does not leaves everything as it is.

    Raises:
        SpecError: There is no such model, version or alias name, or a holdout file is missing.
        GateError: The version is pending, or was not built by repogen.
        SmokeError: No Triton of the version's target could be had, or it died.
        TrackingError: The registry cannot be reached, artifacts are gone or altered, or the alias moved meanwhile.
    """
    _check_alias(request.alias)
    progress.step(request.name, "registry")
    entries = _entries(registry, request.name)
    champion = _bearer(entries, request.alias)
    candidate = _candidate(entries, request)
    notes = _passed_over(entries, candidate) if request.version is None else ()
    old = None if champion is None else champion.version
    if old == candidate.version:
        return PromotionReport(request.name, request.alias, old, candidate.version, Outcome.ALREADY, notes=notes)
    measured = measure(registry, candidate, champion, request, progress)
    results = judge(request.gates, measured.figures)
    outcome, move = Outcome.REFUSED, None
    if passed(results):
        outcome = Outcome.WOULD_MOVE
        if not request.dry_run:
            figures = _figures(results, measured)
            move = _move(request.alias, old, candidate.version, PROMOTE, figures)
            registry.move_alias(request.name, move)
            outcome = Outcome.PROMOTED
    progress.step(request.name, "done")
    return PromotionReport(
        model=request.name,
        alias=request.alias,
        old=old,
        new=candidate.version,
        outcome=outcome,
        gates=results,
        server=measured.server,
        indicative=measured.indicative,
        move=move,
        notes=notes,
    )


def rollback(registry: ModelRegistry, name: str, alias: str, *, dry_run: bool = False) -> PromotionReport:
    """Move an alias back to the version that it had before; nothing is measured, because it has served.

    Raises:
        SpecError: There is no such model.
        GateError: There is no such alias, nothing to go back to, or repogen did not build that version.
        TrackingError: That version was deleted, the registry cannot be reached, or the alias moved meanwhile.
    """
    _check_alias(alias)
    entries = _entries(registry, name)
    present = _bearer(entries, alias)
    if present is None:
        raise GateError(f"{name} has no alias {alias!r}, so there is nothing to roll back", code="promotion.no-alias")
    moves = registry.moves(name, alias)
    wanted = before(moves, present.version)
    if wanted is None:
        raise GateError(
            f"{name}: nothing is recorded before version {present.version} of {alias!r}",
            f"`repogen history {name}` shows what is; `repogen promote {name} VERSION --alias {alias}` moves it",
            code="promotion.nothing-before",
        )
    target = next((entry for entry in entries if entry.version == wanted), None)
    if target is None:
        raise TrackingError(
            f"{name}: version {wanted}, which {alias!r} pointed to before {present.version}, is gone from the registry",
            f"promote another one: `repogen promote {name} VERSION --alias {alias}`",
            code="promotion.version-deleted",
        )
    _require_promotable(target)
    outcome, move = Outcome.WOULD_MOVE, None
    if not dry_run:
        outcome, move = Outcome.ROLLED_BACK, _move(alias, present.version, wanted, ROLLBACK, {})
        registry.move_alias(name, move)
    notes = ["no gate was measured: the version has served before"]
    if not moves or moves[-1].new != present.version:
        notes.append(f"version {present.version} was not put there by repogen")
    return PromotionReport(name, alias, present.version, wanted, outcome, move=move, notes=tuple(notes))


def history(registry: ModelRegistry, name: str, alias: str | None = None) -> History:
    """Return which version each alias of a model, or one alias, pointed to when.

    Raises:
        SpecError: There is no such model, or it never had that alias.
        TrackingError: The registry cannot be reached.
    """
    entries = _entries(registry, name)
    moves = registry.moves(name, alias)
    present = {each: entry.version for entry in entries for each in entry.aliases if alias in {None, each}}
    known = sorted({*present, *(move.alias for move in moves)})
    if alias is not None and not known:
        raise SpecError(f"{name} has never had the alias {alias!r}", code="promotion.no-such-alias")
    found = (
        period
        for each in known
        for period in periods(each, [move for move in moves if move.alias == each], present.get(each))
    )
    return History(name, tuple(found))


def _check_alias(alias: str) -> None:
    if not _ALIAS.fullmatch(alias):
        raise SpecError(
            f"{alias!r} cannot be an alias",
            "letters, digits, _ and -; not `latest`, and not `v` and a number, which MLflow keeps for itself",
            code="promotion.alias",
        )


def _entries(registry: ModelRegistry, name: str) -> tuple[RegistryEntry, ...]:
    entries = registry.entries(name)
    if not entries:
        raise SpecError(
            f"the registry has no version of a model {name!r}",
            "`repogen build` registers what it builds when the spec has an mlflow: section",
            code="promotion.no-such-model",
        )
    return entries


def _bearer(entries: Iterable[RegistryEntry], alias: str) -> RegistryEntry | None:
    return next((entry for entry in entries if alias in entry.aliases), None)


def _candidate(entries: tuple[RegistryEntry, ...], request: PromotionRequest) -> RegistryEntry:
    """Return the version that was asked for, or the newest that can be promoted."""
    if request.version is None:
        published = (entry for entry in entries if entry.state is EntryState.PUBLISHED)
        chosen = next(published, entries[0])
    else:
        found = next((entry for entry in entries if entry.version == request.version), None)
        if found is None:
            raise SpecError(
                f"{request.name} has no version {request.version} in the registry",
                f"it has {', '.join(str(entry.version) for entry in entries)}",
                code="promotion.no-such-version",
            )
        chosen = found
    _require_promotable(chosen)
    return chosen


def _require_promotable(entry: RegistryEntry) -> None:
    if entry.state in _UNPROMOTABLE:
        what, hint = _UNPROMOTABLE[entry.state]
        code = f"promotion.{entry.state.name.lower()}"
        raise GateError(f"{entry.name}: version {entry.version} {what}", hint, code=code)


def _passed_over(entries: Iterable[RegistryEntry], candidate: RegistryEntry) -> tuple[str, ...]:
    newer = [entry for entry in entries if entry.version > candidate.version]
    said = {EntryState.PENDING: "is pending", EntryState.FOREIGN: "was not built by repogen"}
    return tuple(
        f"version {entry.version} {said[entry.state]} and was passed over" for entry in newer if entry.state in said
    )


def _move(alias: str, old: int | None, new: int, why: str, figures: dict[str, str]) -> AliasMove:
    return AliasMove(alias, old, new, _user(), datetime.now(UTC).isoformat(timespec="seconds"), why, figures)


def _user() -> str:
    """Return who moves the alias: in GitHub Actions whoever started the run, who is not the runner's user."""
    actor = os.environ.get("GITHUB_ACTOR")
    if actor:
        return actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def _figures(results: Iterable[GateResult], measured: Measured) -> dict[str, str]:
    """Return what the registry keeps: measured figures with their limits, and where they were measured."""
    found = {
        result.gate: f"{result.measured}{f' [{result.limit}]' if result.limit else ''}"
        for result in results
        if result.measured != "-"
    }
    if measured.server:
        found["server"] = measured.server + (", indicative" if measured.indicative else "")
    return found
