"""The InferenceClient that speaks gRPC, through tritonclient."""

from __future__ import annotations

import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from repogen.smoke.inference import Counts, ModelMetadata, NoAnswerError, RefusedError, TensorMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tritonclient.grpc import InferInput, InferResult
    from tritonclient.grpc.model_config_pb2 import ModelConfig
    from tritonclient.grpc.service_pb2 import ModelMetadataResponse
    from tritonclient.utils import InferenceServerException

    from repogen.artifacts.tensors import Arrays
    from repogen.smoke.inference import Turn, WireTensor
    from repogen.smoke.limits import Limits

_PROBE_SECONDS = 10.0
_LOST = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
_INT32_MAX = 2**31 - 1


class GrpcClient:
    """One connection; use it from one thread, as tritonclient asks."""

    def __init__(self, address: str, limits: Limits) -> None:
        """Connect to ``host:port`` when the first request is made."""
        from tritonclient.grpc import InferenceServerClient  # noqa: PLC0415 - gRPC is heavy, `repogen --help` is not

        options = [
            ("grpc.max_send_message_length", _INT32_MAX),
            ("grpc.max_receive_message_length", _INT32_MAX),
            # a proxy set for the company's network must not be asked for a server on this machine
            ("grpc.enable_http_proxy", 0 if address.startswith(("127.", "localhost:", "[::1]")) else 1),
        ]
        self._client = InferenceServerClient(address, channel_args=options)
        self._limits = limits

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._client.close()

    def live(self) -> bool:
        """Whether the server answers at all."""
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415 - as above

        try:
            return bool(self._client.is_server_live(client_timeout=_PROBE_SECONDS))
        except InferenceServerException:
            return False

    def ready(self, model: str, version: int) -> bool:
        """Whether it serves this version."""
        with self._answers():
            return bool(self._client.is_model_ready(model, str(version), client_timeout=_PROBE_SECONDS))

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Names, dtypes and shapes."""
        with self._answers():
            answer = self._client.get_model_metadata(model, str(version), client_timeout=self._limits.request_seconds)
        return ModelMetadata(tuple(answer.versions), _tensors(answer.inputs), _tensors(answer.outputs))

    def config(self, model: str, version: int) -> ModelConfig:
        """The config that the server works by, its defaults filled in."""
        with self._answers():
            answer = self._client.get_model_config(model, str(version), client_timeout=self._limits.request_seconds)
        return answer.config

    def counts(self, model: str, version: int) -> Counts:
        """Statistics of the version."""
        with self._answers():
            answer = self._client.get_inference_statistics(
                model, str(version), client_timeout=self._limits.request_seconds
            )
        stats = answer.model_stats
        return Counts(sum(s.inference_count for s in stats), sum(s.execution_count for s in stats))

    def infer(self, model: str, version: int, inputs: Sequence[WireTensor], turn: Turn | None = None) -> Arrays:
        """Outputs by name, in the shapes of the wire."""
        seconds = self._limits.request_seconds
        with self._answers():
            result = self._client.infer(model, _sent(inputs), str(version), client_timeout=seconds, **_place(turn))
        return _received(result)

    def burst(
        self, model: str, version: int, requests: Sequence[Sequence[WireTensor]], turns: Sequence[Turn] = ()
    ) -> list[Arrays]:
        """All requests at once, each at its turn where there are some; their outputs in the requests' order."""
        sent = [_sent(inputs) for inputs in requests]
        gathered = _Gathered(len(sent))
        with self._answers():
            for index, inputs in enumerate(sent):
                self._client.async_infer(
                    model,
                    inputs,
                    gathered.callback(index),
                    str(version),
                    client_timeout=self._limits.request_seconds,
                    **_place(turns[index] if turns else None),
                )
            return [_received(result) for result in gathered.results(self._limits.request_seconds)]

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Load a model, from the server's repository or from ``files`` (version path -> bytes), with a JSON config."""
        content = {f"file:{path}": data for path, data in files.items()} or None
        with self._answers():
            self._client.load_model(model, config=config, files=content, client_timeout=self._limits.load_seconds)

    def unload(self, model: str) -> None:
        """Unload a model, and wait until it is gone: Triton only begins to unload when asked."""
        with self._answers():
            self._client.unload_model(model, client_timeout=self._limits.request_seconds)
            until = time.monotonic() + self._limits.unload_seconds
            while self._holds(model):
                if time.monotonic() > until:
                    raise NoAnswerError(f"{model} was still loaded {self._limits.unload_seconds:g} s after unloading")
                time.sleep(0.02)

    def _holds(self, model: str) -> bool:
        index = self._client.get_model_repository_index(client_timeout=_PROBE_SECONDS)
        return any(entry.name == model and entry.state in {"READY", "LOADING", "UNLOADING"} for entry in index.models)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Tell a server that says no from one that says nothing: Triton itself also says UNAVAILABLE."""
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415 - as above

        try:
            yield
        except InferenceServerException as error:
            status, message = _status(error), str(error.message() or "").strip()
            if status == "DEADLINE_EXCEEDED" or (status in _LOST and not self.live()):
                raise NoAnswerError(f"{status}: {message}") from error
            raise RefusedError(status, message) from error


class _Gathered:
    """The answers of a burst, which arrive on gRPC's threads."""

    def __init__(self, expected: int) -> None:
        self._results: dict[int, InferResult] = {}
        self._errors: list[InferenceServerException] = []
        self._expected = expected
        self._arrived = threading.Condition()

    def callback(self, index: int) -> _Callback:
        return _Callback(self, index)

    def put(self, index: int, result: InferResult | None, error: InferenceServerException | None) -> None:
        with self._arrived:
            if error is not None:
                self._errors.append(error)
            else:
                self._results[index] = result
            self._arrived.notify()

    def results(self, seconds: float) -> list[InferResult]:
        """Return the answers in order, or raise the first error; requests time out by themselves."""
        with self._arrived:
            complete = self._arrived.wait_for(
                lambda: len(self._results) + len(self._errors) == self._expected, timeout=seconds + _PROBE_SECONDS
            )
            if self._errors:
                raise self._errors[0]
            if not complete:
                raise NoAnswerError(f"{self._expected - len(self._results)} requests of a burst got no answer")
            return [self._results[index] for index in range(self._expected)]


