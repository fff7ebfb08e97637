"""Who can call the control API of a server that repogen started: load models, change logs, map shared memory."""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from repogen.artifacts.progress import Silent
from repogen.errors import SmokeError
from repogen.serving import commands, control, process
from repogen.serving.servers import prepare_server
from tests.integration.test_hostile_repository import CONFIG, add
from tests.support.raw_http2 import has_response

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
CALLS: dict[str, Callable[..., Any]] = {
    "index": lambda client, headers: client.get_model_repository_index(headers=headers),
    "load": lambda client, headers: client.load_model("good", headers=headers),
    "log": lambda client, headers: client.update_log_settings({}, headers=headers),
    "trace": lambda client, headers: client.get_trace_settings(headers=headers),
    "memory": lambda client, headers: client.get_system_shared_memory_status(headers=headers),
}
PATHS = (
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/good/load"),
    ("GET", "/v2/logging"),
    ("GET", "/v2/trace/setting"),
    ("GET", "/v2/systemsharedmemory/status"),
)


def started_processes() -> dict[int, bytes]:
    """Return the command lines of this process and the processes that it started, by process."""
    lines = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((directory / "stat").read_bytes().rpartition(b")")[2].split()[1])
            lines[int(directory.name)] = parent, (directory / "cmdline").read_bytes()
        except OSError:  # it ended
            continue
    own = {os.getpid()}
    while more := {pid for pid, (parent, _) in lines.items() if parent in own} - own:
        own |= more
    return {pid: lines[pid][1] for pid in own if pid in lines}


def visible_to_others() -> bytes:
    """Return everything that other users can read about this process and the processes that it started."""
    return b"\n".join(started_processes().values())


def command_lines(triton: Any) -> list[bytes]:
    """Return the visible command lines of a server's process and its supervisor: other servers run as well."""
    port = triton.endpoint.grpc.rpartition(":")[2].encode()
    return [line for line in started_processes().values() if b"\0--grpc-port=" + port + b"\0" in line]


def reaches(path: Path, user: int | None) -> bool:
    """Return whether a user can reach a path, which connecting to a socket requires."""
    return subprocess.run(["/bin/sh", "-c", 'test -e "$0"', str(path)], user=user, check=False).returncode == 0


def sockets(triton: Any) -> list[Path]:
    """Return the sockets of a server."""
    return [Path(address.removeprefix("unix:")) for address in (triton.endpoint.grpc, triton.endpoint.http)]


def test_server_in_explicit_mode_has_no_port(triton: Any) -> None:
    """Its sockets are in a directory of mode 0700."""
    for path in sockets(triton.running):
        assert path.is_socket()
        assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert triton.running.endpoint.metrics == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_reach_a_server_in_explicit_mode(triton: Any) -> None:
    """The directory of the sockets is closed."""
    for path in sockets(triton.running):
        assert reaches(path.parent.parent, NOBODY)
        assert [reaches(path, user) for user in (None, NOBODY)] == [True, False]


@pytest.mark.parametrize("call", CALLS)
def test_explicit_server_requires_its_header_as_well(triton: Any, call: str) -> None:
    """A process of the same user needs the header."""
    endpoint = triton.running.endpoint
    with InferenceServerClient(endpoint.grpc) as client:
        with pytest.raises(InferenceServerException, match="restricted"):
            CALLS[call](client, None)
        if call != "load":
            CALLS[call](client, endpoint.control.grpc)


@pytest.mark.parametrize("poll", [False, True])
def test_control_api_of_a_served_repository_is_closed(tmp_path: Path, *, poll: bool) -> None:
    """No header that is visible in a command line opens it."""
    add(tmp_path, "good")
    with commands.serve(tmp_path, "embedded", poll=poll, progress=Silent()) as triton:
        assert triton.endpoint.control is None
        with InferenceServerClient(triton.endpoint.grpc) as client:
            assert client.is_model_ready("good")
            for call in CALLS.values():
                with pytest.raises(InferenceServerException, match="restricted"):
                    call(client, None)
        assert {status(triton, path, {}) for path in PATHS} == {403}
        assert has_response(triton.endpoint.grpc, "ServerLive")
        assert not has_response(triton.endpoint.grpc, "RepositoryIndex")
        lines = command_lines(triton)
        assert lines
        assert not [line for line in lines if b"restricted" in line]


