"""Requests and responses over HTTP with binary tensors."""

from __future__ import annotations

import http.server
import json
import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from repogen.smoke import over_http
from repogen.smoke.inference import NoResponseError, RefusedError, SequencePosition, WireTensor, from_wire
from repogen.smoke.over_http import decode_response, encode_request, golden_over_http
from tests.support.hostile_server import hostile_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.tensors import Array, Arrays

ARRAYS: Arrays = {
    "FP32": np.array([[1.5, np.nan]], np.float32),
    "FP16": np.array([1.0, 65504.0], np.float16),
    "BF16": np.array([1.0, -3.140625, np.inf], np.float32),
    "INT64": np.array([[2**62], [-1]]),
    "BOOL": np.array([True, False]),
    "BYTES": np.array([["ä".encode()], [b"\x00\xff"]], dtype=object),
}


def as_response(header: bytes, body: bytes) -> tuple[bytes, str]:
    """Return a response with the tensors of a request."""
    document = {"outputs": json.loads(header)["inputs"]}
    text = json.dumps(document).encode()
    return text + body, str(len(text))


@pytest.mark.parametrize("dtype", ARRAYS)
def test_every_type_survives(dtype: str) -> None:
    """Also those that JSON cannot carry: FP16, BF16, NaN, and bytes that are not text."""
    tensor = WireTensor("x", dtype, ARRAYS[dtype])

    outputs = decode_response(*as_response(*encode_request([tensor], None)))

    np.testing.assert_array_equal(outputs["x"], ARRAYS[dtype])
    assert outputs["x"].shape == ARRAYS[dtype].shape


def test_empty_tensors_and_several_tensors() -> None:
    """The size of each tensor decides where the next one starts."""
    tensors = [WireTensor("a", "BYTES", np.empty((0, 1), object)), WireTensor("b", "FP32", ARRAYS["FP32"])]

    outputs = decode_response(*as_response(*encode_request(tensors, None)))

    assert outputs["a"].shape == (0, 1)
    np.testing.assert_array_equal(outputs["b"], ARRAYS["FP32"])


def test_position_in_a_sequence_is_a_parameter() -> None:
    """As the sequence extension of the protocol has it."""
    header, _ = encode_request([], SequencePosition(7, start=True, end=False))

    parameters = json.loads(header)["parameters"]

    assert {k: v for k, v in parameters.items() if k.startswith("sequence")} == {
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": False,
    }


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b"[" * 100_000, b'{"outputs": ["y"]}'),
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 1e999}}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]}',
        b'{"outputs": [{"name": "y", "datatype": "?", "shape": [1e9], "parameters": {"binary_data_size": 0}}]}',
    ],
)
def test_other_response_is_rejected(content: bytes) -> None:
    """A server that does not follow the protocol fails the check, and repogen does not crash."""
    with pytest.raises(RefusedError, match="cannot be read"):
        decode_response(content, None)


@given(st.lists(st.binary(max_size=5), max_size=5).map(lambda items: np.array(items, object)), st.binary(max_size=9))
def test_strings_are_those_of_tritonclient(strings: Array, tail: bytes) -> None:
    """Its decoder, which is slow, has the same result, or an error as well."""
    serialized = serialize_byte_tensor(strings)
    content = (serialized.item() if serialized.size else b"") + tail
    try:
        expected = deserialize_bytes_tensor(content)
    except struct.error:
        with pytest.raises(ValueError, match="longer than what follows"):
            from_wire(content, "BYTES")
    else:
        np.testing.assert_array_equal(from_wire(content, "BYTES"), expected)


def test_outputs_with_the_same_bytes_are_rejected() -> None:
    """With sizes below 0, a response of 1 MB could have gigabytes of outputs."""
    outputs = [
        {"name": str(number), "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": size}}
        for number, size in enumerate((8, -8, 8))
    ]
    header = json.dumps({"outputs": outputs}).encode()
    with pytest.raises(RefusedError, match="an output has -8 bytes"):
        decode_response(header + bytes(8), str(len(header)))


