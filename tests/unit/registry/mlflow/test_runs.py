"""What a tracked build stores in MLflow, and how it is downloaded again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from repogen.artifacts.registry import EntryState
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.errors import ErrorRecord, TrackingError
from repogen.registry.mlflow.entries import pending_tags
from repogen.registry.mlflow.library import get_artifact_repository
from repogen.registry.mlflow.mlmodel import write_model
from repogen.registry.mlflow.registry import MlflowRegistry

from .conftest import Stage, built, report

if TYPE_CHECKING:
    from repogen.registry.mlflow.client import Connection


def test_run_of_a_model_is_complete(store: Connection, track: Any, stage: Stage) -> None:
    """Params, metrics with one step per parity case, tags, and artifacts; nested in the build's run."""
    staged = stage("everything")
    tracker = track("everything")
    tracked = tracker.log(staged, built(staged), report(staged), "# the report", staged.repository)
    run = store.client.get_run(tracked.run_id)
    assert run.data.params["exporter"] == "dynamo"
    assert run.data.params["spec_sha256"] == "5bec"
    assert run.data.params["tool.onnx"] == staged.manifest.provenance.tools["onnx"]
    values = run.data.metrics
    assert values["parity/max_abs_diff"] == 1e-6
    assert values["latency/p95_ms"] == 2.0
    assert values["model/size_bytes"] == 1234.0
    assert values["seconds/export"] == 1.5
    history = store.client.get_metric_history(tracked.run_id, "parity_case/max_abs_diff")
    assert [(point.step, point.value) for point in history] == [(0, 0.0), (1, 1e-6)]
    parent = store.client.get_run(run.data.tags["mlflow.parentRunId"])
    assert parent.info.run_name == "build everything"
    assert parent.info.status == "RUNNING"
    assert run.data.tags["repogen.source"] == "torch"
    assert run.outputs is not None
    (output,) = run.outputs.model_outputs
    logged = store.client.get_logged_model(output.model_id)
    assert (logged.name, logged.status, logged.source_run_id) == ("everything", "READY", tracked.run_id)
    assert logged.params["exporter"] == "dynamo"
    files = {file.path for file in get_artifact_repository(logged.artifact_location).list_artifacts()}
    assert {"MLmodel", "model.onnx", "config.pbtxt", "manifest.json", "golden.npz"} <= files
    assert run.inputs is not None
    (golden,) = run.inputs.dataset_inputs
    assert logged.metrics is not None
    assert {(metric.dataset_name, metric.dataset_digest) for metric in logged.metrics} == {
        (golden.dataset.name, golden.dataset.digest)
    }
    assert {"parity/max_abs_diff", "latency/p95_ms"} <= {metric.key for metric in logged.metrics}
    version = store.client.get_model_version("everything", str(tracked.registry_version))
    assert version.source == f"models:/{logged.model_id}"
    assert version.description is not None
    assert "- Parity with PyTorch: largest difference 1.0e-06 in 2 cases\n" in version.description
    tracker.finish(BuildReport(staged.repository, ()), "# all", "<html>")
    assert {file.path for file in store.client.list_artifacts(parent.info.run_id)} == {"report.md", "report.html"}
    assert store.client.get_run(tracked.run_id).info.status == "FINISHED"
    assert store.client.get_run(parent.info.run_id).info.status == "FINISHED"


PREDICT = """
import json, sys
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1])
answers = []
for uri in sys.argv[2:]:
    model = mlflow.pyfunc.load_model(uri)
    x, n = np.ones((3, 2), np.float32), np.array([[1], [2], [3]], np.int64)
    answers.append(np.asarray(model.predict({"x": x, "n": n})["y"]).tolist())
    assert model.metadata.get_input_schema().input_names() == ["x", "n"]
    assert np.asarray(model.metadata.load_input_example(uri)["n"]).tolist() == [[1], [2]]
    try:
        model.predict({"x": x})
    except mlflow.exceptions.MlflowException:
        answers.append("rejected")
print(json.dumps(answers))
"""


