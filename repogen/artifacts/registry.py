"""What the release desk hands around: registered model versions, their aliases, and the promotions that moved them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class EntryState(Enum):
    """How far the publication of a registered version came."""

    PENDING = "pending"
    """Logged and registered; not known to be in a repository."""
    PUBLISHED = "published"
    FOREIGN = ""
    """Registered by something else than repogen."""


@dataclass(frozen=True)
class RegistryEntry:
    """One version of a registered model.

    Attributes:
        name: Registered model, which is the Triton model's name.
        version: The registry's number, not Triton's.
        state: How far its publication came.
        content: Digest over every file of the version (``Manifest.content_sha256``): the key that joins registry and
            repositories; empty when foreign.
        sha256: Digest of ``model.onnx``; empty when foreign.
        triton_version: Number of the version directory in the repository it was built into; None while pending.
        repository: Where the build published it, or meant to; empty when foreign.
        target: Triton release.
        tags: All tags, as the registry has them.
        aliases: Aliases that point to it.
    """

    name: str
    version: int
    state: EntryState
    content: str
    sha256: str
    triton_version: int | None
    repository: str
    target: str
    tags: dict[str, str]
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class AliasMove:
    """One move of an alias, as the registry keeps it for good.

    Attributes:
        alias: The alias.
        old: Registry version it pointed to; None when it was new.
        new: Registry version it points to since.
        by: User who moved it.
        at: UTC, ISO 8601, seconds.
        why: ``promote``, ``rollback``, or ``outside`` for a move that repogen did not make.
        figures: What the gates measured, name -> text.
    """

    alias: str
    old: int | None
    new: int
    by: str
    at: str
    why: str
    figures: dict[str, str]


class ModelRegistry(Protocol):
    """A model registry: MLflow's, or a test's in memory. Every call may raise ``TrackingError``."""

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of ``name``, newest first; none when there is no such registered model."""

    def with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, of every registered model that has it, by name."""

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Download the files of a version as its build staged them, checked against their manifest.

        Args:
            entry: Which version.
            directory: Where to; must be empty.

        Returns:
            The directory, with ``manifest.json`` and every file that it lists, and nothing else.

        Raises:
            TrackingError: Artifacts are gone or altered, or the registry cannot be reached.
        """

    def move_alias(self, name: str, move: AliasMove) -> None:
        """Point an alias elsewhere and record the move.

        Raises:
            TrackingError: The alias no longer points to ``move.old``, or the registry cannot be reached.
        """

    def moves(self, name: str, alias: str | None = None) -> tuple[AliasMove, ...]:
        """Return the recorded moves of one alias, or of all, oldest first."""
