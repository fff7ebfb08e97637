"""Options and report of `repogen prune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path


@dataclass(frozen=True)
class PruneOptions:
    """Options of ``repogen prune``.

    Attributes:
        keep: Number of versions to keep of each model: the newest one that is served, and those before it.
        older_than: Keep versions that were created less than this time ago; None for no limit.
        dry_run: Whether to delete nothing.
        ignore_registry: Whether to delete versions without querying the model registry for aliases.
        stage_dir: Directory that versions are moved to before they are deleted; None for the repository's parent.
    """

    keep: int
    older_than: timedelta | None = None
    dry_run: bool = False
    ignore_registry: bool = False
    stage_dir: Path | None = None


@dataclass(frozen=True)
class PrunedVersion:
    """What a prune did with one version.

    Attributes:
        model: The model.
        version: The version.
        size: Bytes of its files.
        keep_reason: Why it was kept; empty if it was deleted, or would be without ``--dry-run``.
    """

    model: str
    version: int
    size: int
    keep_reason: str


@dataclass(frozen=True)
class PruneReport:
    """One run of ``repogen prune``.

    Attributes:
        repository: The repository.
        dry_run: Whether nothing was deleted.
        versions: Every version of the selected models, by model, newest first.
    """

    repository: Path
    dry_run: bool
    versions: tuple[PrunedVersion, ...]

    @property
    def deleted(self) -> tuple[PrunedVersion, ...]:
        """The versions that were deleted, or would be."""
        return tuple(version for version in self.versions if not version.keep_reason)
