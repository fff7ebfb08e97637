"""The tracking server of a build, and the Protocol through which a build is tracked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.versions import StagedVersion


@dataclass(frozen=True)
class Tracking:
    """A tracking server and its model registry.

    Attributes:
        uri: URI as MLflow accepts it, without credentials; sqlite paths are absolute.
        experiment: Name of the experiment.
        register: Whether versions are registered; if not, only runs are logged.
        root: Directory of the spec, for git commit and branch.
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
        registry_version: Number in the registry; None if versions are not registered.
        adopted: Whether an earlier build registered it and failed to publish it.
    """

    run_id: str
    registry_version: int | None
    adopted: bool = False


class BuildTracker(Protocol):
    """Tracks the models of one build. Every call may raise ``TrackingError``; calls may come from several threads."""

    def start(self, models: Mapping[str, Mapping[str, str]]) -> None:
        """Create the build's run, and one for each of its models.

        Args:
            models: Tags of each model's run, by the model's name.
        """

    def log(
        self, staged: StagedVersion, built: BuiltModel, report: ModelReport, page: str, repository: Path
    ) -> Tracked:
        """Log a model's run, and register the version as pending, or adopt the pending version with the same files.

        Args:
            staged: The version, on disk.
            built: The worker's result.
            report: The report of the verified model.
            page: The report as Markdown.
            repository: The repository that the version will be published to.
        """

    def log_page(self, name: str, page: str) -> None:
        """Replace the report in the run of a model that was logged."""

    def log_failed(self, report: ModelReport, page: str) -> None:
        """Record in a model's run why its build failed."""

    def confirm(self, name: str, content: str, version: int, registered: int | None = None) -> None:
        """Mark a version as published in the model registry.

        Args:
            name: The model.
            content: ``Manifest.content_sha256`` of the published version.
            version: Number in the repository.
            registered: Number in the registry, if this process logged the version; None finds it by its content.
        """

    def finish(self, report: BuildReport | None, page: str, html: str = "") -> None:
        """End the build's run and all others that are still open; without runs, nothing happens.

        Args:
            report: The report of the whole build; None if it was interrupted.
            page: The report as Markdown.
            html: The report as HTML; empty for none.
        """
