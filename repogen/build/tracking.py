"""The pipeline's place at the release desk: a tracker that connects while models export, and what it is told."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from repogen.errors import TrackingError
from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.repository.layout import model_dir
from repogen.artifacts.report import BuildReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.tracking import BuildTracker, Tracked, Tracking
    from repogen.artifacts.versions import StagedVersion

_CLOSES_WITHIN = 5.0  # seconds, for a process that is about to end


class ReleaseDesk:
    """Connects to MLflow in a thread of its own, because its import and first connection take seconds.

    Args:
        tracking: Where to.
        repository: The repository that is built into, for reports.
        names: Models that are to be built; their runs begin with the connection.
        gone: Called when the connection fails, so that nobody exports for a build that can't be tracked.
    """

    def __init__(self, tracking: Tracking, repository: Path, names: Sequence[str], gone: Callable[[], None]) -> None:
        """Keep the arguments; nothing runs yet."""
        self.registers = tracking.register
        self._tracking = tracking
        self._repository = repository
        self._names = names
        self._gone = gone
        self._tracker: Future[BuildTracker] = Future()
        # A daemon: Ctrl-C does not wait for a server that hangs.
        self._thread = threading.Thread(target=self._connect, name="mlflow", daemon=True)

    @property
    def error(self) -> TrackingError | None:
        """Why there is no connection; None while nobody knows, and when there is one."""
        error = self._tracker.exception() if self._tracker.done() else None
        return error if isinstance(error, TrackingError) else None

    def log(self, staged: StagedVersion, built: BuiltModel, report: ModelReport) -> Tracked:
        """Log a model's run and register it as pending; its version directory says so until it is confirmed.

        Raises:
            TrackingError: MLflow failed; nothing may be published.
        """
        tracked = self._tracker.result().log(staged, built, report, self._page(report), self._repository)
        if self.registers:
            (staged.version_dir / UNCONFIRMED_FILE).touch()
        return tracked

    def log_failed(self, report: ModelReport) -> ModelReport:
        """Log a model that failed; where that fails, too, the report says so."""
        try:
            self._tracker.result().log_failed(report, self._page(report))
        except TrackingError as error:
            return replace(report, notes=(*report.notes, f"MLflow knows nothing of this failure: {error.message}"))
        return report

    def confirm(self, name: str, version: int, content: str, registered: int | None = None) -> None:
        """Tell the registry that a version is published, and the version directory that the registry knows.

        Args:
            name: The model.
            version: Number in the repository.
            content: ``Manifest.content_sha256`` of what was published.
            registered: Number in the registry, if it is known.

        Raises:
            TrackingError: MLflow failed; the next build tries again.
        """
        try:
            self._tracker.result().confirm(name, content, version, registered)
        except TrackingError as error:
            raise TrackingError(
                f"published as version {version}, unconfirmed: {error.message}",
                f"{error.hint}; it is confirmed by the next `repogen build`",
                code="tracking.unconfirmed",
                details=error.details,
            ) from error
        with suppress(FileNotFoundError):  # another build was faster
            (model_dir(self._repository, name) / str(version) / UNCONFIRMED_FILE).unlink()

    def finish(self, report: BuildReport) -> BuildReport:
        """End the build's run; where that fails, the report says so. Every model's own run is complete."""
        from repogen.reporting.markdown import report_markdown  # noqa: PLC0415 - imports jinja2

        try:
            self._tracker.result().finish(report, report_markdown(report))
        except TrackingError as error:
            return replace(report, error=error.record)
        return report

    def _page(self, report: ModelReport) -> str:
        from repogen.reporting.markdown import report_markdown  # noqa: PLC0415 - as above

        return report_markdown(BuildReport(self._repository, (report,)))

    def _connect(self) -> None:
        from repogen.registry.mlflow.access import open_tracker  # noqa: PLC0415 - imports mlflow

        try:
            tracker = open_tracker(self._tracking)
            if self._names:
                tracker.start(self._names)
            self._tracker.set_result(tracker)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._tracker.set_exception(error)
            self._gone()

    def __enter__(self) -> Self:
        """Ask whether the server is there, then begin to connect.

        Raises:
            MissingExtraError: mlflow is not installed.
            TrackingError: The server is down, slow, or refuses.
        """
        from repogen.registry.mlflow.preflight import preflight  # noqa: PLC0415 - an untracked build needs none

        preflight(self._tracking)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runs of a build that was interrupted; those that are just being begun are waited for."""
        if kind is None:
            return
        self._thread.join(_CLOSES_WITHIN)
        if self._tracker.done() and self._tracker.exception() is None:
            with suppress(TrackingError):
                self._tracker.result().finish(None, "")
