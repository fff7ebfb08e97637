"""`repogen view`: the graph of a version, and a server that gives nothing else away."""

from __future__ import annotations

import http.client
import importlib.util
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from repogen.errors import MissingExtraError, SpecError
from repogen.versions.view import Graph, graph_of, open_viewer
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.published import Publisher


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Return a graph next to files that are not a part of it, in a directory with a hostile name."""
    directory = tmp_path / '"><script>alert(1)<' / "1"
    directory.mkdir(parents=True)
    (directory / "model.onnx").write_bytes(b"graph")
    (directory / "manifest.json").write_bytes(b"{}")
    (directory.parent / "config.pbtxt").write_bytes(b"")
    return Graph("m version 1", directory, ("model.onnx",))


@pytest.fixture
def address(graph: Graph) -> Iterator[tuple[str, int]]:
    """Serve the graph."""
    with open_viewer(graph) as viewer:
        thread = threading.Thread(target=viewer.serve, daemon=True)
        thread.start()
        host, _, port = viewer.url.removeprefix("http://").rstrip("/").partition(":")
        yield host, int(port)
        viewer.stop()
        thread.join()


def get(address: tuple[str, int], path: str, host: str = "") -> tuple[int, bytes, http.client.HTTPMessage]:
    """Return status, content and headers."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host or f"{address[0]}:{address[1]}")
    connection.endheaders()
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content, response.msg


def test_page_names_the_graph_and_nothing_else(address: tuple[str, int]) -> None:
    """The directory's name is not in the page, other hosts are forbidden, and Netron sends no statistics."""
    status, page, headers = get(address, "/")
    assert status == 200
    assert b'<meta name="file" content="/data/model.onnx">' in page
    assert b'<meta name="version" content="0.0.0">' in page
    assert b'<meta name="date"' not in page
    assert b"alert(1)" not in page
    assert headers["Content-Security-Policy"].startswith("default-src 'self' data: blob:;")
    assert address[0] == "127.0.0.1"
    assert get(address, "/data/model.onnx")[:2] == (200, b"graph")
    assert get(address, "/index.js")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/data/manifest.json", "/data/../config.pbtxt", "/data/%2e%2e/config.pbtxt", "/data//model.onnx", "/../etc/passwd",
     "/data/model.onnx%00", "/server.py", "/..", "//etc/passwd", "/data/"],
)  # fmt: skip
def test_other_files_are_not_served(address: tuple[str, int], path: str) -> None:
    """Neither those of the repository nor any other."""
    assert get(address, path)[0] == 404


def test_requests_for_other_hosts_are_rejected(address: tuple[str, int]) -> None:
    """A page of another host could otherwise read the graph through a name that leads to this machine."""
    assert get(address, "/data/model.onnx", host="evil.example")[0] == 403
    assert get(address, "/data/model.onnx", host=f"localhost:{address[1]}")[0] == 200


def test_link_out_of_the_version_is_not_served(address: tuple[str, int], graph: Graph, tmp_path: Path) -> None:
    """Also if it replaces the graph after the check."""
    (tmp_path / "secret").write_bytes(b"secret")
    (graph.directory / "model.onnx").unlink()
    (graph.directory / "model.onnx").symlink_to(tmp_path / "secret")
    assert get(address, "/data/model.onnx")[0] == 404


@pytest.mark.parametrize("whole", [False, True], ids=["file", "directory"])
def test_link_that_replaces_the_graph_before_it_is_opened(
    address: tuple[str, int],
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Another user may be able to write to the repository."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "model.onnx").write_bytes(b"secret")
    file, secret = graph.directory / "model.onnx", tmp_path / "secret"
    if whole:
        swap_when_opened(monkeypatch, file, graph.directory, secret)
    else:
        swap_when_opened(monkeypatch, file, file, secret / "model.onnx")
    assert get(address, "/data/model.onnx")[0] == 404


def test_closed_connections_print_nothing(
    address: tuple[str, int], graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    """Any user of the machine can open one and close it at once."""
    (graph.directory / "model.onnx").write_bytes(bytes(2**23))
    for path in ("/data/model.onnx", "/", "/missing"):
        with socket.create_connection(address) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert get(address, "/missing")[0] == 404
    for thread in threading.enumerate():
        if "process_request" in thread.name:
            thread.join()
    assert capfd.readouterr().err == ""


def test_port_in_use(graph: Graph) -> None:
    """The error names the port."""
    with open_viewer(graph) as viewer:
        port = int(viewer.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(SpecError, match=f"port {port} can't be used") as raised, open_viewer(graph, port):
            pass
    assert raised.value.code == "view.port"


def test_missing_netron(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="Netron is not installed") as raised, open_viewer(graph):
        pass
    assert "view" in raised.value.hint


def test_newest_served_version_is_selected(publisher: Publisher) -> None:
    """Another one by its number."""
    publisher.publish("m", b"one")
    publisher.publish("m", b"two")
    assert graph_of(publisher.repository, "m", None).title == "m version 2"
    assert graph_of(publisher.repository, "m", 1).directory == publisher.repository / "m" / "1"
    with pytest.raises(SpecError, match="m has no version 7") as raised:
        graph_of(publisher.repository, "m", 7)
    assert raised.value.code == "view.no-version"
    (publisher.repository / "m" / "2" / "model.onnx").unlink()
    with pytest.raises(SpecError, match=r"version 2 of m has no model\.onnx") as raised:
        graph_of(publisher.repository, "m", None)
    assert raised.value.code == "view.no-graph"


@pytest.mark.usefixtures("interruptible")
def test_command_serves_until_it_is_interrupted(publisher: Publisher) -> None:
    """It prints the URL, and Ctrl-C ends it without an error."""
    publisher.publish("m", b"graph")
    command = [
        sys.executable,
        "-m",
        "repogen",
        "view",
        "m@1",
        "--repository",
        str(publisher.repository),
        "--no-browser",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        title, _, url = process.stdout.readline().strip().partition(": http://")
        assert title == "m version 1"
        assert process.stdout.readline() == "press Ctrl-C to stop\n"
        host, _, port = url.rstrip("/").partition(":")
        assert get((host, int(port)), "/data/model.onnx")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