def test_pyfunc_runs_the_staged_files(store: Connection, track: Any, stage: Stage) -> None:
    """``mlflow.pyfunc.load_model("models:/…")`` in another process, with and without external data."""
    uris = []
    for external in (False, True):
        staged = stage(f"pyfunc-{external}", 3.0, external=external)
        tracked = track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
        uris.append(f"models:/{staged.name}/{tracked.registry_version}")
    command = [sys.executable, "-c", PREDICT, store.tracking.uri, *uris]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    expected = [[[4.0, 4.0], [5.0, 5.0], [6.0, 6.0]], "rejected"]
    assert expected * 2 == json.loads(process.stdout)


@pytest.mark.parametrize("external", [False, True])
def test_fetched_version_equals_the_staged_one(
    store: Connection, track: Any, stage: Stage, tmp_path: Path, *, external: bool
) -> None:
    """The files in the manifest, byte for byte, without the files of MLflow's flavor."""
    staged = stage(f"fetched-{external}", external=external)
    track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
    entry = MlflowRegistry(store).entries(staged.name)[0]
    (tmp_path / "fetched").mkdir()
    fetched = MlflowRegistry(store).fetch(entry, tmp_path / "fetched")
    expected = {record.path for record in staged.manifest.files} | {"manifest.json"}
    assert expected == {path.name for path in fetched.iterdir()}
    for name in expected:
        assert (fetched / name).read_bytes() == (staged.version_dir / name).read_bytes()


def test_version_is_pending_until_it_is_confirmed(store: Connection, track: Any, stage: Stage) -> None:
    """It has no alias."""
    staged, registry, tracker = stage("states"), MlflowRegistry(store), track("states")
    tracker.log(staged, built(staged), report(staged), "", staged.repository)
    (entry,) = registry.entries("states")
    assert (entry.state, entry.aliases, entry.triton_version) == (EntryState.PENDING, (), None)
    assert entry.tags["repogen.smoke"] == "passed on Triton 2.51.0 (embedded)"
    tracker.confirm("states", staged.manifest.content_sha256, 7)
    (entry,) = registry.entries("states")
    assert (entry.state, entry.triton_version, entry.sha256) == (EntryState.PUBLISHED, 7, staged.manifest.sha256)
    assert entry.repository == str(staged.repository)


def test_version_that_was_not_published_is_adopted(store: Connection, track: Any, stage: Stage) -> None:
    """A rerun with the same files uses the pending version without a second upload; other files get a new version."""
    first = track("adopted").log(staged := stage("adopted"), built(staged), report(staged), "", staged.repository)
    again = track("adopted").log(staged := stage("adopted"), built(staged), report(staged), "", staged.repository)
    assert (first.adopted, again.adopted) == (False, True)
    assert again.registry_version == first.registry_version
    assert [file.path for file in store.client.list_artifacts(again.run_id)] == ["report.md"]
    track().confirm("adopted", staged.manifest.content_sha256, 1)
    third = track("adopted").log(staged := stage("adopted"), built(staged), report(staged), "", staged.repository)
    other = track("adopted").log(staged := stage("adopted", 5.0), built(staged), report(staged), "", staged.repository)
    assert [(third.adopted, third.registry_version), (other.adopted, other.registry_version)] == [
        (False, 2),
        (False, 3),
    ]


def test_pending_version_without_artifacts_is_not_adopted(store: Connection, track: Any, stage: Stage) -> None:
    """Artifacts that were deleted are uploaded again, to a new version."""
    first = track("lost").log(staged := stage("lost"), built(staged), report(staged), "", staged.repository)
    store.client.delete_run(first.run_id)
    for path in _artifacts(store, "lost", first.registry_version):
        path.unlink()
    again = track("lost").log(staged := stage("lost"), built(staged), report(staged), "", staged.repository)
    assert (again.adopted, again.registry_version) == (False, 2)