class _Callback:
    """tritonclient calls this with ``result=`` and ``error=``."""

    def __init__(self, gathered: _Gathered, index: int) -> None:
        self._gathered = gathered
        self._index = index

    def __call__(self, result: InferResult | None, error: InferenceServerException | None) -> None:
        self._gathered.put(self._index, result, error)


def _status(error: InferenceServerException) -> str:
    return str(error.status() or "UNKNOWN").removeprefix("StatusCode.")


def _sent(inputs: Sequence[WireTensor]) -> list[InferInput]:
    from tritonclient.grpc import InferInput as Input  # noqa: PLC0415 - as above

    sent = []
    for tensor in inputs:
        item = Input(tensor.name, list(tensor.array.shape), tensor.dtype)
        item.set_data_from_numpy(tensor.array)
        sent.append(item)
    return sent


def _place(turn: Turn | None) -> dict[str, int | bool]:
    if turn is None:
        return {}
    return {"sequence_id": turn.number, "sequence_start": turn.start, "sequence_end": turn.end}


def _received(result: InferResult) -> Arrays:
    try:
        arrays = {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
    except (ValueError, struct.error) as error:
        raise RefusedError(
            "INVALID_ANSWER", f"the answer's bytes do not fit its shape: {error} (a Python backend with NumPy 2?)"
        ) from error
    return {name: array for name, array in arrays.items() if array is not None}


def _tensors(tensors: Iterable[ModelMetadataResponse.TensorMetadata]) -> dict[str, TensorMetadata]:
    return {tensor.name: TensorMetadata(tensor.datatype, tuple(tensor.shape)) for tensor in tensors}
