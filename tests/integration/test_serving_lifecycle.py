"""Start and stop of the embedded Triton: no process, shared memory or file is left."""

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
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets

IDENTITY_MODEL = """
import sys
from pathlib import Path
import onnx
from onnx import helper, TensorProto
folder = Path(sys.argv[1], "m", "1")
folder.mkdir(parents=True)
signature = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3])] for n in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "m", *signature)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
"""

OWNER = """
import sys, time
from pathlib import Path
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import open_triton
from repogen.targets import targets
with open_triton("embedded", targets()["24.10"], Path(sys.argv[1]), ControlMode.NONE, Silent()) as running:
    print(running.endpoint.http, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one model, whose path has spaces and a quote."""
    path = tmp_path / "it's a repository"
    subprocess.run([sys.executable, "-c", IDENTITY_MODEL, path], check=True)
    return path


def processes(owner: int) -> list[str]:
    """Return the command lines of the servers and stubs that process ``owner`` started."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"repogen-{owner}-" in line:
            lines.append(line)
    return lines


def regions(owner: int) -> list[Path]:
    """Return the shared memory of the servers that process ``owner`` started."""
    return list(Path("/dev/shm").glob(f"repogen-{owner}-*"))  # noqa: S108 - POSIX shared memory


def vanished(owner: int) -> bool:
    """Return whether the servers of ``owner`` and their shared memory are gone within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not processes(owner) and not regions(owner):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_no_server_outlives_its_owner(repository: Path, tmp_path: Path, ending: signal.Signals) -> None:
    """SIGKILL or Ctrl-C of the owner removes server, stubs, shared memory and files."""
    runs = tmp_path / "runs"
    runs.mkdir()
    command = [sys.executable, "-c", OWNER, str(repository)]
    environment = os.environ | {"TMPDIR": str(runs)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith("127.0.0.1:")
        lines = processes(owner.pid)
        assert any("python_backend_stub" in line for line in lines)
        assert regions(owner.pid)
        owner.send_signal(ending)
        owner.wait()

    assert vanished(owner.pid)
    assert list(runs.iterdir()) == []


def test_stopped_server_leaves_nothing(repository: Path) -> None:
    """The server stops at the end of the block."""
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    before = set(processes(os.getpid())), set(regions(os.getpid()))

    with embedded.running(repository, ControlMode.NONE) as running:
        assert running.alive()
        assert running.endpoint.server_version == "2.51.0"
        assert "1.19.2" in running.endpoint.runtime

    assert not running.alive()
    assert before == (set(processes(os.getpid())), set(regions(os.getpid())))


def test_broken_model_in_mode_none_is_an_error_with_the_log(repository: Path) -> None:
    """The message has the reason from the server's log."""
    (repository / "m" / "1" / "model.onnx").write_bytes(b"no model")
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())

    with (
        pytest.raises(ServerError, match=r"(?s)(exit code 1|m version 1).*onnx runtime error"),
        embedded.running(repository, ControlMode.NONE),
    ):
        pass
