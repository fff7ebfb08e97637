"""Tensors over real gRPC, to and from a server that returns what it receives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest.mock import Mock

import grpc  # type: ignore[import-untyped] # its stubs are a package of their own
import numpy as np
import pytest
import torch
from tritonclient.grpc.service_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
    RepositoryIndexResponse,
)
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from repogen.artifacts.serving import Credentials
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits, RefusedError, WireTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = np.array([[1.0, 1 / 3, -2.5, 1e30]], np.float32)


class Echo(GRPCInferenceServiceServicer):  # type: ignore[misc] # tritonclient is not typed
    """Returns every input as an output of the same name, and records the requests."""

    def __init__(self) -> None:
        """Start without requests."""
        self.requests: list[ModelInferRequest] = []
        self.headers: list[dict[str, str]] = []
        self.address = ""
        self.version = ""
        self.reason = ""
        self.count = 1
        self.padding = b""

    def ModelInfer(self, request: ModelInferRequest, context: grpc.ServicerContext) -> ModelInferResponse:  # noqa: N802 - gRPC's name
        """Answer one request."""
        self.headers.append({item.key: item.value for item in context.invocation_metadata()})
        self.requests.append(request)
        response = ModelInferResponse(raw_output_contents=request.raw_input_contents)
        for tensor in request.inputs:
            response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.parameters["padding"].string_param = self.padding.decode()
        return response

    def ModelConfig(self, _request: object, context: grpc.ServicerContext) -> None:  # noqa: N802 - as above
        """Reject the request."""
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.reason[:4000])

    def RepositoryIndex(self, *_: object) -> RepositoryIndexResponse:  # noqa: N802 - as above
        """Return the same model as often as requested."""
        model = RepositoryIndexResponse.ModelIndex(name="m", version=self.version, state="READY", reason=self.reason)
        return RepositoryIndexResponse(models=[model] * self.count)


@pytest.fixture
def echo() -> Iterator[tuple[Echo, GrpcClient]]:
    """Return a server, and a client that is connected to it."""
    service, server = Echo(), grpc.server(ThreadPoolExecutor(1))
    add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with GrpcClient(f"127.0.0.1:{port}", Limits()) as client:
            service.address = f"127.0.0.1:{port}"
            yield service, client
    finally:
        server.stop(None).wait()


def test_bfloat16_is_two_bytes_on_the_wire(echo: tuple[Echo, GrpcClient]) -> None:
    """Arrays are float32 on both sides; values are rounded to the nearest, ties to even."""
    service, client = echo
    received = client.infer("m", 1, [WireTensor("x", "BF16", VALUES)])["x"]
    expected = torch.from_numpy(VALUES).bfloat16()
    (request,) = service.requests
    assert request.inputs[0].datatype == "BF16"
    assert request.raw_input_contents[0] == expected.view(torch.int16).numpy().tobytes()
    assert received.dtype == np.float32
    assert np.array_equal(received, expected.float().numpy())


def test_headers_are_sent_with_every_request(echo: tuple[Echo, GrpcClient]) -> None:
    """As a proxy in front of the server requires them."""
    service, client = echo
    credentials = Credentials(headers={"authorization": "Bearer a b", "x-team": "c"})
    with GrpcClient(service.address, Limits(), credentials=credentials) as authorized:
        for _ in range(2):
            authorized.infer("m", 1, [WireTensor("x", "FP32", VALUES)])
    client.infer("m", 1, [WireTensor("x", "FP32", VALUES)])
    sent = [{key: headers.get(key) for key in ("authorization", "x-team")} for headers in service.headers]
    assert sent == [*[dict(credentials.headers)] * 2, {"authorization": None, "x-team": None}]


def test_float32_is_unchanged(echo: tuple[Echo, GrpcClient]) -> None:
    """Its values have more digits than those of BF16."""
    received = echo[1].infer("m", 1, [WireTensor("x", "FP32", VALUES)])["x"]
    assert np.array_equal(received, VALUES)


def test_output_that_is_there_twice(echo: tuple[Echo, GrpcClient]) -> None:
    """Only one of them could be compared."""
    with pytest.raises(RefusedError, match="twice"):
        echo[1].infer("m", 1, [WireTensor("x", "FP32", VALUES)] * 2)


def test_version_in_the_index(echo: tuple[Echo, GrpcClient]) -> None:
    """A server that does not follow the protocol is reported, and repogen does not crash."""
    service, client = echo
    for text, version in (("", None), ("7", 7), ("-1", -1)):
        service.version = text
        assert [entry.version for entry in client.index()] == [version]
    for text in ("one", "1\n", str(2**63), "9" * 5_000, "\N{ARABIC-INDIC DIGIT THREE}", "-", "\x1b[2J"):
        service.version = text
        with pytest.raises(RefusedError, match="which is not a number"):
            client.index()


def test_texts_of_a_server_are_one_short_line(echo: tuple[Echo, GrpcClient]) -> None:
    """Other lines could look like those of repogen."""
    server, client = echo
    server.version, server.reason = "1", "a\nerror: b\n" + "c" * 9000
    (entry,) = client.index()
    assert (entry.reason[:14], len(entry.reason)) == ("a error: b ccc", 2000)
    with pytest.raises(RefusedError) as caught:
        client.config("m", 1)
    assert (caught.value.message[:10], len(caught.value.message)) == ("a error: b", 2000)


def test_large_index_is_rejected(echo: tuple[Echo, GrpcClient]) -> None:
    """Many short entries take a hundred times as much memory as their message, so the message is limited."""
    service, client = echo
    service.count = 2**17
    service.version = "1" * 60
    with pytest.raises(RefusedError, match="larger than max"):
        client.index()


@pytest.mark.parametrize("count", [1, 8])
def test_response_that_cannot_be_decoded_is_rejected(count: int) -> None:
    """In a burst, gRPC's library would wait for a response without an end."""

    class Undecodable(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC is not typed
        def service(self, _: object) -> object:
            return grpc.unary_unary_rpc_method_handler(lambda *_: b"\xff" * 8)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Undecodable()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            GrpcClient(f"127.0.0.1:{port}", Limits()) as client,
            pytest.raises(RefusedError, match="Exception deserializing response"),
        ):
            client.burst("m", 1, [[WireTensor("x", "FP32", VALUES)]] * count)
    finally:
        server.stop(None).wait()


