"""Where builds are tracked, and what one tracked build hands from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.versions import StagedVersion


@dataclass(frozen=True)
class Tracking:
    """A tracking server and its registry.

    Attributes:
        uri: As MLflow takes it, without credentials; sqlite paths are absolute.
        experiment: Name of the experiment.
        register: Whether versions are registered, or runs are logged only.
        root: Directory of the spec, for git's facts.
    """

    uri: str
    experiment: str
    register: bool
    root: Path


@dataclass(frozen=True)
class Tracked:
    """A version that is logged but not yet published.

    Attributes:
        run_id: Its run in MLflow.
        registry_version: Number in the registry; None when versions are not registered.
        adopted: Whether an earlier build, whose publish failed, registered it.
    """

    run_id: str
    registry_version: int | None
    adopted: bool = False


class BuildTracker(Protocol):
    """Tracks the models of one build. Every call may raise ``TrackingError``; calls may come from several threads."""

    def start(self, names: Iterable[str]) -> None:
        """Begin the build's run and one for each of its models, while nobody waits for them."""

    def log(
        self, staged: StagedVersion, built: BuiltModel, report: ModelReport, page: str, repository: Path
    ) -> Tracked:
        """Fill a model's run, and register the version as pending, or adopt the one that is.

        Args:
            staged: The version, on disk.
            built: What the worker measured.
            report: What is known of the model's build until now.
            page: The same as Markdown.
            repository: Where it is to be published.
        """

    def log_failed(self, report: ModelReport, page: str) -> None:
        """Say in a model's run why its build failed."""

    def confirm(self, name: str, content: str, version: int, registered: int | None = None) -> None:
        """Say in the registry that a version is published.

        Args:
            name: The model.
            content: ``Manifest.content_sha256`` of what was published.
            version: Number in the repository.
            registered: Number in the registry, where the same process logged it; None looks for it by its content.
        """

    def finish(self, report: BuildReport | None, page: str) -> None:
        """End the build's run, and every other that is still open; nothing happens when none was begun.

        Args:
            report: The whole build; None when it was interrupted.
            page: The same as Markdown.
        """
