"""Options and report of `repogen rollback`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RollbackOptions:
    """Options of ``repogen rollback``.

    Attributes:
        to: Version to hold; None for the newest one below the version that is served.
        release: Whether to end the hold instead.
        allow_breaking: Whether to change the model although an ensemble would no longer load.
        dry_run: Whether to change nothing.
        stage_dir: Directory to stage in; None for the repository's parent.
    """

    to: int | None = None
    release: bool = False
    allow_breaking: bool = False
    dry_run: bool = False
    stage_dir: Path | None = None


class RollbackOutcome(Enum):
    """What a rollback did."""

    HELD = "held"
    """The version is served and held."""
    RELEASED = "released"
    """The hold has ended."""
    UNCHANGED = "unchanged"
    """The version was held before, or no version was."""


@dataclass(frozen=True)
class RollbackReport:
    """One run of ``repogen rollback``.

    Attributes:
        repository: The repository.
        model: The model.
        outcome: What was done, or would be done without ``--dry-run``.
        before: Versions that were served before, newest first.
        after: Versions that are served now, newest first.
        held: The version that is held now; None without a hold.
        dry_run: Whether no change was made.
        notes: What the user should know.
    """

    repository: Path
    model: str
    outcome: RollbackOutcome
    before: tuple[int, ...]
    after: tuple[int, ...]
    held: int | None
    dry_run: bool
    notes: tuple[str, ...] = ()
