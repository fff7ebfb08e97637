"""Registered model versions, their aliases, and the promotions that moved them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.versions import Manifest


class EntryState(Enum):
    """Whether a registered version was published."""

    PENDING = "pending"
    """Logged and registered, but not known to be in a repository."""
    PUBLISHED = "published"
    FOREIGN = ""
    """Not registered by repogen."""


@dataclass(frozen=True)
class RegistryEntry:
    """One version of a registered model.

    Attributes:
        name: Name of the registered model, which is also the Triton model's.
        version: The registry's number; Triton's may differ.
        state: Whether it was published.
        content: Digest over every file of the version (``Manifest.content_sha256``), by which the version is found in
            repositories; empty if foreign.
        sha256: Digest of ``model.onnx``; empty if foreign.
        triton_version: Number of the version directory in the repository that it was built for; None while pending.
        repository: That repository; empty if foreign.
        target: Triton release; empty if foreign.
        tags: All tags in the registry.
        aliases: Aliases that point to it.
        steps: Names of the models that it uses, if it is an ensemble.
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
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class AliasMove:
    """One move of an alias, as it is recorded in the registry.

    Attributes:
        alias: The alias.
        old: Registry version that it pointed to before; None if it is new.
        new: Registry version that it points to after.
        by: User who moved it.
        at: Time in UTC, ISO 8601, in seconds.
        why: ``promote``, ``rollback``, or ``outside`` for a move that repogen did not make.
        figures: Measurements of the gates, name -> text.
        values: The numbers among them.
        ensemble: Ensemble and version, such as ``classify 3``, whose move it followed, because the ensemble uses the
            model; empty for a move of its own.
    """

    alias: str
    old: int | None
    new: int
    by: str
    at: str
    why: str
    figures: dict[str, str]
    values: dict[str, float] = field(default_factory=dict)
    ensemble: str = ""


@dataclass(frozen=True)
class PromotionRun:
    """A promotion, whether it moved the alias or was rejected, as a run of the registry's tracking server.

    Attributes:
        name: Name of the run.
        passed: Whether no gate failed.
        tags: Model, alias, versions and outcome.
        metrics: ``gate/NAME`` -> measured number.
        page: The report as Markdown.
    """

    name: str
    passed: bool
    tags: dict[str, str]
    metrics: dict[str, float]
    page: str


class ModelRegistry(Protocol):
    """A model registry: MLflow's, or one in memory for tests. Every call may raise ``TrackingError``."""

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of ``name``, newest first; empty if no such model is registered."""

    def with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, for every registered model that has the alias, by name."""

    def ensembles_with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, for every ensemble that has the alias, by name."""

    def manifest(self, entry: RegistryEntry) -> Manifest:
        """Download the manifest of a version, and compare it with the registry's entry.

        Raises:
            TrackingError: It was deleted or changed, or the registry cannot be reached.
        """

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Download the files of a version as its build staged them, and compare them with their manifest.

        Args:
            entry: The version.
            directory: An empty directory to download to.

        Returns:
            The directory, with ``manifest.json``, every file that it lists, and nothing else.

        Raises:
            TrackingError: Artifacts were deleted or changed, or the registry cannot be reached.
        """

    def move_alias(self, name: str, move: AliasMove) -> None:
        """Point an alias to another version and record the move.

        Raises:
            TrackingError: The alias no longer points to ``move.old``, or the registry cannot be reached.
        """

    def moves(self, name: str, alias: str | None = None) -> tuple[AliasMove, ...]:
        """Return the recorded moves of one alias, or of all aliases, oldest first."""

    def record(self, run: PromotionRun) -> None:
        """Record a promotion as a run."""
