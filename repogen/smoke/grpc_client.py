"""The InferenceClient for gRPC, based on tritonclient."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Self

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.serving.connection import MAX_MESSAGE_BYTES, MAX_RESPONSE_BYTES, excerpt, open_client
from repogen.smoke.inference import (
    Counts,
    IndexEntry,
    ModelMetadata,
    NoResponseError,
    RefusedError,
    TensorMetadata,
    add_output,
    from_wire,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tritonclient.grpc import InferenceServerClient, InferResult
    from tritonclient.grpc.model_config_pb2 import ModelConfig
    from tritonclient.grpc.service_pb2 import ModelInferResponse, ModelMetadataResponse

    from repogen.artifacts.serving import ControlHeader, Credentials, Endpoint
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.smoke.inference import Limits, SequencePosition, WireTensor

_PROBE_SECONDS = 10.0
_MAX_OUTPUTS = 4096
_MAX_VERSION = 2**63 - 1
_TOO_LARGE = "Received message larger than max"
"""gRPC's message; it names the side that received the message."""
_CONNECTION_ERRORS = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})


class GrpcClient:
    """One connection; like tritonclient's, it must be used from one thread."""

    def __init__(
        self,
        address: str,
        limits: Limits,
        control: ControlHeader | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """Create the client; it connects to ``host:port`` or ``unix:PATH`` with the first request."""
        self._open = partial(open_client, address, credentials)
        self._client = self._open()
        self._tensor_clients = {MAX_RESPONSE_BYTES: self._client}
        self._limits = limits
        self._control = None if control is None else control.grpc

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        for client in self._tensor_clients.values():
            client.close()

    def live(self) -> bool:
        """Return whether the server responds."""
        try:
            return bool(self._client.is_server_live(client_timeout=_PROBE_SECONDS))
        except InferenceServerException:
            return False

    def ready(self, model: str, version: int) -> bool:
        """Return whether the server serves this version."""
        with self._translated_errors():
            return bool(self._client.is_model_ready(model, str(version), client_timeout=_PROBE_SECONDS))

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Return names, dtypes and shapes."""
        with self._translated_errors():
            response = self._client.get_model_metadata(model, str(version), client_timeout=_PROBE_SECONDS)
        return ModelMetadata(tuple(response.versions), _tensors(response.inputs), _tensors(response.outputs))

    def config(self, model: str, version: int) -> ModelConfig:
        """Return the config that the server uses, with its defaults."""
        with self._translated_errors():
            response = self._client.get_model_config(model, str(version), client_timeout=_PROBE_SECONDS)
        return response.config

    def counts(self, model: str, version: int) -> Counts:
        """Return the statistics of the version."""
        with self._translated_errors():
            response = self._client.get_inference_statistics(model, str(version), client_timeout=_PROBE_SECONDS)
        stats = response.model_stats
        return Counts(sum(s.inference_count for s in stats), sum(s.execution_count for s in stats))

    def infer(
        self,
        model: str,
        version: int,
        inputs: Sequence[WireTensor],
        position: SequencePosition | None = None,
        max_bytes: int | None = None,
    ) -> Arrays:
        """Return the outputs by name, in their shapes on the wire; see ``InferenceClient.infer``."""
        seconds = self._limits.request_seconds
        with self._translated_errors():
            result = self._tensor_client(max_bytes).infer(
                model, _infer_inputs(inputs), str(version), client_timeout=seconds, **_sequence_options(position)
            )
        return _outputs(result)

    def burst(
        self,
        model: str,
        version: int,
        requests: Sequence[Sequence[WireTensor]],
        positions: Sequence[SequencePosition] = (),
        max_bytes: int | None = None,
    ) -> list[Arrays]:
        """Send all requests at once; return their outputs in the order of the requests."""
        client, seconds = self._tensor_client(max_bytes), self._limits.request_seconds

        def send(inputs: list[InferInput], position: SequencePosition | None) -> InferResult:
            return client.infer(model, inputs, str(version), client_timeout=seconds, **_sequence_options(position))

        prepared = [_infer_inputs(inputs) for inputs in requests]
        # async_infer of tritonclient would wait indefinitely for a response that gRPC cannot decode
        threads = ThreadPoolExecutor(len(prepared) or 1)
        try:
            sent = [threads.submit(send, *each) for each in zip_longest(prepared, positions)]
            with self._translated_errors():
                return [_outputs(each.result()) for each in sent]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Load a model from the server's repository, or from ``files`` (path in the model directory -> bytes)."""
        content = {f"file:{path}": data for path, data in files.items()} or None
        with self._translated_errors():
            self._client.load_model(
                model,
                config=config,
                files=content,
                headers=self._control,
                client_timeout=self._limits.load_seconds,
            )

    def unload(self, model: str) -> None:
        """Unload a model and wait, since Triton's response only means that it has started to unload."""
        with self._translated_errors():
            self._client.unload_model(model, headers=self._control, client_timeout=self._limits.request_seconds)
            deadline = time.monotonic() + self._limits.unload_seconds
            while self._is_loaded(model):
                if time.monotonic() > deadline:
                    raise NoResponseError(f"{model} was still loaded {self._limits.unload_seconds:g} s after unloading")
                time.sleep(0.02)

    def index(self) -> tuple[IndexEntry, ...]:
        """Return the models of the server's repository, with the state of each version that it loaded or tried to.

        A model that was never loaded has one entry, without a version.
        """
        with self._translated_errors():
            index = self._client.get_model_repository_index(headers=self._control, client_timeout=_PROBE_SECONDS)
        return tuple(
            IndexEntry(entry.name, _version(entry.version), entry.state, excerpt(entry.reason))
            for entry in index.models
        )

    def server_ready(self) -> bool:
        """Return whether the server reports that it is ready."""
        with self._translated_errors():
            return bool(self._client.is_server_ready(client_timeout=_PROBE_SECONDS))

    def _tensor_client(self, max_bytes: int | None) -> InferenceServerClient:
        """Return a connection for responses of a size; the limit is a power of two, so that there are few of them."""
        limit = MAX_MESSAGE_BYTES
        if max_bytes is not None:
            limit = min(max(2 ** (max_bytes - 1).bit_length(), MAX_RESPONSE_BYTES), MAX_MESSAGE_BYTES)
        if limit not in self._tensor_clients:
            self._tensor_clients[limit] = self._open(limit)
        return self._tensor_clients[limit]

    def _is_loaded(self, model: str) -> bool:
        return any(entry.name == model and entry.state in {"READY", "LOADING", "UNLOADING"} for entry in self.index())

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise NoResponseError or RefusedError; a live Triton also returns UNAVAILABLE."""
        try:
            yield
        except InferenceServerException as error:
            status, message = _status(error), excerpt(str(error.message() or ""))
            if status == "DEADLINE_EXCEEDED" or (status in _CONNECTION_ERRORS and not self.live()):
                raise NoResponseError(f"{status}: {message}") from error
            if _TOO_LARGE in message and "SERVER" not in message:
                message = f"the response is larger than what is expected: {message}"
            raise RefusedError(status, message) from error


def connect(endpoint: Endpoint, limits: Limits) -> GrpcClient:
    """Return a client of a server, with the header and the credentials that it requires."""
    return GrpcClient(endpoint.grpc, limits, endpoint.control, endpoint.credentials)


def _status(error: InferenceServerException) -> str:
    return str(error.status() or "UNKNOWN").removeprefix("StatusCode.")


def _infer_inputs(tensors: Sequence[WireTensor]) -> list[InferInput]:
    inputs = []
    for tensor in tensors:
        infer_input = InferInput(tensor.name, list(tensor.array.shape), tensor.dtype)
        bfloat16 = tensor.dtype == "BF16"  # ml_dtypes.bfloat16 since tritonclient 2.70, float32 before
        infer_input.set_data_from_numpy(tensor.array.astype(triton_to_np_dtype("BF16")) if bfloat16 else tensor.array)
        inputs.append(infer_input)
    return inputs


def _sequence_options(position: SequencePosition | None) -> dict[str, int | bool]:
    if position is None:
        return {}
    return {"sequence_id": position.sequence_id, "sequence_start": position.start, "sequence_end": position.end}


def _version(text: str) -> int | None:
    """Return the version of an entry of the index; None for a model that was never loaded.

    Raises:
        RefusedError: It is not a 64-bit number.
    """
    if not re.fullmatch(r"-?[0-9]{0,19}", text, re.ASCII) or text == "-" or abs(int(text or 0)) > _MAX_VERSION:
        raise RefusedError("INVALID_ANSWER", f"the server's index has the version {text[:60]!r}, which is not a number")
    return int(text) if text else None


def _outputs(result: InferResult) -> Arrays:
    """Return the outputs of a response; tritonclient's own decoder is slow for many outputs and many strings."""
    response = result.get_response()
    if len(response.outputs) > _MAX_OUTPUTS:
        raise RefusedError(
            "INVALID_ANSWER", f"the response has {len(response.outputs)} outputs; at most {_MAX_OUTPUTS} are read"
        )
    outputs: dict[str, Array] = {}
    try:
        for output, content in zip_longest(response.outputs, response.raw_output_contents):
            if output is not None:
                add_output(outputs, output.name, _elements(output, content), output.shape)
    except ValueError as error:
        raise RefusedError(
            "INVALID_ANSWER",
            f"the size of an output does not match its shape: {error} (a Python backend with NumPy 2?)",
        ) from error
    return outputs


def _elements(output: ModelInferResponse.InferOutputTensor, content: bytes | None) -> Array:
    """Return the elements of an output; Triton sends all as bytes, and other servers may send strings in a list."""
    if content is None and output.datatype == "BYTES":
        return np.array(list(output.contents.bytes_contents), object)
    return from_wire(content or b"", output.datatype)


def _tensors(tensors: Iterable[ModelMetadataResponse.TensorMetadata]) -> dict[str, TensorMetadata]:
    return {tensor.name: TensorMetadata(tensor.datatype, tuple(tensor.shape)) for tensor in tensors}
