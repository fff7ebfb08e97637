"""Builds on a Ray cluster of three nodes: same files as a local build, also if a node or the build itself is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.file_names import ATTESTATION_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ray.cluster_utils import Cluster

    from .conftest import Project

pytestmark = pytest.mark.full
NODES = 3
SPEC = """\
models:
  both:
    source: {kind: ensemble, steps: [{model: m0}, {model: m1, inputs: {x: y}, outputs: {y: z}}]}
    outputs: [z]
defaults:
  inputs: {x: {dtype: float32, shape: [batch, 4]}}
  outputs: [y]
  dims: {batch: {min: 1, max: 8}}
  export: {exporter: torchscript}
  resources: {memory_mb: 256}
"""
MODEL = """\
  m{number}: {{source: {{factory: "models.py:build", kwargs: {{seed: {number}}}}}}}
"""
MODELS = """\
import torch


def build(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 4)
"""
_NODE = re.compile(r"(?P<step>\w+) \(.*node (?P<node>[0-9a-f]{8})\)")


def started(start: Callable[[], Any]) -> Any:
    """Start a node; Ray waits for 30 seconds, which is not enough on a machine that other tests use as well."""
    for _ in range(9):
        with suppress(Exception):
            return start()
    return start()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a head without processors, and three nodes that run one task at a time."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - after the check

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        for _ in range(NODES):
            started(lambda: cluster.add_node(num_cpus=1))
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def write_project(project: Project, models: int) -> None:
    """Write a spec with an ensemble and other models; a file that git ignores is needed as well."""
    head, defaults = SPEC.split("defaults:")
    lines = "".join(MODEL.format(number=number) for number in range(models))
    project.spec.write_text(f"{head}{lines}defaults:{defaults}", encoding="utf-8")
    (project.directory / "models.py").write_text(MODELS, encoding="utf-8")
    (project.directory / ".gitignore").write_text("models.py\n", encoding="utf-8")


def published(repository: Path) -> dict[str, bytes]:
    """Return the files of a repository, without the attestations, which contain the time of the build."""
    return {
        str(path.relative_to(repository)): path.read_bytes()
        for path in sorted(repository.glob("*/**/*"))
        if path.is_file() and path.name not in ATTESTATION_FILES
    }


def wait_for(process: object, stream: Iterator[str], step: str, count: int) -> str:
    """Read the progress until a step of this name began on a node for the n-th time; return the node."""
    lines = []
    for line in stream:
        lines.append(line)
        match = _NODE.search(line)
        if match is not None and match["step"] == step:
            count -= 1
            if not count:
                return match["node"]
    raise AssertionError(f"{process} ended: {''.join(lines[-20:])}")


def test_node_and_driver_that_are_killed(
    tmp_path: Path, new_project: Callable[[Path], Project], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost node repeats its task elsewhere; a lost driver leaves complete versions only, and the rerun the rest."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    project = new_project(tmp_path / "project")
    write_project(project, 5)
    arguments = ("build", "--executor", f"ray={cluster.address}", "--no-report")

    with project.start(*arguments) as driver:
        assert driver.stderr is not None
        wait_for(driver, driver.stderr, "validate", 1)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    assert published(project.repository) == {}
    assert project.vanished()

    with project.start(*arguments) as driver:
        assert driver.stderr is not None
        node = wait_for(driver, driver.stderr, "validate", 2)
        (lost,) = (each for each in cluster.worker_nodes if each.node_id.startswith(node))
        cluster.remove_node(lost, allow_graceful=False)
        out, rest = driver.communicate()
        assert "18/18" in out
        assert driver.returncode == 0, rest
    assert "its node was lost; waiting for another one" in rest
    listing = json.loads(project.run("versions", "--json").stdout)
    versions = {model["name"]: [version["version"] for version in model["versions"]] for model in listing["models"]}
    assert versions == {name: [1] for name in ("both", "m0", "m1", "m2", "m3", "m4")}
    assert project.run("verify").returncode == 0

    local = project.run("build", "--jobs", "2", "--no-report", "--repository", "local")
    assert local.returncode == 0, local.stderr
    assert published(project.directory / "local") == published(project.repository)


def test_interrupted_build_cancels_its_tasks(
    tmp_path: Path, new_project: Callable[[Path], Project], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends every task, and the processes of it on the nodes."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    project = new_project(tmp_path / "project")
    write_project(project, 2)
    arguments = ("build", "--executor", f"ray={cluster.address}", "--no-smoke", "--no-report")
    with project.start(*arguments) as driver:
        assert driver.stderr is not None
        wait_for(driver, driver.stderr, "import", 1)
        os.killpg(driver.pid, signal.SIGINT)
        driver.communicate()
        assert driver.returncode == 130
    assert published(project.repository) == {}
    deadline = time.monotonic() + 60
    while _tasks() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _tasks() == []


def test_package_outside_of_the_specs_directory(
    tmp_path: Path, new_project: Callable[[Path], Project], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes do not have it: it travels with the job, and the published files are those of a local build."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    project = new_project(tmp_path / "project")
    package = tmp_path / "library" / "company_models"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from company_models.linear import build\n", encoding="utf-8")
    (package / "linear.py").write_text(MODELS, encoding="utf-8")
    paths = (str(package.parent), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    model = MODEL.format(number=0).replace("models.py:", "company_models:")
    project.spec.write_text(f"models:\n{model}defaults:{SPEC.split('defaults:')[1]}", encoding="utf-8")
    run = project.run("build", "--executor", f"ray={cluster.address}", "--no-smoke", "--no-report")
    assert run.returncode == 0, run.stderr
    local = project.run("build", "--no-smoke", "--no-report", "--repository", "local")
    assert local.returncode == 0, local.stderr
    assert "m0/1/model.onnx" in published(project.repository)
    assert published(project.directory / "local") == published(project.repository)
    plan = json.loads(project.run("plan", "--json").stdout)
    assert [model["reasons"] for model in plan["models"]] == [[]]


def _tasks() -> list[str]:
    """Return the processes of tasks."""
    commands = []
    for process in os.scandir("/proc"):
        if process.name.isdecimal():
            try:
                with open(f"/proc/{process.name}/cmdline", "rb") as stream:  # noqa: PTH123 - not a file of the test
                    commands.append(stream.read().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return [command for command in commands if "repogen.build.node" in command]
