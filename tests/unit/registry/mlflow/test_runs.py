"""What a tracked build stores in MLflow, and how it is downloaded again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.registry import EntryState
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.errors import ErrorRecord, TrackingError
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
    assert values["parity.max_abs_diff"] == 1e-6
    assert values["smoke.latency_p95.ms"] == 2.0
    assert values["size.bytes"] == 1234.0
    assert values["seconds.export"] == 1.5
    history = store.client.get_metric_history(tracked.run_id, "parity.case.max_abs_diff")
    assert [(point.step, point.value) for point in history] == [(0, 0.0), (1, 1e-6)]
    parent = store.client.get_run(run.data.tags["mlflow.parentRunId"])
    assert parent.info.run_name == "repogen build"
    assert parent.info.status == "RUNNING"
    files = {file.path for file in store.client.list_artifacts(tracked.run_id, "model")}
    assert {
        f"model/{name}" for name in ("MLmodel", "model.onnx", "config.pbtxt", "manifest.json", "golden.npz")
    } <= files
    tracker.finish(BuildReport(staged.repository, ()), "# all")
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
    for path in _artifacts(store, first.run_id):
        path.unlink()
    again = track("lost").log(staged := stage("lost"), built(staged), report(staged), "", staged.repository)
    assert (again.adopted, again.registry_version) == (False, 2)


def _artifacts(store: Connection, run_id: str) -> list[Path]:
    directory = Path(store.client.get_run(run_id).info.artifact_uri.removeprefix("file://"))
    return [path for path in directory.rglob("*") if path.is_file()]


def test_changed_artifacts_are_rejected(store: Connection, track: Any, stage: Stage, tmp_path: Path) -> None:
    """A file with other bytes, and a missing manifest."""
    tracked = track("altered").log(staged := stage("altered"), built(staged), report(staged), "", staged.repository)
    registry = MlflowRegistry(store)
    (entry,) = registry.entries("altered")
    files = {path.name: path for path in _artifacts(store, tracked.run_id)}
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
    assert len(store.client.get_metric_history(tracked.run_id, "parity.case.cosine")) == 900
