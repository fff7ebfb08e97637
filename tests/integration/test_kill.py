"""`kill -9` and Ctrl-C of a real `repogen build` at each step: no process and no partial output is left behind."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from .conftest import Project

STEPS = ("import", "source", "export", "optimize", "validate", "configure", "stage", "server", "smoke", "publish")


@dataclass(frozen=True)
class Kill:
    """What one killed build left behind.

    Attributes:
        project: The project, with an environment variable that identifies this build.
        pid: The killed process.
        returncode: Its return code.
        published: The repository's files afterward.
        stages: The staging directories afterward.
    """

    project: Project
    pid: int
    returncode: int
    published: dict[str, str]
    stages: list[str]


@dataclass(frozen=True)
class Series:
    """A project with a published version 1, and the builds that were killed at each step."""

    project: Project
    before: dict[str, str]
    kills: dict[str, Kill]


def signalled(project: Project, step: str, number: signal.Signals, *flags: str) -> tuple[subprocess.Popen[str], str]:
    """Build until standard error contains ``step``, signal the process group, and wait for its end."""
    lines = []
    with project.start("build", *flags) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line.partition("tiny: ")[2].startswith(step):
                os.killpg(process.pid, number)
                break
        lines += process.stderr
    return process, "".join(lines)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Series:
    """Publish version 1, change config.pbtxt, and kill the build of version 2 at each step in turn."""
    project = new_project(tmp_path_factory.mktemp("kill") / "project")
    first = project.run("build", "--no-smoke")
    assert (first.returncode, first.stderr.count("publish")) == (0, 1)
    before = project.published()
    project.edit("count: 1", "count: 2")
    kills = {}
    for step in STEPS:
        this = replace(project, mark=f"{project.mark}-{step}-")
        process, _ = signalled(this, step, signal.SIGKILL)
        kills[step] = Kill(this, process.pid, process.returncode, project.published(), project.stages())
    return Series(project, before, kills)


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS)
def test_killed_build_leaves_the_repository_unchanged_and_no_process(killed: Series, step: str) -> None:
    """Every published byte is unchanged; worker, tritonserver, stubs and shared memory are gone."""
    kill = killed.kills[step]
    assert kill.returncode == -signal.SIGKILL
    if step == "publish":  # killed at any point of it: version 1 is intact
        first = {path: digest for path, digest in killed.before.items() if path.startswith("tiny/1/")}
        assert first.items() <= kill.published.items()
    else:
        assert killed.before == kill.published
    assert len(kill.stages) == 1  # its own; it removed that of the build that was killed before
    assert kill.project.vanished()
    assert list(Path("/dev/shm").glob(f"repogen-{kill.pid}-*")) == []  # noqa: S108 - the Python backend uses it


@pytest.fixture(scope="module")
def triton(killed: Series) -> Iterator[InferenceServerClient]:
    """Start a new Triton on the repository after the kills; it exits if a model does not load."""
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with embedded.running(killed.project.repository, ControlMode.NONE) as server:
        client = InferenceServerClient(server.endpoint.grpc)
        yield client
        client.close()


def output_shape(client: InferenceServerClient) -> list[int]:
    """Return the shape of the served model's output for two rows."""
    rows = InferInput("x", [2, 4], "FP32")
    rows.set_data_from_numpy(np.ones((2, 4), np.float32))
    return list(client.infer("tiny", [rows]).as_numpy("y").shape)


@pytest.mark.full
def test_new_triton_serves_the_repository_after_the_kills(triton: InferenceServerClient) -> None:
    """Triton starts on the repository and the model responds."""
    assert output_shape(triton) == [2, 2]


@pytest.mark.full
def test_rerun_completes(killed: Series, triton: InferenceServerClient) -> None:
    """The same build publishes its version and removes the stages of the killed builds."""
    assert triton.is_server_live()  # the rerun publishes under a running server
    rerun = killed.project.run("build")
    assert (rerun.returncode, killed.project.stages()) == (0, [])
    assert "Traceback" not in rerun.stderr
    published = killed.project.published()
    assert published["tiny/config.pbtxt"] == published["tiny/2/config.pbtxt"] != killed.before["tiny/config.pbtxt"]
    assert published["tiny/2/model.onnx"] == killed.before["tiny/1/model.onnx"]
    assert killed.project.temporary() == []


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "step", ["validate", *(pytest.param(step, marks=pytest.mark.full) for step in ("import", "smoke"))]
)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, new_project: Callable[[Path], Project], step: str) -> None:
    """Ctrl-C is exit code 130 and a message, without processes, a stage or a repository."""
    project = new_project(tmp_path)
    process, output = signalled(project, step, signal.SIGINT)
    assert process.returncode == 130
    assert output.splitlines()[-2:] == [
        "interrupted; nothing is half-written",
        "  more: repogen explain interrupted",
    ]
    assert "Traceback" not in output
    assert project.vanished()
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"models.py", "repogen.yaml", "tmp"}
    assert project.temporary() == []


@pytest.mark.full
@pytest.mark.usefixtures("interruptible")
def test_second_ctrl_c_does_not_disturb_the_cleanup(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """As a runner does: SIGINT, and SIGTERM while repogen cleans up."""
    project = new_project(tmp_path)
    with project.start("build") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "tiny: validate" in line)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        output = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted; nothing is half-written" in output
    assert "Traceback" not in output
    assert project.vanished()
    assert project.stages() == []


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(number, marks=pytest.mark.full) for number in (signal.SIGINT, signal.SIGHUP))],
)
def test_no_worker_outlives_its_build(
    tmp_path: Path, new_project: Callable[[Path], Project], number: signal.Signals
) -> None:
    """A worker that sleeps for ten minutes is gone within seconds."""
    project = new_project(tmp_path)
    models = tmp_path / "models.py"
    slow = models.read_text(encoding="utf-8").replace("    return", "    __import__('time').sleep(600)\n    return")
    models.write_text(slow, encoding="utf-8")
    process, _ = signalled(project, "source", number, "--no-smoke")
    assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    assert project.vanished()