def test_visible_header_would_open_the_control_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton accepts a line break from a client that was written for it, so the header has to be hidden."""
    add(tmp_path, "good")
    monkeypatch.setattr(process, "_may_trace", lambda: False)
    with commands.serve(tmp_path, "embedded", poll=False, progress=Silent()) as triton:
        option = command_lines(triton)[0].partition(b"--grpc-restricted-protocol=")[2].partition(b"\0")[0]
        key, _, value = option.partition(b":")[2].partition(b"=")
        name = f"triton-grpc-protocol-{key.decode()}"
        assert has_response(triton.endpoint.grpc, "RepositoryIndex", name, value)
        assert not has_response(triton.endpoint.grpc, "RepositoryIndex", name, value.partition(b"\n")[0])
        assert {
            status(triton, path, {key.decode(): line}) for path in PATHS for line in value.decode().split("\n")
        } == {403}


DUMP = """\
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        with open(os.environ["DUMP"], "w") as file:
            json.dump(dict(os.environ), file)
    def execute(self, requests):
        return []
"""


def test_code_of_a_model_does_not_inherit_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither headers, the password of a signing key, nor credentials for MLflow; other variables are inherited."""
    model = add(tmp_path / "repository", "code", CONFIG.replace("onnxruntime", "python"))
    (model / "1" / "model.py").write_text(DUMP, encoding="utf-8")
    value = secrets.token_hex(16)
    monkeypatch.setenv(control.VARIABLE, f"X-Ops={value}")
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    for name in ("REPOGEN_SERVER_HEADER", "REPOGEN_SIGNING_PASSWORD"):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"https://user:{value}@host/path")
    monkeypatch.setenv("DUMP", str(tmp_path / "dump.json"))
    with commands.serve(tmp_path / "repository", "embedded", poll=False, progress=Silent()) as triton:
        assert status(triton, PATHS[2], {"X-Ops": value}) == 200
    variables = json.loads((tmp_path / "dump.json").read_text())
    assert [name for name, text in variables.items() if value in text] == []
    assert variables["DUMP"] == str(tmp_path / "dump.json")
    assert variables["MLFLOW_TRACKING_URI"] == "https://host/path"


def status(triton: Any, path: tuple[str, str], headers: dict[str, str]) -> int:
    """Return the status of an HTTP request."""
    connection = HTTPConnection(triton.endpoint.http)
    try:
        connection.request(*path, body=json.dumps({}), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_server_sends_no_telemetry(triton: Any) -> None:
    """ONNX Runtime reads a variable before it starts to send events."""
    path = str(triton.running.installation.server / "bin" / "tritonserver").encode()
    (server,) = [pid for pid, line in started_processes().items() if line.startswith(path)]
    environment = set(Path(f"/proc/{server}/environ").read_bytes().split(b"\0"))
    assert environment >= {b"ORT_DISABLE_TELEMETRY=1", b"HF_HUB_DISABLE_TELEMETRY=1"}


def test_header_of_the_user_opens_the_control_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is in no command line, at no time: the server is started without it."""
    add(tmp_path, "good")
    value = secrets.token_hex(16)
    monkeypatch.setenv(control.VARIABLE, f"X-Ops={value}")
    with commands.serve(tmp_path, "embedded", poll=False, progress=Silent()) as triton:
        visible = visible_to_others()
        assert b"tritonserver" in visible
        assert value.encode() not in visible
        with InferenceServerClient(triton.endpoint.grpc) as client:
            with pytest.raises(InferenceServerException, match="restricted"):
                client.get_log_settings()
            assert triton.endpoint.control is not None
            client.get_log_settings(headers=triton.endpoint.control.grpc)
        assert value not in triton.log_tail(1000)
        assert value not in repr(triton.endpoint)
        assert status(triton, PATHS[2], {"X-Ops": value}) == 200
        assert status(triton, PATHS[2], {"X-Ops": "other"}) == 403


def test_build_checks_first_that_a_remote_server_loads_models(
    triton: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server in explicit mode does, if it gets its header; nothing is loaded into it, and other modes are errors."""
    endpoint = triton.running.endpoint
    with pytest.raises(SmokeError, match="requires a header") as caught:
        prepare_server(endpoint.grpc, triton.target, Silent(), loads=True)
    assert caught.value.code == "smoke.control-header"
    monkeypatch.setenv(control.VARIABLE, f"{endpoint.control.key}={endpoint.control.value}")
    prepare_server(endpoint.grpc, triton.target, Silent(), loads=True)

    add(tmp_path, "good")
    monkeypatch.setenv(control.VARIABLE, "key=v")  # a value that occurs in other arguments of the server
    with commands.serve(tmp_path, "embedded", poll=False, progress=Silent()) as served:
        prepare_server(served.endpoint.grpc, triton.target, Silent())
        with pytest.raises(SmokeError, match="does not load models on request") as caught:
            prepare_server(served.endpoint.grpc, triton.target, Silent(), loads=True)
    assert caught.value.code == "smoke.not-explicit"