def _artifacts(store: Connection, name: str, version: int) -> list[Path]:
    directory = Path(store.client.get_model_version_download_uri(name, str(version)).removeprefix("file://"))
    return [path for path in directory.rglob("*") if path.is_file()]


def test_changed_artifacts_are_rejected(store: Connection, track: Any, stage: Stage, tmp_path: Path) -> None:
    """A file with other bytes, and a missing manifest."""
    track("altered").log(staged := stage("altered"), built(staged), report(staged), "", staged.repository)
    registry = MlflowRegistry(store)
    (entry,) = registry.entries("altered")
    files = {path.name: path for path in _artifacts(store, "altered", 1)}
    files["config.pbtxt"].write_text("name: 'altere2'\n")
    (tmp_path / "a").mkdir()
    with pytest.raises(TrackingError, match=r"were changed .* config.pbtxt has") as caught:
        registry.fetch(entry, tmp_path / "a")
    assert caught.value.code == "tracking.altered"
    files["manifest.json"].unlink()
    (tmp_path / "b").mkdir()
    with pytest.raises(TrackingError, match="downloading altered version 1 failed"):
        registry.fetch(entry, tmp_path / "b")


def test_failed_model_has_a_failed_run(store: Connection, track: Any) -> None:
    """With the error's code and message as tags; the build's run has failed as well."""
    tracker = track("broken", "silent")
    failed = ModelReport("broken", Status.FAILED, error=ErrorRecord("export.x", "no", exit_code=3), seconds={"a": 1.0})
    tracker.log_failed(failed, "# failed")
    tracker.finish(BuildReport(store.tracking.root, (failed,)), "# all")
    experiment = store.client.get_experiment_by_name("repogen")
    assert experiment is not None
    runs = store.client.search_runs([experiment.experiment_id], "tags.`repogen.model` = 'broken'")
    assert [(run.info.status, run.data.tags["repogen.error.code"]) for run in runs] == [("FAILED", "export.x")]
    assert store.client.get_run(runs[0].data.tags["mlflow.parentRunId"]).info.status == "FAILED"


def test_runs_of_an_interrupted_build_are_killed(store: Connection, track: Any, stage: Stage) -> None:
    """No run stays active; a build without models has no runs."""
    track().finish(None, "")
    tracker = track("interrupted", "waiting")
    tracked = tracker.log(staged := stage("interrupted"), built(staged), report(staged), "", staged.repository)
    tracker.finish(None, "")
    parent = store.client.get_run(tracked.run_id).data.tags["mlflow.parentRunId"]
    assert store.client.get_run(parent).info.status == "KILLED"
    experiment = store.client.get_run(parent).info.experiment_id
    runs = store.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'")
    assert {run.info.run_name: run.info.status for run in runs} == {"interrupted": "FINISHED", "waiting": "KILLED"}


def test_confirming_a_missing_version_is_an_error(track: Any) -> None:
    """The hint is the command that registers a new version."""
    with pytest.raises(TrackingError, match="has no version of nobody") as caught:
        track().confirm("nobody", "0" * 64, 1)
    assert "repogen build --force --model nobody" in caught.value.hint


def test_many_parity_cases_are_logged_in_batches(store: Connection, track: Any, stage: Stage) -> None:
    """One metric may have more values than a batch of MLflow's API."""
    staged = stage("many")
    tracked = track(staged.name).log(staged, built(staged, 900), report(staged), "", staged.repository)
    assert len(store.client.get_metric_history(tracked.run_id, "parity_case/cosine")) == 900


