"""``repogen tune`` on tiny models: the real Triton, perf_analyzer, Optuna and MLflow; no time is asserted."""

from __future__ import annotations

import json
import os
import signal
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient
from pydantic import TypeAdapter

from repogen.reporting.json_types import TuneDocument
from repogen.spec.load import load_spec
from tests.support.moto_s3 import create_bucket, s3_server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

SLOW = """\
models:
  tiny:  # the only one
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    outputs: [y]
    dims: {batch: {min: 1, max: 8}}
    export: {exporter: torchscript}
    triton:
      # a single request waits for others
      dynamic_batching: {preferred_batch_size: [8], max_queue_delay_microseconds: 50000}
      instance_group: [{count: 1, kind: KIND_CPU}]  # one
"""
CUMULATIVE = """\
import torch


class Cumulative(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0)


def build() -> torch.nn.Module:
    return Cumulative()
"""
SHORT = ("--seconds", "0.2", "--rounds", "2", "--restart")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project whose published config makes each single request wait for 50 ms."""
    project = new_project(tmp_path_factory.mktemp("tune"))
    project.spec.write_text(SLOW, encoding="utf-8")
    run = project.run("build", "--no-smoke")
    assert run.returncode == 0, run.stderr
    return project


@pytest.fixture
def project(built: Project) -> Project:
    """Return the project with the spec as it was built."""
    built.spec.write_text(SLOW, encoding="utf-8")
    return built


def document(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the document of a run."""
    TypeAdapter(TuneDocument).validate_json(run.stdout)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.full
