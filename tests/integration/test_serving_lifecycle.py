"""Starting and stopping the embedded Triton: nothing of it is left, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError
from repogen.serving.servers import server
from repogen.targets import DEFAULT_RELEASE, targets

IDENTITY_MODEL = """
import sys
from pathlib import Path
import onnx
from onnx import helper, TensorProto
folder = Path(sys.argv[1], "m", "1")
folder.mkdir(parents=True)
ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3])] for n in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "m", *ends)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
"""

OWNER = """
import sys, time
from pathlib import Path
from repogen.serving import server
from repogen.values.progress import Silent
from repogen.values.serving import ControlMode
from repogen.values.target import targets
embedded = server("embedded", targets()["24.10"], Silent())
with embedded.running(Path(sys.argv[1]), ControlMode.NONE) as running:
    print(running.endpoint.http, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one model, at a path with a space and a quote in it."""
    path = tmp_path / "it's a repository"
    subprocess.run([sys.executable, "-c", IDENTITY_MODEL, path], check=True)
    return path


def processes(owner: int) -> list[str]:
    """Return the command lines of the servers and stubs that process ``owner`` had started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"repogen-{owner}-" in line:
            found.append(line)
    return found


def regions(owner: int) -> list[Path]:
    """Return the shared memory of the servers that process ``owner`` had started."""
    return list(Path("/dev/shm").glob(f"repogen-{owner}-*"))  # noqa: S108 - where the Python backend keeps them


def vanished(owner: int) -> bool:
    """Wait until nothing of ``owner``'s servers is left, for up to ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not processes(owner) and not regions(owner):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_no_server_outlives_its_owner(repository: Path, tmp_path: Path, ending: signal.Signals) -> None:
    """After SIGKILL or Ctrl-C of the process that started it, server, stubs, shared memory and files are gone."""
    runs = tmp_path / "runs"
    runs.mkdir()
    command = [sys.executable, "-c", OWNER, str(repository)]
    environment = os.environ | {"TMPDIR": str(runs)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith("127.0.0.1:")
        seen = processes(owner.pid)
        assert any("python_backend_stub" in line for line in seen)
        assert regions(owner.pid)
        owner.send_signal(ending)
        owner.wait()

    assert vanished(owner.pid)
    assert list(runs.iterdir()) == []


def test_a_stopped_server_leaves_nothing(repository: Path) -> None:
    """The block's end is the server's end."""
    embedded = server("embedded", targets()[DEFAULT_RELEASE], Silent())
    before = set(processes(os.getpid())), set(regions(os.getpid()))

    with embedded.running(repository, ControlMode.NONE) as running:
        assert running.alive()
        assert running.endpoint.server_version == "2.51.0"
        assert "1.19.2" in running.endpoint.runtime

    assert not running.alive()
    assert before == (set(processes(os.getpid())), set(regions(os.getpid())))


def test_a_broken_model_in_mode_none_is_an_error_that_shows_the_log(repository: Path) -> None:
    """Whether it is asked in its last moment or is gone by then, its log's reason is in the message."""
    (repository / "m" / "1" / "model.onnx").write_bytes(b"no model")
    embedded = server("embedded", targets()[DEFAULT_RELEASE], Silent())

    with (
        pytest.raises(ServerError, match=r"(?s)(exit code 1|m version 1).*onnx runtime error"),
        embedded.running(repository, ControlMode.NONE),
    ):
        pass
