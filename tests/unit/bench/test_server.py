"""Servers that a benchmark measures."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped] # its stubs are a package of their own
import pytest
from tritonclient.grpc.service_pb2 import ServerLiveResponse, ServerMetadataResponse
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from repogen.artifacts.progress import Silent
from repogen.bench.server import ServerChoice, serve_model
from repogen.errors import BenchError
from repogen.smoke.inference import NoResponseError, RefusedError
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.scaled_models import Scaled, publish_scaled

if TYPE_CHECKING:
    from pathlib import Path


class Live(GRPCInferenceServiceServicer):  # type: ignore[misc] # tritonclient is not typed
    """A server without models."""

    def ServerLive(self, *_: object) -> ServerLiveResponse:  # noqa: N802 - gRPC's name
        """Return that it runs."""
        return ServerLiveResponse(live=True)

    def ServerMetadata(self, *_: object) -> ServerMetadataResponse:  # noqa: N802 - as above
        """Return its version."""
        return ServerMetadataResponse(name="triton", version="2.63.0")


@pytest.mark.parametrize("error", [RefusedError("INTERNAL", "invalid"), NoResponseError("no response")])
def test_errors_of_a_remote_server_are_reported(tmp_path: Path, error: Exception) -> None:
    """They are not bugs in repogen."""
    publish_scaled(tmp_path / "repository", "m", Scaled(1.0))
    server = grpc.server(ThreadPoolExecutor(1))
    add_GRPCInferenceServiceServicer_to_server(Live(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        choice = ServerChoice(address, targets()[DEFAULT_RELEASE], Silent())
        with pytest.raises(BenchError, match=f"does not serve m: {re.escape(str(error))}") as caught:  # noqa: SIM117 - one block
            with serve_model(choice, tmp_path / "repository" / "m"):
                raise error
        assert caught.value.code == "bench.not-served"
    finally:
        server.stop(None).wait()
