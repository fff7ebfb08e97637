"""Runs of one build in MLflow: a parent, and one nested in it for each model."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.artifacts.registry import EntryState
from repogen.artifacts.tracking import Tracked
from repogen.errors import TrackingError
from repogen.registry.mlflow.entries import REPOSITORY, STATE, TRITON_VERSION, pending_tags
from repogen.registry.mlflow.metrics import metrics, params, run_tags
from repogen.registry.mlflow.mlmodel import write_model
from repogen.registry.mlflow.registry import MlflowRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from mlflow.entities import Run

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.registry import RegistryEntry
    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.versions import StagedVersion
    from repogen.registry.mlflow.client import Connection

# Source: MLflow's REST API takes 1,000 metrics, 100 params and 100 tags a batch, and 1,000 of all together.
_MOST_METRICS = 800
_MOST_PARAMS = 100
_MODEL = "model"
_REPORT = "report.md"
_LONGEST = 5000  # a tag holds 8,000 characters
_AT_ONCE = 8


class MlflowTracker:
    """A ``BuildTracker`` in MLflow.

    Args:
        connection: An open connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Log nothing yet."""
        self._connection = connection
        self._client = connection.client
        self._registry = MlflowRegistry(connection)
        self._tags = run_tags(connection.tracking.root, os.environ)
        self._begun = int(time.time() * 1000)
        self._parent: Run | None = None
        self._runs: dict[str, Run] = {}
        self._pending: dict[str, tuple[RegistryEntry, ...]] = {}
        # What nobody has to wait for, and calls that may go side by side.
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mlflow")
        self._ending: list[Future[None]] = []

    def start(self, names: Iterable[str]) -> None:
        """Begin the build's run and one for each model, and look up what earlier builds registered."""
        experiment = self._connection.experiment()
        with self._connection.doing("creating the build's run"):
            self._parent = self._client.create_run(experiment, self._begun, self._tags, "repogen build")
        parent = str(self._parent.info.run_id)
        for name in names:
            tags = {**self._tags, "mlflow.parentRunId": parent, "repogen.model": name}
            with self._connection.doing(f"creating a run of {name}"):
                self._runs[name] = self._client.create_run(experiment, self._begun, tags, name)
            if self._connection.tracking.register:
                self._pending[name] = self._pending_now(name)

    def log(
        self, staged: StagedVersion, built: BuiltModel, report: ModelReport, page: str, repository: Path
    ) -> Tracked:
        """Log a run with its artifacts, and register the version as pending, or adopt the one that is."""
        run = self._runs[staged.name]
        run_id = str(run.info.run_id)
        figures = self._pool.submit(self._log_batch, run_id, params(staged, report), tuple(metrics(built, report)))
        register = self._connection.tracking.register
        adopted = self._adoptable(staged) if register else None
        self._upload(run, staged, page, with_model=adopted is None)
        figures.result()
        number = adopted.version if adopted is not None else None
        if adopted is not None and adopted.repository != str(repository.resolve()):
            self._registry.tag(adopted.name, adopted.version, {REPOSITORY: str(repository.resolve())})
        if register and number is None:
            tags = pending_tags(staged, report, repository)
            number = self._registry.register(staged.name, f"{run.info.artifact_uri}/{_MODEL}", run_id, tags)
        self._end(staged.name, "FINISHED")
        return Tracked(run_id, number, adopted=adopted is not None)

    def log_failed(self, report: ModelReport, page: str) -> None:
        """Say in a model's run why its build failed."""
        run = self._runs[report.name]
        error = report.error
        tags = {} if error is None else {"repogen.error.code": error.code, "repogen.error": error.message[:_LONGEST]}
        spent = [(f"seconds.{step}", seconds, 0) for step, seconds in report.seconds.items()]
        self._log_batch(str(run.info.run_id), {}, spent, tags)
        self._log_page(run, page)
        self._end(report.name, "FAILED")

    def confirm(self, name: str, content: str, version: int, registered: int | None = None) -> None:
        """Say in the registry that a version is published; see ``BuildTracker.confirm``."""
        if not self._connection.tracking.register:
            return
        if registered is None:
            registered = self._registered(name, content)
        # The state comes last: who reads it can rely on the rest.
        told = {TRITON_VERSION: str(version), STATE: EntryState.PUBLISHED.value}
        self._registry.tag(name, registered, told)

    def _registered(self, name: str, content: str) -> int:
        found = self._registry.with_content(name, content)
        if not found:
            raise TrackingError(
                f"MLflow's registry has no version of {name} with the published files (content sha256 {content[:12]}…)",
                f"`repogen build --force --model {name}` registers and publishes a new one",
                code="tracking.gone",
            )
        return found[0].version

    def finish(self, report: BuildReport | None, page: str) -> None:
        """End the build's run, and every other that is still open; see ``BuildTracker.finish``."""
        status = "KILLED" if report is None else "FAILED" if report.exit_code else "FINISHED"
        for name in list(self._runs):  # of an interrupted build, or of a model whose failure could not be logged
            self._end(name, "KILLED" if report is None else "FAILED")
        if self._parent is not None:
            run_id = str(self._parent.info.run_id)
            if report is not None:
                counts = Counter(model.status.value for model in report.models)
                kinds = [(f"models.{kind}", float(count), 0) for kind, count in counts.items()]
                figures = self._pool.submit(self._log_batch, run_id, {}, kinds)
                self._log_page(self._parent, page)
                figures.result()
            self._terminate(run_id, status)
        for ending in self._ending:
            ending.result()
        self._pool.shutdown()

    def _log_batch(
        self,
        run_id: str,
        chosen: Mapping[str, str],
        measured: Iterable[tuple[str, float, int]],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415 - a tracked build's only

        now = int(time.time() * 1000)
        figures = [Metric(key, value, now, step) for key, value, step in measured]
        facts = [Param(key, value) for key, value in chosen.items()]
        marks = [RunTag(key, value) for key, value in (tags or {}).items()]
        with self._connection.doing("logging params and metrics"):
            while figures or facts or marks:
                self._client.log_batch(run_id, figures[:_MOST_METRICS], facts[:_MOST_PARAMS], marks)
                figures, facts, marks = figures[_MOST_METRICS:], facts[_MOST_PARAMS:], []

    def _log_page(self, run: Run, page: str) -> None:
        with self._connection.doing("logging a report"), tempfile.TemporaryDirectory() as place:
            path = Path(place) / _REPORT
            path.write_text(page, encoding="utf-8")
            self._store(run).log_artifact(str(path))

    def _store(self, run: Run) -> Any:  # noqa: ANN401 - mlflow's is not typed
        from mlflow.store.artifact.artifact_repository_registry import (  # noqa: PLC0415 - heavy
            get_artifact_repository,
        )

        return get_artifact_repository(str(run.info.artifact_uri), self._connection.tracking.uri)

    def _upload(self, run: Run, staged: StagedVersion, page: str, *, with_model: bool) -> None:
        """Log the report and, unless an earlier build did, the model; small files side by side."""
        with tempfile.TemporaryDirectory(prefix="mlflow-", dir=staged.repository.parent) as place:
            artifacts = Path(place)
            (artifacts / _REPORT).write_text(page, encoding="utf-8")
            (artifacts / _MODEL).mkdir()
            if with_model:
                write_model(staged, str(run.info.run_id), artifacts / _MODEL)
            with self._connection.doing(f"uploading the artifacts of {staged.name}"):
                store = self._store(run)
                files = [(artifacts / _REPORT, None), *((path, _MODEL) for path in (artifacts / _MODEL).iterdir())]
                list(self._pool.map(lambda file: store.log_artifact(str(file[0]), file[1]), files))

    def _pending_now(self, name: str) -> tuple[RegistryEntry, ...]:
        return tuple(entry for entry in self._registry.versions(name) if entry.state is EntryState.PENDING)

    def _adoptable(self, staged: StagedVersion) -> RegistryEntry | None:
        """Return the version that an earlier build registered and could not publish, if its artifacts are there."""
        content = staged.manifest.content_sha256
        if all(entry.content != content for entry in self._pending[staged.name]):
            return None
        now = self._pending_now(staged.name)  # another build may have adopted it since
        return next((entry for entry in now if entry.content == content and self._is_there(entry)), None)

    def _is_there(self, entry: RegistryEntry) -> bool:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above
        from mlflow.store.artifact.artifact_repository_registry import (  # noqa: PLC0415 - the same
            get_artifact_repository,
        )

        with self._connection.doing(f"looking for the artifacts of {entry.name} version {entry.version}"):
            uri = self._client.get_model_version_download_uri(entry.name, str(entry.version))
            try:
                files = get_artifact_repository(uri, self._connection.tracking.uri).list_artifacts()
            except MlflowException:
                return False
        return any(file.path.rpartition("/")[2] == MANIFEST_FILE for file in files)

    def _end(self, name: str, status: str) -> None:
        """End a model's run, while the build goes on."""
        run_id = str(self._runs.pop(name).info.run_id)
        self._ending.append(self._pool.submit(self._terminate, run_id, status))

    def _terminate(self, run_id: str, status: str) -> None:
        with self._connection.doing("ending a run"):
            self._client.set_terminated(run_id, status)
