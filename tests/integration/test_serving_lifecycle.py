"""Start and stop of the embedded Triton: no process, shared memory or file is left behind."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError
from repogen.serving import commands
from repogen.serving.served_models import CLIENT_IMPORTS
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from tests.integration.test_hostile_repository import Notes

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
from repogen.serving.servers import open_triton, prepare_server
from repogen.targets import targets
server = prepare_server("embedded", targets()["24.10"], Silent())
with open_triton(server, Path(sys.argv[1]), ControlMode.NONE, Silent()) as running:
    print(running.endpoint.http, flush=True)
    time.sleep(600)
"""


PIPELINE = """
platform: "ensemble"
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, 3 ] }
ensemble_scheduling {
  step {
    model_name: "broken"
    model_version: -1
    input_map { key: "x" value: "x" }
    output_map { key: "y" value: "y" }
  }
}
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
        # requests and responses are in it, and Boost would make it readable for all users
        assert {region.stat().st_mode & 0o777 for region in set(regions(os.getpid())) - before[1]} == {0o600}

    assert not running.alive()
    assert before == (set(processes(os.getpid())), set(regions(os.getpid())))


@pytest.mark.parametrize("poll", [False, True])
def test_models_that_load_are_served_and_the_others_are_named(repository: Path, *, poll: bool) -> None:
    """Each model that does not load has a note with the reason: broken weights, a wrong name, a failed step."""
    for name in ("broken", "misnamed", "pipeline"):
        shutil.copytree(repository / "m", repository / name)
    (repository / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    (repository / "misnamed" / "config.pbtxt").write_text('name: "other"\nbackend: "onnxruntime"\n', encoding="utf-8")
    (repository / "pipeline" / "config.pbtxt").write_text(PIPELINE, encoding="utf-8")
    (repository / "unparsed").mkdir()
    (repository / "unparsed" / "config.pbtxt").write_text("no config", encoding="utf-8")
    (repository / "empty").mkdir()
    progress = Notes()
    with (
        commands.serve(repository, "embedded", poll=poll, progress=progress) as triton,
        InferenceServerClient(triton.endpoint.grpc) as client,
    ):
        assert client.is_model_ready("m")
    reasons = {name.partition(" ")[0]: reason for name, reason in progress.notes.items()}
    assert sorted(reasons) == ["broken", "empty", "misnamed", "pipeline", "unparsed"]
    assert "Protobuf parsing failed" in reasons["broken"]
    assert "config.pbtxt has the name 'other'" in reasons["misnamed"]
    assert "depends on 'broken'" in reasons["pipeline"]


def test_repository_of_which_nothing_loads_is_an_error(repository: Path) -> None:
    """The message has the reason from the server's log."""
    (repository / "m" / "1" / "model.onnx").write_bytes(b"no model")

    with (
        pytest.raises(ServerError, match=r"(?s)could not load any model.*m version 1.*onnx runtime error"),
        commands.serve(repository, "embedded", poll=False, progress=Silent()),
    ):
        pass


def test_printed_requests_get_a_response(repository: Path) -> None:
    """The commands work as printed: curl, and tritonclient in Python. Models that are not selected are not served."""
    shutil.copytree(repository / "m", repository / "other")
    kind = commands.with_ports("embedded", {"http": 0, "grpc": 0, "metrics": 0})
    with commands.serve(repository, kind, models=("m",), poll=False, progress=Silent()) as triton:
        (model,) = commands.states(triton, repository, ("m",))
        (other,) = commands.states(triton, repository, ("other",))
        lines = [*CLIENT_IMPORTS, f"client = grpcclient.InferenceServerClient({triton.endpoint.grpc!r})", model.python]
        commands_of_user = (shlex.split(model.curl), [sys.executable, "-c", "\n".join(lines)])
        answer, printed = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands_of_user
        )
    assert (model.versions, other.versions) == (("1",), ())
    assert '"data":[0.0,0.0,0.0]' in answer
    assert printed == "y [[0. 0. 0.]]\n"
