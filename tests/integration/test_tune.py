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

from repogen.artifacts.tune import PARAMETERS
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
SHORT = ("--exclude", "passes", "--seconds", "0.2", "--rounds", "2", "--restart")
WIDE = """\
# Models of the team.
models:
  tiny:  # the only one
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [1, 1024]}}
    outputs: [y]
    export: {exporter: torchscript}  # saves some seconds

    # judged by the direction of the outputs
    quality: {callable: "quality.py:cosine", max_drop: 0.1}
    triton:
      # one of each
      instance_group: [{count: 1, kind: KIND_CPU}]
"""
WIDE_MODEL = """\
import torch


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(10)]
    for layer in layers:
        torch.nn.init.orthogonal_(layer.weight)
    return torch.nn.Sequential(*layers)
"""
COSINE = """\
import numpy as np
import torch
from models import build


def cosine(predict, data):
    x = np.random.default_rng(0).standard_normal((1, 1024)).astype(np.float32)
    with torch.no_grad():
        expected = build()(torch.from_numpy(x)).numpy()
    actual = predict({"x": x})["y"]
    return float((actual * expected).sum() / np.linalg.norm(actual) / np.linalg.norm(expected))
"""
ONLY_PASSES = tuple(argument for name in PARAMETERS if name != "passes" for argument in ("--exclude", name))
FIRST_BUILD = ("--budget", "1s", "--seconds", "0.3", "--rounds", "2", "--no-track", "--json")
"""A build that has begun is completed, and there is no time for another one."""


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


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project whose model has 94 MB of weights, and 24 MB in 8 bits."""
    return lossy_project(new_project(tmp_path_factory.mktemp("wide")), "1536", "0.1")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project of a small model whose quality must not drop at all."""
    return lossy_project(new_project(tmp_path_factory.mktemp("strict")), "64", "0.0")


def lossy_project(project: Project, width: str, max_drop: str) -> Project:
    """Write and build a model with a budget for quality."""
    spec = WIDE.replace("1024", width).replace("max_drop: 0.1", f"max_drop: {max_drop}")
    project.spec.write_text(spec, encoding="utf-8")
    for name, code in (("models.py", WIDE_MODEL), ("quality.py", COSINE)):
        (project.directory / name).write_text(code.replace("1024", width), encoding="utf-8")
    run = project.run("build", "--no-smoke")
    assert run.returncode == 0, run.stderr
    return project


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
def test_passes_that_pay_are_written_and_built(wide: Project) -> None:
    """8 bits need less memory than the constraint allows; the next build publishes the graph that was measured."""
    command = ("tune", "tiny", *ONLY_PASSES, *FIRST_BUILD)
    first = document(wide.run(*command, "--restart"))
    memory = [trial["figures"]["memory_bytes"] for trial in first["trials"]]
    assert memory[1] < memory[0] - 40e6
    run = wide.run(*command, "--constraint", f"memory < {sum(memory) / 2e6:.0f}MB", "--write")
    assert run.returncode == 0, run.stderr
    report = document(run)
    assert any(note.startswith("this is a new search") for note in report["notes"])

    rows = {row["name"]: row for row in report["passes"]}
    assert list(rows)[:2] == ["spec", "int8-dynamic"]
    assert report["space"] == {"passes": ["spec", "int8-dynamic"]}
    assert [trial["settings"] for trial in report["trials"]] == [{"passes": "spec"}, {"passes": "int8-dynamic"}]
    lossy = rows["int8-dynamic"]["lossy"]
    assert 0.9 < lossy["quality"]["optimized"] < 1
    assert (rows["spec"]["lossy"], rows["int8-dynamic"]["reason"]) == (None, None)
    assert "half of --budget" in rows["onnxsim"]["reason"]
    assert (report["chosen"], report["improved"], report["written"]) == (2, True, True)
    assert any(
        "not the published one: passes int8-dynamic" in note and "quality 1 -> 0.9" in note for note in report["notes"]
    )
    entry = "    optimize: [{name: int8-dynamic, gain: false}]\n"
    line = "    export: {exporter: torchscript}  # saves some seconds\n"
    assert wide.spec.read_text(encoding="utf-8") == WIDE.replace("1024", "1536").replace(line, line + entry)
    assert wide.temporary() == []

    built = wide.run("build", "--json")
    assert built.returncode == 0, built.stderr
    [model] = json.loads(built.stdout)["models"]
    assert (model["status"], model["version"], model["smoke"]["passed"]) == ("published", 2, True)
    assert (model["sha256"], model["lossy"]) == (rows["int8-dynamic"]["sha256"], lossy)
    assert wide.vanished()


@pytest.mark.full
def test_passes_that_fail_a_gate_are_not_candidates(strict: Project) -> None:
    """They exceed their budget; without an up-to-date version, none is built."""
    command = ("tune", "tiny", "--trials", "1", *FIRST_BUILD)
    report = document(strict.run(*command, "--restart"))
    reasons = {row["name"]: row["reason"] for row in report["passes"]}
    assert reasons["spec"] is None
    assert reasons["int8-dynamic"].startswith("int8-dynamic was not applied: it exceeds its budget: quality 1 -> 0.9")
    assert reasons["int8-dynamic+ort-fusions"] == reasons["int8-dynamic"]
    assert "passes" not in report["space"]

    with (strict.directory / "models.py").open("a", encoding="utf-8") as stream:
        stream.write("# edited\n")
    run = strict.run(*command)
    edited = document(run)
    reason = "version 1 no longer matches the spec (models.py changed); run `repogen build` first"
    assert f"optimization passes were not searched: {reason}" in edited["notes"]
    assert (run.returncode, edited["passes"], edited["resumed"]) == (0, [], 1)
    assert strict.temporary() == []


@pytest.mark.full
@pytest.mark.usefixtures("interruptible")
def test_interrupted_build_leaves_nothing_behind(strict: Project) -> None:
    """Neither files nor processes."""
    before = strict.published()
    (strict.directory / "models.py").write_text(WIDE_MODEL.replace("1024", "64"), encoding="utf-8")
    with strict.start("tune", "tiny", "--no-track", "--budget", "10m") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "passes 3 of" in line:  # the second list begins with a pass that is dropped
                break
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
        process.wait()
    assert (process.returncode, "nothing is half-written" in rest) == (130, True), rest
    assert strict.vanished()
    assert strict.temporary() == []
    assert strict.published() == before


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
        "--exclude",
        "passes",
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
    arguments = ("--exclude", "passes", "--trials", "4", "--no-track", "--seconds", "0.3", "--rounds", "2")
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
        (("tiny", "--exclude", "threads"), 2, "is not one of 'passes', 'max_batch_size'"),
        (("tiny", "--tracking-uri", "sqlite:////nonexistent/mlflow.db"), 8, "can't be written"),
    ):
        run = project.invoke("tune", *arguments)
        assert (run.returncode, message in run.stderr) == (code, True), run.stderr
        assert "starting Triton" not in run.stderr
