"""The trials of ``repogen tune`` in MLflow: a run for the search, and one nested run per trial."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self

from repogen.artifacts.tune import TrialState
from repogen.registry.mlflow.client import Connection, connect
from repogen.registry.mlflow.library import Metric, Param, Run, RunTag, get_artifact_repository
from repogen.registry.mlflow.metrics import run_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.tracking import Tracking
    from repogen.artifacts.tune import Figures, Trial, TuneReport

_MAX_LENGTH = 5000  # a tag may have 8,000 characters
_STATUS = {TrialState.MEASURED: "FINISHED", TrialState.STOPPED: "KILLED", TrialState.FAILED: "FAILED"}


class MlflowTuneTracker:
    """A ``TuneTracker`` in MLflow.

    Args:
        connection: An open connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Begin without runs."""
        self._connection = connection
        self._client = connection.client
        self._tags = run_tags(connection.tracking.root, os.environ)
        self._parent: Run | None = None
        self._model = ""

    @classmethod
    def open(cls, tracking: Tracking) -> Self:
        """Connect to a tracking server.

        Raises:
            TrackingError: The server does not respond, or is not an MLflow server.
        """
        return cls(connect(tracking))

    def start(self, model: str, params: dict[str, str]) -> None:
        """Create the run of the search."""
        self._model = model
        self._parent = self._create(f"tune {model}", {})
        self._log(str(self._parent.info.run_id), params, {}, {})

    def log_trial(self, trial: Trial) -> None:
        """Create a nested run for a trial, with its settings, figures, and why it was stopped or failed."""
        if self._parent is None:
            return
        tags = {"mlflow.parentRunId": str(self._parent.info.run_id), "repogen.trial.origin": trial.origin}
        run = self._create(f"trial {trial.number}", tags)
        run_id = str(run.info.run_id)
        settings = {name: str(value) for name, value in trial.settings.items()}
        notes = {
            "repogen.trial.state": trial.state.value,
            "repogen.trial.reason": trial.reason[:_MAX_LENGTH],
            "repogen.trial.violations": ", ".join(trial.violations)[:_MAX_LENGTH],
        }
        figures = {} if trial.figures is None else dict(_metrics(trial.figures))
        self._log(run_id, settings, {**figures, "seconds": trial.seconds}, notes)
        self._end(run_id, _STATUS[trial.state])

    def finish(self, report: TuneReport | None) -> None:
        """Log the result and its files, and end the run."""
        if self._parent is None:
            return
        run_id = str(self._parent.info.run_id)
        if report is not None:
            figures = {
                f"{name}/{row.name}": value
                for row in report.comparison
                for name, value in (("throughput", row.throughput.value), ("p50_ms", row.p50.value))
            }
            figures |= {f"ratio/{row.name}": row.ratio.value for row in report.comparison if row.ratio is not None}
            chosen = "" if report.chosen is None else str(report.chosen)
            self._log(run_id, {}, figures, {"repogen.trial.chosen": chosen})
            with self._connection.doing("logging the report"):
                store: Any = get_artifact_repository(str(self._parent.info.artifact_uri), self._connection.tracking.uri)
                for path in report.files:
                    store.log_artifact(str(path))
        failed = report is None or report.error is not None
        self._end(run_id, "KILLED" if report is not None and report.interrupted else "FAILED" if failed else "FINISHED")

    def _create(self, name: str, tags: Mapping[str, str]) -> Run:
        experiment = self._connection.experiment()
        with self._connection.doing(f"creating the run of {name}"):
            all_tags = {**self._tags, **tags, "repogen.model": self._model, "repogen.command": "tune"}
            return self._client.create_run(experiment, int(time.time() * 1000), all_tags, name)

    def _log(
        self, run_id: str, params: Mapping[str, str], figures: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        timestamp = int(time.time() * 1000)
        with self._connection.doing("logging a trial"):
            self._client.log_batch(
                run_id,
                [Metric(name, value, timestamp, 0) for name, value in figures.items()],
                [Param(name, value) for name, value in params.items()],
                [RunTag(name, value) for name, value in tags.items() if value],
            )

    def _end(self, run_id: str, status: str) -> None:
        with self._connection.doing("ending a run"):
            self._client.set_terminated(run_id, status)


def _metrics(figures: Figures) -> Iterator[tuple[str, float]]:
    yield "throughput", figures.throughput
    for name in ("p50", "p95", "p99"):
        yield f"latency/{name}_ms", getattr(figures, name)
    if figures.memory_bytes:
        yield "memory_bytes", float(figures.memory_bytes)
