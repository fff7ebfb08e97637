"""``repogen bench`` on a tiny model: real PyTorch, ONNX Runtime, Triton and perf_analyzer; no time is asserted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from repogen.reporting.json_types import BenchDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

SHORT = ("--batch", "1,2,64", "--concurrency", "1,2", "--rounds", "1", "--seconds", "0.1", "--json")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project with a published model."""
    project = new_project(tmp_path_factory.mktemp("bench"))
    built = project.run("build", "--no-smoke")
    assert built.returncode == 0, built.stderr
    return project


def measured(project: Project, *arguments: str) -> dict[str, Any]:
    """Return the document of ``repogen bench``."""
    run = project.run("bench", *SHORT, *arguments)
    assert run.returncode == 0, run.stderr
    TypeAdapter(BenchDocument).validate_json(run.stdout)
    document: dict[str, Any] = json.loads(run.stdout)
    return document


@pytest.mark.full
def test_every_variant_is_measured(project: Project) -> None:
    """PyTorch, ONNX Runtime and each protocol have figures; nothing is left running or in shared memory."""
    before = set(os.listdir("/dev/shm"))  # noqa: S108, PTH208 - names are compared
    document = measured(project)

    [model] = document["models"]
    assert model["unmeasured"] == []
    assert {(row["variant"], row["batch"], row["concurrency"]) for row in model["rows"]} == {
        *((variant, batch, 1) for variant in ("eager", "compile", "onnxruntime") for batch in (1, 2)),
        *((variant, batch, n) for variant in ("grpc", "http", "shm") for batch in (1, 2) for n in (1, 2)),
    }
    assert all(0 < row["p50"]["value"] <= row["p99"]["value"] and row["requests"] > 0 for row in model["rows"])
    assert (model["baseline"], set(model["memory_bytes"])) == ("eager", {"eager", "compile", "onnxruntime", "triton"})
    assert any("batch 64" in note for note in model["notes"])
    assert {"torch", "onnxruntime (in process)"} <= set(document["machine"]["versions"])
    assert project.vanished()
    assert not [name for name in set(os.listdir("/dev/shm")) - before if name.startswith(("x_", "y"))]  # noqa: S108, PTH208


@pytest.mark.full
def test_repository_without_a_spec(project: Project, tmp_path: Path, project_at: type[Project]) -> None:
    """A model that repogen did not build, with fixed dims: no PyTorch, and ratios against ONNX Runtime."""
    model = tmp_path / "model_repository" / "tiny"
    shutil.copytree(project.repository / "tiny", model)
    for name in ("manifest.json", "golden.json", "golden.npz"):
        (model / "1" / name).unlink()

    document = measured(project_at(tmp_path), "--repository", "model_repository")

    [report] = document["models"]
    assert report["baseline"] == "onnxruntime"
    assert {each["variant"]: each["reason"] for each in report["unmeasured"]} == dict.fromkeys(
        ("eager", "compile"), "no spec describes the model"
    )


@pytest.mark.full
def test_model_that_differs_from_the_published_one(project: Project, tmp_path: Path, project_at: type[Project]) -> None:
    """A comparison with other weights would be meaningless, so PyTorch is not measured."""
    shutil.copytree(project.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    copy = project_at(tmp_path / "copy")
    source = copy.directory / "models.py"
    source.write_text(source.read_text(encoding="utf-8").replace("manual_seed(0)", "manual_seed(1)"), encoding="utf-8")

    [report] = measured(copy)["models"]

    reasons = {each["variant"]: each["reason"] for each in report["unmeasured"]}
    assert set(reasons) == {"eager", "compile"}
    assert all("not the published one" in reason for reason in reasons.values())
    assert report["baseline"] == "onnxruntime"


@pytest.mark.full
def test_server_that_exits_midway(project: Project) -> None:
    """The report keeps what was measured, and has the error."""
    arguments = ("--repository", "model_repository", "--rounds", "50", "--batch", "1", "--concurrency", "1", "--json")
    with project.start("bench", *arguments) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        # progress is not printed with --json: the log of a started perf_analyzer shows that the rounds began
        while not [
            path for path in project.scratch.glob("repogen-temporary-*/repogen-perf-*") if (path / "log").exists()
        ]:
            assert process.poll() is None
            time.sleep(0.05)
        [server] = project.processes("tritonserver")
        os.kill(server, signal.SIGKILL)
        document = json.loads(process.stdout.read())
        process.wait()

    assert (process.returncode, document["models"][0]["error"]["code"]) == (6, "bench.server-died")
    assert project.vanished()


def test_missing_model_is_an_error(project: Project) -> None:
    """The message names the models that exist."""
    run = project.run("bench", "other")

    assert (run.returncode, "has no model other" in run.stderr, "tiny" in run.stderr) == (2, True, True)


@pytest.mark.full
@pytest.mark.usefixtures("interruptible")
def test_interrupted_bench_leaves_nothing_running(project: Project) -> None:
    """Ctrl-C during a round ends the server, perf_analyzer, and the processes of PyTorch and ONNX Runtime."""
    with project.start("bench", "--batch", "1", "--rounds", "50", "--seconds", "0.2") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "round 1" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        output = process.stderr.read()
        process.wait()

    assert (process.returncode, "interrupted" in output) == (130, True)
    assert project.vanished()
    assert project.temporary() == []
