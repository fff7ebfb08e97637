"""Options and report of `repogen sync`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExitCode, RepogenError

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.attestation import TrustedSigner


@dataclass(frozen=True)
class SyncOptions:
    """Flags of ``repogen sync``.

    Attributes:
        alias: Alias of the versions to serve.
        models: Names of the models to sync; every model of the registry and of the repository if empty.
        dry_run: Report the changes without making them.
        prune: Delete old versions that are no longer needed, and models without the alias.
        signer: Whose signatures new versions must have; None to require none.
    """

    alias: str
    models: tuple[str, ...] = ()
    dry_run: bool = False
    prune: bool = False
    signer: TrustedSigner | None = None


@dataclass(frozen=True)
class DesiredVersion:
    """A version that a synced repository should serve.

    Attributes:
        name: The model.
        version: The registry's version number, which is the name of its directory.
        content: ``Manifest.content_sha256`` of the version in the registry.
    """

    name: str
    version: int
    content: str


class SyncAction(Enum):
    """What a sync did with a version."""

    PUBLISHED = "published"
    """It is served from now on."""
    KEPT = "kept"
    """It was served before."""
    UNSERVED = "unserved"
    """Its model lost the alias, and was moved into the archive."""
    PRUNED = "pruned"
    """It was not served, and was deleted."""
    IGNORED = "ignored"
    """It was not changed; the note contains the reason."""
    FAILED = "failed"


CHANGES = frozenset({SyncAction.PUBLISHED, SyncAction.UNSERVED, SyncAction.PRUNED})
"""The actions that change a repository."""


@dataclass(frozen=True)
class SyncedVersion:
    """What a sync did with one version of a model.

    Attributes:
        model: The model.
        action: What was done, or would be done without ``--dry-run``.
        version: The registry's version number; None if the row is not about one version.
        note: Explanation for the report.
        error: Why it failed.
        held: Whether the model is not changed because ``repogen rollback`` holds a version.
    """

    model: str
    action: SyncAction
    version: int | None = None
    note: str = ""
    error: ErrorRecord | None = None
    held: bool = False


@dataclass(frozen=True)
class SyncReport:
    """One run of ``repogen sync``.

    Attributes:
        repository: The synced repository.
        alias: The alias that it follows.
        dry_run: Whether no change was made.
        versions: The results, by model.
    """

    repository: Path
    alias: str
    dry_run: bool
    versions: tuple[SyncedVersion, ...]

    @property
    def changed(self) -> bool:
        """Whether a version was changed, or would be."""
        return any(version.action in CHANGES for version in self.versions)

    @property
    def exit_code(self) -> int:
        """0, or the smallest exit code of the failures."""
        return min((v.error.exit_code for v in self.versions if v.error is not None), default=int(ExitCode.OK))


@dataclass(frozen=True)
class Followed:
    """One sync of ``repogen.follow``.

    Attributes:
        report: Its report; None if it failed as a whole.
        error: Why it failed; None if it has a report.
        address: ``HOST:PORT`` that is listened on.
        rejections: Why requests were rejected since the last sync, with their number.
    """

    report: SyncReport | None
    error: RepogenError | None
    address: str
    rejections: dict[str, int]
