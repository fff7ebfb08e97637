"""A served version as a function from arrays to arrays by name, in the model's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES, Array, Arrays, Signature, TensorSpec
from repogen.serving.connection import MAX_MESSAGE_BYTES
from repogen.smoke.deployed_model import wire_bytes
from repogen.smoke.inference import InferenceClient, WireTensor, single_request
from repogen.triton_config.text.dims import wire_array
from repogen.validate.predict import Predict

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGE_RESPONSE = 2**28
"""Bytes of a response that is always accepted."""


@dataclass(frozen=True)
class Address:
    """The address and signature of a served version; can be passed to another process as JSON.

    Attributes:
        grpc: ``host:port``.
        model: Name on the server.
        version: Version number on the server.
        max_batch_size: Largest number of rows in a request; 0 when the model does not batch.
        signature: Full shapes, the batch included.
        sequences: Whether the model serves sequences; each request is then a sequence by itself.
        golden_bytes: Bytes of the inputs, and of the outputs, of one row of the golden cases.
    """

    grpc: str
    model: str
    version: int
    max_batch_size: int
    signature: Signature
    sequences: bool = False
    golden_bytes: tuple[int, int] = (0, 0)

    def response_limit(self, inputs: Sequence[WireTensor]) -> int:
        """Return how many bytes the response to a request of user code may have.

        Rows may be larger than those of the golden cases, such as longer texts. Outputs then grow at most with the
        square of the inputs, such as the scores of each pair of words.
        """
        rows = max((len(tensor.array) for tensor in inputs), default=1) if self.max_batch_size > 0 else 1
        golden_inputs, golden_outputs = self.golden_bytes
        size = sum(wire_bytes(tensor.array) for tensor in inputs) / max(rows, 1)
        growth = max(1.0, size / max(golden_inputs, 1)) ** 2
        return min(max(_LARGE_RESPONSE, int(2 * rows * golden_outputs * growth)), MAX_MESSAGE_BYTES)


class _Served:
    """Sends requests to a served version.

    Args:
        client: A connection to its server.
        address: The version.
    """

    def __init__(self, client: InferenceClient, address: Address) -> None:
        """Store both."""
        self._client = client
        self._address = address

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs of one request.

        Raises:
            RefusedError: The server rejected it, for example because of its shape.
            NoResponseError: The server does not respond.
        """
        batched = self._address.max_batch_size > 0
        signature = self._address.signature
        tensors = [
            WireTensor(spec.name, DTYPES[spec.dtype].wire, wire_array(inputs[spec.name], batched=batched))
            for spec in signature.inputs
        ]
        position = single_request() if self._address.sequences else None
        limit = self._address.response_limit(tensors)
        outputs = self._client.infer(self._address.model, self._address.version, tensors, position, limit)
        return {spec.name: _model_shape(outputs[spec.name], spec) for spec in signature.outputs if spec.name in outputs}


def predictor(client: InferenceClient, address: Address) -> Predict:
    """Return a served version as the function that user code calls."""
    return Predict(address.signature, address.max_batch_size, _Served(client, address))


def _model_shape(array: Array, spec: TensorSpec) -> Array:
    """Undo ``wire_array``, which adds a dim since Triton requires at least one dim after the batch."""
    rank = len(spec.shape)
    return array.reshape(array.shape[:rank]) if array.ndim == rank + 1 and array.shape[-1] == 1 else array
