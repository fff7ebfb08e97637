"""Tracks a build in MLflow; connects in a background thread while models are exported."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.report import BuildReport
from repogen.errors import ErrorRecord, RepogenError, TrackingError
from repogen.registry.mlflow.access import open_tracker
from repogen.registry.mlflow.metrics import model_tags
from repogen.registry.mlflow.preflight import preflight
from repogen.reporting.markdown import report_markdown
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.spec.sources import MlflowSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.tracking import BuildTracker, Tracked, Tracking
    from repogen.artifacts.versions import StagedVersion
    from repogen.build.plan import BuildPlan
    from repogen.spec.models import ModelSpec

_CLOSING_SECONDS = 5.0


class TrackingSession:
    """The MLflow runs of one build. Importing mlflow and connecting take seconds, so both happen in a thread.

    Args:
        tracking: The tracking server.
        repository: The model repository, for reports.
        models: Models to build; their runs begin with the connection.
        on_failure: Called when the connection fails, so that the build can stop.
        connect: Opens a tracker for a server.
    """

    def __init__(
        self,
        tracking: Tracking,
        repository: Path,
        models: Mapping[str, ModelSpec],
        on_failure: Callable[[], None],
        connect: Callable[[Tracking], BuildTracker] = open_tracker,
        place: Path | None = None,
    ) -> None:
        """Keep the arguments; nothing runs yet."""
        self.registers = tracking.register
        self._tracking = tracking
        self._repository = repository
        self._place = place or repository
        self._models = models
        self._on_failure = on_failure
        self._open = connect
        self._tracker: Future[BuildTracker] = Future()
        # A daemon: Ctrl-C does not wait for a server that does not respond.
        self._thread = threading.Thread(target=self._connect, name="mlflow", daemon=True)

    @property
    def error(self) -> TrackingError | None:
        """Why the connection failed; None while it is being opened, and when it is open."""
        error = self._tracker.exception() if self._tracker.done() else None
        return error if isinstance(error, TrackingError) else None

    def log(self, staged: StagedVersion, built: BuiltModel, report: ModelReport) -> Tracked:
        """Log a model's run, register the version as pending, and mark its directory until it is confirmed.

        Raises:
            TrackingError: MLflow failed; nothing may be published.
        """
        tracked = self._tracker.result().log(staged, built, report, self._page(report), self._place)
        if self.registers:
            (staged.version_dir / UNCONFIRMED_FILE).touch()
        return tracked

    def log_published(self, report: ModelReport) -> ModelReport:
        """Replace the report of a version that is published now; if that fails, a note in the report says so."""
        try:
            self._tracker.result().log_page(report.name, self._page(report))
        except TrackingError as error:
            note = f"the report in MLflow does not have the version's number: {error.message}"
            return replace(report, notes=(*report.notes, note))
        return report

    def log_failed(self, report: ModelReport) -> ModelReport:
        """Log a model that failed, and return its report; if logging fails, a note in the report says so."""
        try:
            self._tracker.result().log_failed(report, self._page(report))
        except TrackingError as error:
            note = f"this failure could not be recorded in MLflow: {error.message}"
            return replace(report, notes=(*report.notes, note))
        return report

    def confirm(self, name: str, version: int, content: str, registered: int | None = None) -> None:
        """Mark a version as published in the model registry, and remove the mark from its directory.

        Args:
            name: The model.
            version: Number in the repository.
            content: ``Manifest.content_sha256`` of the published version.
            registered: Number in the registry; None to find it by its content.

        Raises:
            TrackingError: MLflow failed; the next build tries again.
        """
        try:
            self._tracker.result().confirm(name, content, version, registered)
        except TrackingError as error:
            raise TrackingError(
                f"published as version {version}, but not confirmed in MLflow: {error.message}",
                f"{error.hint}; the next `repogen build` confirms it",
                code="tracking.unconfirmed",
                details=error.details,
            ) from error
        with suppress(OSError):  # a concurrent build removed it, or the next build confirms the version again
            (model_dir(self._repository, name) / str(version) / UNCONFIRMED_FILE).unlink()

    def finish(self, report: BuildReport, html: str = "") -> BuildReport:
        """End the build's run, and return the report; if that fails, the report contains the error.

        Args:
            report: The report.
            html: The report as HTML; empty for none.
        """
        try:
            self._tracker.result().finish(report, report_markdown(report, collapse=False), html)
        except TrackingError as error:
            return replace(report, error=error.record)
        return report

    def _page(self, report: ModelReport) -> str:
        return report_markdown(BuildReport(self._place, (report,)), collapse=False)

    def _connect(self) -> None:
        try:
            tracker = self._open(self._tracking)
            if self._models:
                tracker.start({name: model_tags(model) for name, model in self._models.items()})
            self._tracker.set_result(tracker)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the connection
            self._tracker.set_exception(error)
            self._on_failure()

    def __enter__(self) -> Self:
        """Begin to connect."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the runs of an interrupted build, including those that are being created."""
        if kind is None:
            return
        self._thread.join(_CLOSING_SECONDS)
        if self._tracker.done() and self._tracker.exception() is None:
            with suppress(TrackingError):
                self._tracker.result().finish(None, "")


@contextmanager
def open_tracking(
    plan: BuildPlan,
    progress: Progress,
    cancelled: threading.Event,
    connect: Callable[[Tracking], BuildTracker] = open_tracker,
) -> Iterator[TrackingSession | None]:
    """Check that MLflow responds, then hold a connection to it; yields None if the build is not tracked.

    Args:
        plan: What to build.
        progress: Receives the steps of the build.
        cancelled: Set when the connection fails: the build then ends with that failure.
        connect: Opens a tracker for a server.

    Raises:
        MissingExtraError: mlflow is not installed.
        TrackingError: The server is down or slow, rejects the request, or went away.
    """
    if plan.tracking is None:
        yield None
        return
    progress.step("", "preflight")
    try:
        preflight(plan.tracking)
    except RepogenError as error:
        if not any(isinstance(plan.spec.models[name].source, MlflowSource) for name in plan.pending):
            error.hint = f"{error.hint}; --no-track builds without MLflow"
        raise
    models = {name: plan.spec.models[name] for name in plan.pending}
    session = TrackingSession(plan.tracking, plan.repository, models, cancelled.set, connect, plan.place)
    try:
        with session:
            yield session
    except KeyboardInterrupt:
        if session.error is not None:
            raise session.error from None
        raise


def confirm_published(tracking: TrackingSession, repository: Path, report: ModelReport, version: int) -> ModelReport:
    """Confirm a version that an earlier build published but could not confirm, and return the completed report."""
    try:
        content = read_manifest(model_dir(repository, report.name) / str(version)).content_sha256
        tracking.confirm(report.name, version, content)
    except (RepogenError, OSError) as error:
        record = error.record if isinstance(error, RepogenError) else ErrorRecord("tracking.unconfirmed", str(error))
        return replace(report, error=report.error or record)
    return replace(report, notes=(*report.notes, f"version {version} is now confirmed in MLflow's registry"))
