"""Tests for the state of served models, and for the ports of ``repogen serve``."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from repogen.errors import ServerError
from repogen.serving.commands import with_ports
from repogen.serving.process import PortOptions, choose_ports
from repogen.serving.served_models import served_models

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = {
    "small": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}, {"name": "text", "datatype": "BYTES", "shape": [1]}],
    "large": [{"name": "image", "datatype": "UINT8", "shape": [-1, 3, 8, 8]}],
    "half": [{"name": "x", "datatype": "FP16", "shape": [1]}],
}


class Handler(BaseHTTPRequestHandler):
    """Answers requests for metadata as Triton does."""

    def do_GET(self) -> None:
        """Return the metadata of a model; 400 for one that is not ready."""
        name = self.path.rpartition("/")[2]
        body = json.dumps({"name": name, "versions": ["1", "3"], "inputs": MODELS.get(name, [])}).encode()
        self.send_response(200 if name in MODELS else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of an HTTP server with the metadata of some models."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_model_has_its_versions_and_requests(address: str) -> None:
    """Small inputs are written into the command; all dynamic dims are 1."""
    (model,) = served_models(address, ["small"], {})
    *_, body = shlex.split(model.curl)
    assert model.versions == ("1", "3")
    assert json.loads(body)["inputs"] == [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.0, 0.0]},
        {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["text"]},
    ]
    assert "InferInput('x', [1, 2], 'FP32')" in model.python
    assert "set_data_from_numpy(np.zeros([1, 2], 'float32'))" in model.python


def test_values_of_large_inputs_are_generated(address: str) -> None:
    """A command with every value of an image would not be readable."""
    (model,) = served_models(address, ["large"], {})
    assert model.curl.count("'") == 2  # the shell's quotes, and no escapes
    program = model.curl.partition(" |\n")[0]
    (entry,) = json.loads(subprocess.run(shlex.split(program), capture_output=True, check=True).stdout)["inputs"]
    assert (entry["shape"], entry["data"]) == ([1, 3, 8, 8], [0] * 192)


def test_half_precision_has_no_json_form(address: str) -> None:
    """Triton accepts FP16 in binary form only."""
    (model,) = served_models(address, ["half"], {})
    assert (model.curl, "'FP16'" in model.python) == ("", True)


def test_requests_fit_a_terminal(address: str) -> None:
    """They are copied as lines, which a terminal of 80 columns would break; only a long name is longer."""
    for model in served_models(address, ["small", "large", "half"], {}):
        assert max(map(len, f"{model.curl}\n{model.python}".splitlines())) <= 80


def test_model_that_is_not_ready_has_the_reason(address: str) -> None:
    """The log has the reason of a version, or of the model."""
    models = served_models(address, ["gone", "lost"], {"gone version 2": "no file", "lost": "no config"})
    assert [(model.versions, model.reason) for model in models] == [((), "no file"), ((), "no config")]


def test_ports_are_options_of_the_server() -> None:
    """The usual port of Triton is used if it is free, and any port if not."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 cannot be used"):
            choose_ports(PortOptions(http_port=port))
        kind = with_ports("embedded", {"http": port, "grpc": None})
    assert kind in {f"embedded:http_port={port},grpc_port=8001", f"embedded:http_port={port},grpc_port=0"}
    assert with_ports("cluster:3", {"http": None}) == "cluster:3"
    assert with_ports("cluster:3", {"http": 80}) == "cluster:3,http_port=80"