def test_better_settings_are_written_and_tracked(project: Project) -> None:
    """The settings of Triton's auto-completion are much faster than the spec's for one request at a time."""
    uri = f"sqlite:///{project.directory}/mlflow.db"
    arguments = ("--objective", "latency", "--trials", "2", "--write", "--tracking-uri", uri, "--json")
    run = project.run("tune", "tiny", *arguments, *SHORT)
    assert run.returncode == 0, run.stderr

    report = document(run)

    assert [trial["origin"] for trial in report["trials"]] == ["spec", "auto"]
    assert [trial["state"] for trial in report["trials"]] == ["measured", "measured"]
    assert (report["chosen"], report["improved"], report["written"]) == (2, True, True)
    ratios = {row["name"]: row["ratio"] for row in report["comparison"]}
    assert ratios["tuned"] is None
    assert ratios["spec"]["low"] > 1
    assert set(ratios) == {"tuned", "spec", "auto"}
    text = project.spec.read_text(encoding="utf-8")
    assert "# the only one" in text
    assert "# a single request waits for others" in text
    triton = load_spec(project.spec).models["tiny"].triton
    assert triton.dynamic_batching is not None
    assert triton.dynamic_batching.max_queue_delay_microseconds == 0
    assert report["diff"].count("\n-") >= 1
    files = {path.name for path in (project.directory / "build" / "reports" / "tune" / "tiny").iterdir()}
    assert files == {"tune.json", "pareto.svg", "pareto.vl.json"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations between mlflow and SQLAlchemy
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("repogen")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        [parent] = [each for each in runs if "mlflow.parentRunId" not in each.data.tags]
        artifacts = {each.path for each in client.list_artifacts(parent.info.run_id)}
    trials = [each for each in runs if each.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert {each.info.run_name for each in trials} == {"trial 1", "trial 2"}
    assert all(each.data.metrics["throughput"] > 0 for each in trials)
    assert {each.info.status for each in runs} == {"FINISHED"}
    assert artifacts >= {"tune.json", "pareto.svg"}
    assert project.vanished()
    assert project.temporary() == []


@pytest.mark.full
def test_repository_in_a_bucket(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report and its files name the URL, and the same command continues the trials."""
    url = "s3://bucket/models"
    command = ("tune", "tiny", "--repository", url, "--trials", "2", "--no-track", "--json", *SHORT[:-1])
    with s3_server() as environment:
        create_bucket(environment, "bucket")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        published = project.run("publish", "tiny", "--from", "model_repository", "--to", url)
        assert published.returncode == 0, published.stderr
        run = project.run(*command, "--restart")
        assert run.returncode == 0, run.stderr
        again = project.run(*command)
        assert again.returncode == 0, again.stderr
    file = project.directory / "build" / "reports" / "tune" / "tiny" / "tune.json"
    reports = [document(run), document(again), json.loads(file.read_text(encoding="utf-8"))]
    assert [report["repository"] for report in reports] == [url] * 3
    assert (reports[0]["resumed"], reports[1]["resumed"]) == (0, 2)
    assert str(project.scratch) not in file.read_text(encoding="utf-8") + run.stdout + again.stdout
    assert project.temporary() == []


@pytest.mark.full
def test_no_config_keeps_the_constraints(project: Project) -> None:
    """Exit code 1, and the message has the closest config; the spec is unchanged."""
    run = project.run(
        "tune", "tiny", "--trials", "2", "--constraint", "throughput > 999999999", "--write", "--no-track", *SHORT
    )

    assert run.returncode == 1
    assert "none of the 2 configs meets throughput > 999999999; the closest has p50" in run.stdout
    assert project.spec.read_text(encoding="utf-8") == SLOW


@pytest.mark.full
def test_server_that_dies_in_a_trial(project: Project) -> None:
    """The trial fails, and the study goes on."""
    arguments = (
        "--trials",
        "4",
        "--objective",
        "latency",
        "--no-track",
        "--seconds",
        "0.25",
        "--rounds",
        "2",
        "--restart",
    )
    with project.start("tune", "tiny", *arguments) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if "trial 2 of 4" in line:
                break
        while not (servers := project.processes("tritonserver")):
            assert process.poll() is None
        os.kill(servers[0], signal.SIGKILL)
        process.stderr.read()
        output = process.stdout.read()
        process.wait()

    assert process.returncode == 0, output
    report = json.loads((project.directory / "build/reports/tune/tiny/tune.json").read_text(encoding="utf-8"))
    states = [trial["state"] for trial in report["trials"]]
    assert (len(states), states[1]) == (4, "failed")
    assert states[0] == "measured"
    assert project.vanished()


@pytest.mark.full
@pytest.mark.usefixtures("interruptible")
def test_interrupted_search_is_reported_and_continues(project: Project) -> None:
    """Ctrl-C: exit code 130, the best config so far; the same command measures only the rest."""
    arguments = ("--trials", "4", "--no-track", "--seconds", "0.3", "--rounds", "2")
    with project.start("tune", "tiny", *arguments, "--restart") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if "trial 3 of 4" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        process.stderr.read()
        output = process.stdout.read()
        process.wait()
    assert process.returncode == 130
    assert "Pareto front" in output
    assert "run the same command again to continue" in output
    assert project.vanished()
    assert project.temporary() == []

    run = project.run("tune", "tiny", *arguments, "--json")

    report = document(run)
    assert (run.returncode, report["resumed"], len(report["trials"])) == (0, 2, 4)
    assert report["comparison"]


@pytest.mark.full
def test_model_that_does_not_batch(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """It has no parameters of the batcher; Triton's auto-completion batches it wrongly, so that is not compared."""
    project = new_project(tmp_path)
    (tmp_path / "models.py").write_text(CUMULATIVE, encoding="utf-8")
    project.edit(
        "outputs: [y]\n    dims: {batch: {min: 1, max: 8}}", "outputs: [y]\n    dims: {batch: {min: 2, max: 8}}"
    )
    built = project.run("build", "--no-smoke")
    assert built.returncode == 0, built.stderr

    run = project.run("tune", "tiny", "--trials", "3", "--no-track", "--json", *SHORT)

    report = document(run)
    assert run.returncode == 0, run.stderr
    assert report["batch"] == 0
    assert not {"max_batch_size", "dynamic_batching"} & set(report["space"])
    assert "auto" not in {row["name"] for row in report["comparison"]}
    assert any("auto-completed config was not compared" in note for note in report["notes"])


def test_errors_before_a_server_is_started(project: Project) -> None:
    """Each has its exit code and message."""
    for arguments, code, message in (
        (("tiny", "--constraint", "p99"), 2, "is not a constraint"),
        (("tiny", "--budget", "soon"), 2, "is not a duration"),
        (("tin",), 2, "has no model 'tin'"),
        (("tiny", "--tracking-uri", "sqlite:////nonexistent/mlflow.db"), 8, "can't be written"),
    ):
        run = project.invoke("tune", *arguments)
        assert (run.returncode, message in run.stderr) == (code, True), run.stderr
        assert "starting Triton" not in run.stderr
