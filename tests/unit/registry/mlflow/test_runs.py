"""What a tracked build leaves in MLflow, and that it can be had back from there."""

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


def test_a_model_s_run_says_everything(store: Connection, track: Any, stage: Stage) -> None:
    """Params, metrics with a step a parity case, tags, artifacts; nested in the build's run."""
    staged = stage("everything")
    tracker = track("everything")
    tracked = tracker.log(staged, built(staged), report(staged), "# the report", staged.repository)
    run = store.client.get_run(tracked.run_id)
    assert run.data.params["exporter"] == "dynamo"
    assert run.data.params["spec_sha256"] == "5bec"
    assert run.data.params["tool.onnx"] == staged.manifest.provenance.tools["onnx"]
    measured = run.data.metrics
    assert measured["parity.max_abs_diff"] == 1e-6
    assert measured["smoke.latency_p95.ms"] == 2.0
    assert measured["size.bytes"] == 1234.0
    assert measured["seconds.export"] == 1.5
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
        answers.append("refused")
print(json.dumps(answers))
"""


def test_pyfunc_predicts_with_our_bytes(store: Connection, track: Any, stage: Stage) -> None:
    """``mlflow.pyfunc.load_model("models:/…")``, in a process of its own, runs the staged files, external data too."""
    uris = []
    for external in (False, True):
        staged = stage(f"pyfunc-{external}", 3.0, external=external)
        tracked = track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
        uris.append(f"models:/{staged.name}/{tracked.registry_version}")
    command = [sys.executable, "-c", PREDICT, store.tracking.uri, *uris]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [[[4.0, 4.0], [5.0, 5.0], [6.0, 6.0]], "refused"]
    assert expected * 2 == json.loads(done.stdout)


@pytest.mark.parametrize("external", [False, True])
def test_what_is_fetched_is_what_was_staged(
    store: Connection, track: Any, stage: Stage, tmp_path: Path, *, external: bool
) -> None:
    """The files that the manifest lists, byte for byte, without those that MLflow needs."""
    staged = stage(f"fetched-{external}", external=external)
    track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
    entry = MlflowRegistry(store).entries(staged.name)[0]
    (tmp_path / "back").mkdir()
    fetched = MlflowRegistry(store).fetch(entry, tmp_path / "back")
    expected = {record.path for record in staged.manifest.files} | {"manifest.json"}
    assert expected == {path.name for path in fetched.iterdir()}
    for name in expected:
        assert (fetched / name).read_bytes() == (staged.version_dir / name).read_bytes()


def test_pending_then_published(store: Connection, track: Any, stage: Stage) -> None:
    """A version is pending until it is confirmed, and has no alias."""
    staged, registry, tracker = stage("states"), MlflowRegistry(store), track("states")
    tracker.log(staged, built(staged), report(staged), "", staged.repository)
    (entry,) = registry.entries("states")
    assert (entry.state, entry.aliases, entry.triton_version) == (EntryState.PENDING, (), None)
    assert entry.tags["repogen.smoke"] == "passed on Triton 2.51.0 (embedded)"
    tracker.confirm("states", staged.manifest.content_sha256, 7)
    (entry,) = registry.entries("states")
    assert (entry.state, entry.triton_version, entry.sha256) == (EntryState.PUBLISHED, 7, staged.manifest.sha256)
    assert entry.repository == str(staged.repository)


def test_what_could_not_be_published_is_adopted(store: Connection, track: Any, stage: Stage) -> None:
    """A rerun with the same files takes the pending version, without a second upload; other files get another."""
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


def test_a_pending_version_without_artifacts_is_not_adopted(store: Connection, track: Any, stage: Stage) -> None:
    """What was deleted from the artifact store is logged anew."""
    first = track("lost").log(staged := stage("lost"), built(staged), report(staged), "", staged.repository)
    store.client.delete_run(first.run_id)
    for path in _artifacts(store, first.run_id):
        path.unlink()
    again = track("lost").log(staged := stage("lost"), built(staged), report(staged), "", staged.repository)
    assert (again.adopted, again.registry_version) == (False, 2)


def _artifacts(store: Connection, run_id: str) -> list[Path]:
    place = Path(store.client.get_run(run_id).info.artifact_uri.removeprefix("file://"))
    return [path for path in place.rglob("*") if path.is_file()]


def test_altered_artifacts_are_refused(store: Connection, track: Any, stage: Stage, tmp_path: Path) -> None:
    """A byte more in the artifact store, or none: said, with what to do."""
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


def test_a_failed_model_is_a_failed_run(store: Connection, track: Any) -> None:
    """With the error's code and message as tags; the build's run is a failure, too."""
    tracker = track("broken", "silent")
    failed = ModelReport("broken", Status.FAILED, error=ErrorRecord("export.x", "no", exit_code=3), seconds={"a": 1.0})
    tracker.log_failed(failed, "# failed")
    tracker.finish(BuildReport(store.tracking.root, (failed,)), "# all")
    experiment = store.client.get_experiment_by_name("repogen")
    assert experiment is not None
    runs = store.client.search_runs([experiment.experiment_id], "tags.`repogen.model` = 'broken'")
    assert [(run.info.status, run.data.tags["repogen.error.code"]) for run in runs] == [("FAILED", "export.x")]
    assert store.client.get_run(runs[0].data.tags["mlflow.parentRunId"]).info.status == "FAILED"


def test_an_interrupted_build_s_run_is_killed(store: Connection, track: Any, stage: Stage) -> None:
    """Its runs do not go on for ever; a build of nothing has none."""
    track().finish(None, "")
    tracker = track("interrupted", "waiting")
    tracked = tracker.log(staged := stage("interrupted"), built(staged), report(staged), "", staged.repository)
    tracker.finish(None, "")
    parent = store.client.get_run(tracked.run_id).data.tags["mlflow.parentRunId"]
    assert store.client.get_run(parent).info.status == "KILLED"
    experiment = store.client.get_run(parent).info.experiment_id
    runs = store.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'")
    assert {run.info.run_name: run.info.status for run in runs} == {"interrupted": "FINISHED", "waiting": "KILLED"}


def test_confirming_what_is_not_there(track: Any) -> None:
    """A registry that lost the version is said so, with the command that makes another."""
    with pytest.raises(TrackingError, match="has no version of nobody") as caught:
        track().confirm("nobody", "0" * 64, 1)
    assert "repogen build --force --model nobody" in caught.value.hint


def test_many_cases_are_one_metric(store: Connection, track: Any, stage: Stage) -> None:
    """More figures than a batch of MLflow's takes go in a few batches."""
    staged = stage("many")
    tracked = track(staged.name).log(staged, built(staged, 900), report(staged), "", staged.repository)
    assert len(store.client.get_metric_history(tracked.run_id, "parity.case.cosine")) == 900
