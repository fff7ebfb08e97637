"""What `repogen sync` was asked for and did; the console renders it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class SyncOptions:
    """Flags of ``repogen sync``.

    Attributes:
        alias: Alias of the versions to serve.
        models: Names to look at; every model of the registry and of the repository when empty.
        dry_run: Say what would be done, and do nothing.
        prune: Delete versions and models that are not served.
    """

    alias: str
    models: tuple[str, ...] = ()
    dry_run: bool = False
    prune: bool = False


@dataclass(frozen=True)
class Wanted:
    """A version that a synced repository should serve.

    Attributes:
        name: The model.
        version: The registry's number, which its directory bears.
        content: ``Manifest.content_sha256`` of what the registry holds.
    """

    name: str
    version: int
    content: str


class SyncAction(Enum):
    """What was done with a version."""

    PUBLISHED = "published"
    """It is served from now on."""
    KEPT = "kept"
    """It was served before."""
    UNSERVED = "unserved"
    """Its model lost the alias, and was moved out of the repository."""
    PRUNED = "pruned"
    """It was not served, and was deleted."""
    IGNORED = "ignored"
    """It was left as it is; the note says why."""
    FAILED = "failed"


CHANGES = frozenset({SyncAction.PUBLISHED, SyncAction.UNSERVED, SyncAction.PRUNED})
"""The actions that change a repository."""


@dataclass(frozen=True)
class SyncedVersion:
    """What was done with one version of a model.

    Attributes:
        model: The model.
        action: What was done, or with ``--dry-run`` would be.
        version: The registry's number; None where there is none to name.
        note: What a person should know.
        error: Why it failed.
    """

    model: str
    action: SyncAction
    version: int | None = None
    note: str = ""
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class SyncReport:
    """One run of ``repogen sync``.

    Attributes:
        repository: The synced repository.
        alias: The alias that it follows.
        dry_run: Whether nothing was really done.
        versions: What was done, by model.
    """

    repository: Path
    alias: str
    dry_run: bool
    versions: tuple[SyncedVersion, ...]

    @property
    def changed(self) -> bool:
        """Whether anything was changed, or would be."""
        return any(version.action in CHANGES for version in self.versions)

    @property
    def exit_code(self) -> int:
        """0, or the smallest exit code of what failed."""
        return min((v.error.exit_code for v in self.versions if v.error is not None), default=int(ExitCode.OK))
