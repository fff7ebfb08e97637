"""The runs of one build in MLflow: a parent run, and one nested run per model."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.artifacts.registry import EntryState
from repogen.artifacts.tracking import Tracked
from repogen.errors import TrackingError
from repogen.files.temporary import temporary_directory
from repogen.files.tree import walk
from repogen.registry.mlflow.client import Connection, connect
from repogen.registry.mlflow.entries import REPOSITORY, STATE, TRITON_VERSION, pending_tags, tag_text
from repogen.registry.mlflow.library import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    Metric,
    MlflowException,
    Param,
    Run,
    RunTag,
    get_artifact_repository,
)
from repogen.registry.mlflow.metrics import (
    HTML_FILE,
    REPORT_FILE,
    SECONDS,
    headlines,
    metrics,
    params,
    run_tags,
    version_description,
)
from repogen.registry.mlflow.mlmodel import write_model
from repogen.registry.mlflow.registry import MlflowRegistry
from repogen.repository.golden import GOLDEN_NPZ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from repogen.artifacts.built_model import BuiltModel
    from repogen.artifacts.registry import RegistryEntry
    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.tracking import Tracking
    from repogen.artifacts.versions import StagedVersion

# Source: a batch of MLflow's REST API has at most 1,000 metrics, 100 params and 100 tags, and 1,000 in total.
_MAX_METRICS = 800
_MAX_PARAMS = 100
_MODEL_TYPE = "triton"
_MAX_LENGTH = 5000  # a tag may have 8,000 characters
_MAX_CALLS = 8
_MAX_DIGEST = 36  # Source: mlflow.store.tracking.dbmodels, SqlDataset.digest
_MAX_NAMES = 3


class MlflowTracker:
    """A ``BuildTracker`` in MLflow.

    Args:
        connection: An open connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Begin without runs."""
        self._connection = connection
        self._client = connection.client
        self._registry = MlflowRegistry(connection)
        self._tags = run_tags(connection.tracking.root, os.environ)
        self._begun = int(time.time() * 1000)
        self._parent: Run | None = None
        self._runs: dict[str, Run] = {}
        self._logged_runs: dict[str, Run] = {}
        self._models: Mapping[str, Mapping[str, str]] = {}
        self._pending: dict[str, tuple[RegistryEntry, ...]] = {}
        # For calls that nothing waits for, and for concurrent calls.
        self._pool = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="mlflow")
        self._ending: list[Future[None]] = []

    @classmethod
    def open(cls, tracking: Tracking) -> Self:
        """Connect to a tracking server.

        Raises:
            TrackingError: The server does not respond, or is not an MLflow server.
        """
        return cls(connect(tracking))

    def start(self, models: Mapping[str, Mapping[str, str]]) -> None:
        """Create the build's run and one for each model, and look up the versions that earlier builds registered."""
        experiment = self._connection.experiment()
        with self._connection.doing("creating the build's run"):
            self._parent = self._client.create_run(experiment, self._begun, self._tags, _run_name(tuple(models)))
        parent = str(self._parent.info.run_id)
        self._models = models
        for name, model_tags in models.items():
            tags = {**self._tags, **model_tags, "mlflow.parentRunId": parent, "repogen.model": name}
            with self._connection.doing(f"creating a run of {name}"):
                self._runs[name] = self._client.create_run(experiment, self._begun, tags, name)
            if self._connection.tracking.register:
                self._pending[name] = self._pending_versions(name)

    def log(
        self, staged: StagedVersion, built: BuiltModel, report: ModelReport, page: str, repository: Path
    ) -> Tracked:
        """Log a model's run and register its version; see ``BuildTracker.log``."""
        run = self._runs[staged.name]
        run_id = str(run.info.run_id)
        register = self._connection.tracking.register
        adopted = self._adoptable_entry(staged) if register else None
        values = params(staged, report)
        logged = self._create_logged_model(run, staged.name, values) if adopted is None else None
        links = self._log_dataset(run_id, staged, logged)
        measurements = self._pool.submit(self._log_batch, run_id, values, tuple(metrics(built, report)), links=links)
        self._log_page(run, page)
        if logged is not None:
            self._log_model(run, staged, logged)
        measurements.result()
        number = adopted.version if adopted is not None else None
        place = tag_text(str(repository.resolve()))
        if adopted is not None and adopted.repository != place:
            self._registry.tag(adopted.name, adopted.version, {REPOSITORY: place})
        if register and logged is not None:
            tags, description = pending_tags(staged, report, repository), version_description(staged, report)
            number = self._registry.register(staged.name, logged, tags, description)
        self._logged_runs[staged.name] = run
        self._end(staged.name, "FINISHED")
        return Tracked(run_id, number, adopted=adopted is not None)

    def log_page(self, name: str, page: str) -> None:
        """Replace the report in the run of a model that was logged."""
        self._log_page(self._logged_runs[name], page)

    def log_failed(self, report: ModelReport, page: str) -> None:
        """Record in a model's run why its build failed."""
        run = self._runs[report.name]
        error = report.error
        message = "" if error is None else tag_text(error.message)[:_MAX_LENGTH]
        tags = {} if error is None else {"repogen.error.code": error.code, "repogen.error": message}
        seconds = [(f"{SECONDS}{step}", duration, 0) for step, duration in report.seconds.items()]
        self._log_batch(str(run.info.run_id), {}, seconds, tags)
        self._log_page(run, page)
        self._end(report.name, "FAILED")

    def confirm(self, name: str, content: str, version: int, registered: int | None = None) -> None:
        """Mark a version as published in the registry; see ``BuildTracker.confirm``."""
        if not self._connection.tracking.register:
            return
        if registered is None:
            registered = self._find_version(name, content)
        # The state is set last: a reader that sees it can rely on the other tags.
        tags = {TRITON_VERSION: str(version), STATE: EntryState.PUBLISHED.value}
        self._registry.tag(name, registered, tags)

    def _find_version(self, name: str, content: str) -> int:
        entries = self._registry.with_content(name, content)
        if not entries:
            raise TrackingError(
                f"MLflow's registry has no version of {name} with the published files (content sha256 {content[:12]}…)",
                f"`repogen build --force --model {name}` registers and publishes a new one",
                code="tracking.gone",
            )
        return entries[0].version

    def finish(self, report: BuildReport | None, page: str, html: str = "") -> None:
        """End the build's run, and all others that are still open; see ``BuildTracker.finish``."""
        status = "KILLED" if report is None else "FAILED" if report.exit_code else "FINISHED"
        for name in list(self._runs):  # of an interrupted build, or of a model whose failure could not be logged
            self._end(name, "KILLED" if report is None else "FAILED")
        if self._parent is not None:
            run_id = str(self._parent.info.run_id)
            if report is not None:
                counts = Counter(model.status.value for model in report.models)
                totals = [(f"models/{kind}", float(count), 0) for kind, count in counts.items()]
                totals += [
                    metric for model in report.models if model.name in self._models for metric in headlines(model)
                ]
                measurements = self._pool.submit(self._log_batch, run_id, {}, totals)
                self._log_page(self._parent, page)
                if html:
                    self._log_page(self._parent, html, HTML_FILE)
                measurements.result()
            self._terminate(run_id, status)
        for ending in self._ending:
            ending.result()
        self._pool.shutdown()

    def _log_batch(
        self,
        run_id: str,
        parameters: Mapping[str, str],
        measurements: Iterable[tuple[str, float, int]],
        tags: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        timestamp = int(time.time() * 1000)
        metric_batch = [Metric(key, value, timestamp, step, **(links or {})) for key, value, step in measurements]
        param_batch = [Param(key, value) for key, value in parameters.items()]
        tag_batch = [RunTag(key, value) for key, value in (tags or {}).items()]
        with self._connection.doing("logging params and metrics"):
            while metric_batch or param_batch or tag_batch:
                self._client.log_batch(run_id, metric_batch[:_MAX_METRICS], param_batch[:_MAX_PARAMS], tag_batch)
                metric_batch, param_batch, tag_batch = metric_batch[_MAX_METRICS:], param_batch[_MAX_PARAMS:], []

    def _log_page(self, run: Run, page: str, file: str = REPORT_FILE) -> None:
        with self._connection.doing("logging a report"), temporary_directory() as directory:
            path = directory / file
            path.write_text(page, encoding="utf-8")
            self._store(run).log_artifact(str(path))

    def _store(self, run: Run) -> Any:  # noqa: ANN401 - mlflow's is not typed
        return get_artifact_repository(str(run.info.artifact_uri), self._connection.tracking.uri)

    def _create_logged_model(self, run: Run, name: str, values: dict[str, str]) -> LoggedModel:
        with self._connection.doing(f"creating the logged model of {name}"):
            return self._client.create_logged_model(
                run.info.experiment_id, name, run.info.run_id, dict(self._models[name]), values, _MODEL_TYPE
            )

    def _log_dataset(self, run_id: str, staged: StagedVersion, logged: LoggedModel | None) -> dict[str, str]:
        """Log the golden tensors as the run's dataset; return what links a metric to it and to the logged model."""
        digests = {record.path: record.sha256 for record in staged.manifest.files}
        if logged is None or GOLDEN_NPZ not in digests:
            return {}
        dataset = Dataset(f"{staged.name} golden tensors", digests[GOLDEN_NPZ][:_MAX_DIGEST], "repogen", GOLDEN_NPZ)
        with self._connection.doing(f"logging the dataset of {staged.name}"):
            tag = InputTag("mlflow.data.context", "parity")
            self._client.log_inputs(run_id, [DatasetInput(dataset, [tag])])
        return {"model_id": logged.model_id, "dataset_name": dataset.name, "dataset_digest": dataset.digest}

    def _log_model(self, run: Run, staged: StagedVersion, logged: LoggedModel) -> None:
        """Upload the files of a logged model concurrently, and link the model to its run."""
        run_id, model_id = str(run.info.run_id), str(logged.model_id)
        try:
            with tempfile.TemporaryDirectory(prefix="mlflow-", dir=staged.repository.parent) as directory:
                write_model(staged, run_id, model_id, Path(directory))
                with self._connection.doing(f"uploading the files of {staged.name}"):
                    store: Any = get_artifact_repository(logged.artifact_location, self._connection.tracking.uri)
                    list(self._pool.map(lambda file: store.log_artifact(*file), _uploads(Path(directory))))
        except BaseException:
            with suppress(TrackingError), self._connection.doing("marking a logged model as failed"):
                self._client.finalize_logged_model(model_id, "FAILED")
            raise
        with self._connection.doing(f"completing the logged model of {staged.name}"):
            self._client.finalize_logged_model(model_id, "READY")
            self._client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])

    def _pending_versions(self, name: str) -> tuple[RegistryEntry, ...]:
        return tuple(entry for entry in self._registry.versions(name) if entry.state is EntryState.PENDING)

    def _adoptable_entry(self, staged: StagedVersion) -> RegistryEntry | None:
        """Return the version that an earlier build registered but did not publish, if its artifacts exist."""
        content = staged.manifest.content_sha256
        if all(entry.content != content for entry in self._pending[staged.name]):
            return None
        entries = self._pending_versions(staged.name)  # a concurrent build may have adopted it
        return next((entry for entry in entries if entry.content == content and self._has_artifacts(entry)), None)

    def _has_artifacts(self, entry: RegistryEntry) -> bool:
        with self._connection.doing(f"looking for the artifacts of {entry.name} version {entry.version}"):
            uri = self._client.get_model_version_download_uri(entry.name, str(entry.version))
            try:
                files = get_artifact_repository(uri, self._connection.tracking.uri).list_artifacts()
            except MlflowException:
                return False
        return any(file.path.rpartition("/")[2] == MANIFEST_FILE for file in files)

    def _end(self, name: str, status: str) -> None:
        """End a model's run in the background."""
        run_id = str(self._runs.pop(name).info.run_id)
        self._ending.append(self._pool.submit(self._terminate, run_id, status))

    def _terminate(self, run_id: str, status: str) -> None:
        with self._connection.doing("ending a run"):
            self._client.set_terminated(run_id, status)


def _uploads(directory: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the files of a tree as arguments of MLflow's ``log_artifact``: the path, and the artifact's directory."""
    for folder, _, names in walk(directory, strict=True):
        target = None if folder == directory else folder.relative_to(directory).as_posix()
        yield from ((str(folder / name), target) for name in names)


def _run_name(names: Sequence[str]) -> str:
    """Return the name of a build's run, from the names of its models."""
    return f"build {', '.join(names)}" if len(names) <= _MAX_NAMES else f"build {len(names)} models"