def test_response_larger_than_expected_is_rejected(echo: tuple[Echo, GrpcClient]) -> None:
    """A hostile server could use all memory: a burst has up to 128 responses at a time."""
    service, client = echo
    service.padding = bytes(2**22)
    request = [WireTensor("x", "FP32", VALUES)]
    for send in (
        lambda: client.infer("m", 1, request, max_bytes=2**20),
        lambda: client.burst("m", 1, [request] * 2, max_bytes=2**22),
    ):
        with pytest.raises(
            RefusedError, match=r"the response is larger than what is expected: .*\(4194\d+ vs\. 4194304"
        ):
            send()
    assert np.array_equal(client.infer("m", 1, request, max_bytes=2**22 + 1)["x"], VALUES)
    assert np.array_equal(client.infer("m", 1, request)["x"], VALUES)


def test_strings_are_not_decoded_by_tritonclient(
    echo: tuple[Echo, GrpcClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decoder needs seconds for the million strings of a response of 4 MB."""
    _, client = echo
    monkeypatch.setattr("tritonclient.grpc._infer_result.deserialize_bytes_tensor", Mock(side_effect=AssertionError))
    strings = np.array([[b"", b"a"]] * 1000, object)
    assert (client.infer("m", 1, [WireTensor("x", "BYTES", strings)])["x"] == strings).all()


def test_number_of_outputs_has_a_limit(echo: tuple[Echo, GrpcClient]) -> None:
    """A response has room for hundreds of thousands."""
    _, client = echo
    inputs = [WireTensor(str(number), "BOOL", np.zeros(1, np.bool_)) for number in range(5000)]
    with pytest.raises(RefusedError, match="has 5000 outputs"):
        client.infer("m", 1, inputs)
