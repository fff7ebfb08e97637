"""The client interface of smoke tests, without gRPC: tests implement it with a simulated server."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np
from tritonclient.utils import triton_to_np_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.tensors import Array, Arrays


class RefusedError(Exception):
    """The server rejected a request.

    Attributes:
        status: gRPC status, for example ``INVALID_ARGUMENT``.
        message: The server's message.
    """

    def __init__(self, status: str, message: str) -> None:
        """Store both parts."""
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class NoResponseError(Exception):
    """The server did not respond: the connection failed, or the request timed out."""


@dataclass(frozen=True)
class WireTensor:
    """An input as it is sent; ``dtype`` is the inference protocol's name, and ``array`` has the shape on the wire."""

    name: str
    dtype: str
    array: Array


_LENGTH = struct.Struct("<I")


def from_wire(content: bytes, dtype: str) -> Array:
    """Return the elements of a tensor that a server sent, in one dimension; BF16 values as float32.

    tritonclient's decoder of strings needs more than a microsecond for each, and a response can have a million.

    Args:
        content: Bytes of the tensor; each string is preceded by its length in four bytes.
        dtype: The inference protocol's name.

    Raises:
        ValueError: The protocol has no such type, or the bytes are not elements of it.
    """
    if dtype == "BYTES":
        return np.array(_strings(content), object)
    if dtype == "BF16":
        return (np.frombuffer(content, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if (numpy_dtype := triton_to_np_dtype(dtype)) is None:
        raise ValueError(f"data type {dtype!r:.60} is unknown")
    return np.frombuffer(content, numpy_dtype)


def add_output(outputs: dict[str, Array], name: str, elements: Array, shape: Sequence[int]) -> None:
    """Add an output of a response to those before it, in its shape.

    Raises:
        ValueError: The shape has a negative dim, or is not that of the elements, or the response has the output twice.
    """
    if name in outputs:
        raise ValueError(f"output {name!r:.60} is in the response twice")
    if any(dim < 0 for dim in shape):  # NumPy would derive a dim of -1
        raise ValueError(f"output {name!r:.60} has a negative dim")
    outputs[name] = elements.reshape(tuple(shape))


def _strings(content: bytes) -> list[bytes]:
    strings, end, size = [], 0, len(content)
    while end < size:
        start = end + _LENGTH.size
        if start > size or (end := start + _LENGTH.unpack_from(content, end)[0]) > size:
            raise ValueError("a string is longer than what follows it")
        strings.append(content[start:end])
    return strings


@dataclass(frozen=True)
class SequencePosition:
    """The position of a request in a sequence.

    Attributes:
        sequence_id: ID of the sequence; not 0.
        start: Whether the request is the first of its sequence.
        end: Whether it is the last.
    """

    sequence_id: int
    start: bool
    end: bool


_SEQUENCE_IDS = count(2**20)  # golden rows may contain small IDs of their own


def next_sequence_id() -> int:
    """Return a sequence ID that was not used before."""
    return next(_SEQUENCE_IDS)


def single_request() -> SequencePosition:
    """Return the position of a request that is a sequence by itself."""
    return SequencePosition(next_sequence_id(), start=True, end=True)


@dataclass(frozen=True)
class TensorMetadata:
    """A tensor as the server describes it: full shape, -1 for a dynamic dim."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """A model as the server describes it; tensors by name."""

    versions: tuple[str, ...]
    inputs: dict[str, TensorMetadata]
    outputs: dict[str, TensorMetadata]


@dataclass(frozen=True)
class IndexEntry:
    """A line of the server's index of its repository.

    Attributes:
        name: The model.
        version: Its version; None for a model that was never loaded.
        state: ``READY``, ``LOADING``, ``UNLOADING``, ``UNAVAILABLE``, or empty.
        reason: Why it is unavailable; ``unloaded`` for a version that was unloaded.
    """

    name: str
    version: int | None
    state: str
    reason: str


@dataclass(frozen=True)
class Counts:
    """The server's statistics of a version since it was loaded: inferred rows, and executions of the model."""

    inferences: int
    executions: int


@dataclass(frozen=True)
class Limits:
    """Limits of one model's smoke test; the report lists the checks that a limit skips.

    Attributes:
        request_seconds: Timeout of one inference; the largest batch of a slow model must finish in it.
        load_seconds: Timeout of loading, weights of many GB included.
        unload_seconds: Timeout of unloading.
        request_bytes: Largest size of the inputs of one request, and of one burst.
        response_bytes: Largest size of the outputs of one batch; the expected outputs need the same memory.
        batches_seconds: Time for all batch sizes together.
        bursts: Numbers of concurrent requests that test dynamic batching.
        latency_requests: Largest number of requests that measure latency.
        latency_seconds: Time for these requests.
    """

    request_seconds: float = 120.0
    load_seconds: float = 600.0
    unload_seconds: float = 60.0
    request_bytes: int = 128 * 2**20
    response_bytes: int = 512 * 2**20
    batches_seconds: float = 20.0
    bursts: tuple[int, ...] = (8, 16, 32, 64, 128)
    latency_requests: int = 30
    latency_seconds: float = 2.0


class InferenceClient(Protocol):
    """A client of one server; every method except ``live`` raises RefusedError or NoResponseError."""

    def live(self) -> bool:
        """Return whether the server responds."""

    def ready(self, model: str, version: int) -> bool:
        """Return whether the server serves this version."""

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Return names, dtypes and shapes."""

    def config(self, model: str, version: int) -> ModelConfig:
        """Return the config that the server uses, with its defaults."""

    def counts(self, model: str, version: int) -> Counts:
        """Return the statistics of the version."""

    def infer(
        self,
        model: str,
        version: int,
        inputs: Sequence[WireTensor],
        position: SequencePosition | None = None,
        max_bytes: int | None = None,
    ) -> Arrays:
        """Return the outputs by name, in their shapes on the wire.

        Args:
            model: Name on the server.
            version: Version number on the server.
            inputs: The request.
            position: Its position in a sequence; None outside of sequences.
            max_bytes: How large the response may be, rounded up to a power of two; None for the limit of the protocol.
        """

    def burst(
        self,
        model: str,
        version: int,
        requests: Sequence[Sequence[WireTensor]],
        positions: Sequence[SequencePosition] = (),
        max_bytes: int | None = None,
    ) -> list[Arrays]:
        """Send all requests at once; return their outputs in the order of the requests; see ``infer``."""

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Load a model.

        Args:
            model: Its name.
            config: A config in JSON that replaces the repository's; None for the repository's own.
            files: Bytes that replace the repository's files, by path in the model directory.
        """

    def unload(self, model: str) -> None:
        """Unload a model and wait until the server has unloaded it."""