@pytest.mark.parametrize(("name", "shape"), [("x", [2]), ("y", [-1])], ids=["name", "shape"])
def test_output_that_is_ambiguous_is_rejected(name: str, shape: list[int]) -> None:
    """An output that is there twice, and a dim of -1, which NumPy would derive."""
    outputs = [
        {"name": each, "datatype": "INT32", "shape": dims, "parameters": {"binary_data_size": 8}}
        for each, dims in (("x", [2]), (name, shape))
    ]
    header = json.dumps({"outputs": outputs}).encode()
    with pytest.raises(RefusedError, match=r"twice|negative"):
        decode_response(header + bytes(16), str(len(header)))


def test_strings_with_wrong_lengths_are_rejected() -> None:
    """The length of a string is more than what follows it."""
    output = {"name": "y", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}
    header = json.dumps({"outputs": [output]}).encode()
    for body in (b"\xff\xff\xff\xffab", b"\1\0"):
        with pytest.raises(RefusedError, match="cannot be read"):
            decode_response(header + body, str(len(header)))


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100_000), "larger than 1048624 bytes"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n" * 4096), "larger than 1048624"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",), "HTTP: "),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",), "97 more expected"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\nabc",), "more expected"),
        ((b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nabc",), "encoded as 'gzip'"),
        ((b"HTTP/1.1 200 OK\r\nX: ", b"x" * 100_000), "HTTP: "),
        ((b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "HTTP: "),
        ((b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), "larger than"),
        ((b"nothing",), "HTTP: "),
    ],
)
def test_endless_response(simulated: Callable[..., tuple[Any, Any]], parts: tuple[bytes, ...], problem: str) -> None:
    """A response may be twice as large as the golden outputs, 24 bytes here, and 1 MiB more; it must be complete."""
    with hostile_server(*parts) as address, pytest.raises(NoResponseError, match=problem):
        golden_over_http(simulated()[1], address)


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_slow_response(simulated: Callable[..., tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    """Every byte arrives within the timeout of the connection, but the response, or its headers, have no end."""
    monkeypatch.setattr(over_http, "_SECONDS", 0.2)
    with (
        hostile_server(part, b"x", pause=0.01) as address,
        pytest.raises(NoResponseError, match="was not complete after"),
    ):
        golden_over_http(simulated()[1], address)


@pytest.fixture
def proxy(simulated: Callable[..., tuple[Any, Any]]) -> Iterator[Callable[..., tuple[Any, str]]]:
    """Return a model on a simulated server, and the address of an HTTP service that forwards requests to it."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(*flaws: str) -> tuple[Any, str]:
        triton, model = simulated(*flaws)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                length = int(self.headers["Inference-Header-Content-Length"])
                (tensor,) = json.loads(content[:length])["inputs"]
                array = np.frombuffer(content[length:], np.float32).reshape(tensor["shape"])
                (y,) = triton.infer("double", 1, [WireTensor("x", "FP32", array)], None, 2**20).values()
                header, body = encode_request([WireTensor("y", "FP32", y)], None)
                response, size = as_response(header, body)
                self.send_response(400 if "broken" in flaws else 200)
                self.send_header("Inference-Header-Content-Length", size)
                self.end_headers()
                self.wfile.write(response)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever).start()
        return model, f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_correct_outputs_pass(proxy: Callable[..., tuple[Any, str]]) -> None:
    """The check has the largest difference."""
    check = golden_over_http(*proxy())

    assert (check.passed, check.warning, check.max_abs_diff) == (True, False, 0.0)


def test_other_outputs_fail(proxy: Callable[..., tuple[Any, str]]) -> None:
    """The tolerances are those of the check over gRPC."""
    assert not golden_over_http(*proxy("numbers")).passed


def test_status_of_the_server_is_reported(proxy: Callable[..., tuple[Any, str]]) -> None:
    """A rejected request fails the check with the server's text."""
    with pytest.raises(RefusedError, match="HTTP 400"):
        golden_over_http(*proxy("broken"))


def test_server_without_http_is_a_warning(simulated: Callable[..., tuple[Any, Any]]) -> None:
    """A remote server is known by its gRPC address only."""
    check = golden_over_http(simulated()[1], "")

    assert (check.passed, check.warning, "HTTP address" in check.detail) == (True, True, True)