def test_version_that_an_earlier_release_registered(
    store: Connection, track: Any, stage: Stage, tmp_path: Path
) -> None:
    """Its source is an artifact of its run; it is downloaded, and adopted if it was not published."""
    staged = stage("earlier")
    registry = MlflowRegistry(store)
    run = store.client.create_run(store.experiment())
    (tmp_path / "model").mkdir()
    write_model(staged, run.info.run_id, "m-0", tmp_path / "model")
    store.client.log_artifacts(run.info.run_id, str(tmp_path / "model"), "model")
    store.client.create_registered_model("earlier")
    tags = pending_tags(staged, report(staged), staged.repository)
    store.client.create_model_version("earlier", f"{run.info.artifact_uri}/model", run.info.run_id, tags=tags)
    (entry,) = registry.entries("earlier")
    (tmp_path / "fetched").mkdir()
    assert (registry.fetch(entry, tmp_path / "fetched") / "model.onnx").read_bytes()
    tracked = track("earlier").log(staged, built(staged), report(staged), "", staged.repository)
    assert (tracked.adopted, tracked.registry_version) == (True, 1)


def test_files_that_cannot_be_uploaded(
    store: Connection, track: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logged model is marked as failed, and nothing is registered."""
    staged = stage("full")
    monkeypatch.setattr(LocalArtifactRepository, "log_artifact", _log_artifact_of_a_full_disk)
    with pytest.raises(TrackingError, match=r"uploading the files of full failed: .*No space left"):
        track("full").log(staged, built(staged), report(staged), "", staged.repository)
    (logged,) = store.client.search_logged_models([store.experiment()], "name = 'full'")
    assert logged.status == "FAILED"
    assert MlflowRegistry(store).entries("full") == ()


def _log_artifact_of_a_full_disk(_: LocalArtifactRepository, file: str, path: str | None = None) -> None:
    if not file.endswith("report.md"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_artifacts_behind_a_link_of_another_user(store: Connection, track: Any, stage: Stage, tmp_path: Path) -> None:
    """Nothing is written where it leads to; a link that is an artifact is replaced."""
    staged = stage("linked")
    tracker = track("linked")
    tracked = tracker.log(staged, built(staged), report(staged), "old", staged.repository)
    artifacts = Path(store.client.get_run(tracked.run_id).info.artifact_uri.removeprefix("file://"))
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "report.md").write_text("mine", encoding="utf-8")
    (artifacts / "report.md").unlink()
    (artifacts / "report.md").symlink_to(tmp_path / "private" / "report.md")
    tracker.log_page("linked", "new")
    assert (artifacts / "report.md").read_text(encoding="utf-8") == "new"
    artifacts.rename(tmp_path / "moved")
    artifacts.symlink_to(tmp_path / "private")
    os.chown(artifacts, 65534, -1, follow_symlinks=False)
    with pytest.raises(TrackingError, match=r"logging a report failed: .*artifacts is a symlink of another user"):
        tracker.log_page("linked", "newer")
    assert [path.read_text(encoding="utf-8") for path in (tmp_path / "private").iterdir()] == ["mine"]


def test_report_is_replaced_after_the_publish(store: Connection, track: Any, stage: Stage) -> None:
    """The run shows the number of the version."""
    tracker = track("replaced")
    tracked = tracker.log(staged := stage("replaced"), built(staged), report(staged), "old", staged.repository)
    tracker.log_page("replaced", "published, version 3")
    assert store.client.download_artifacts(tracked.run_id, "report.md")
    page = Path(store.client.download_artifacts(tracked.run_id, "report.md")).read_text(encoding="utf-8")
    assert page == "published, version 3"


def test_build_shows_the_headlines_of_its_models(store: Connection, track: Any, stage: Stage) -> None:
    """The parent run compares the models; more than three models are counted in its name."""
    names = ["headline", "b", "c", "d"]
    tracker = track(*names)
    staged = stage("headline")
    tracked = tracker.log(staged, built(staged), report(staged), "", staged.repository)
    tracker.finish(BuildReport(staged.repository, (report(staged),)), "# all")
    parent = store.client.get_run(store.client.get_run(tracked.run_id).data.tags["mlflow.parentRunId"])
    assert parent.info.run_name == "build 4 models"
    expected = {"headline/max_abs_diff": 1e-6, "headline/size_bytes": 1234.0, "headline/latency_p95_ms": 2.0}
    assert expected.items() <= parent.data.metrics.items()
