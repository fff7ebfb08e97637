"""A served version as a function from arrays to arrays by name, in the model's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES, Array, Arrays, Signature, TensorSpec
from repogen.smoke.inference import InferenceClient, WireTensor, single_request
from repogen.triton_config.text.dims import wire_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
    """

    grpc: str
    model: str
    version: int
    max_batch_size: int
    signature: Signature
    sequences: bool = False


class Predictor:
    """Calls a served version; inputs with more rows than its largest batch become several requests.

    Args:
        client: A connection to its server.
        address: The version.
    """

    def __init__(self, client: InferenceClient, address: Address) -> None:
        """Store both."""
        self._client = client
        self._address = address

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for ``inputs``.

        Args:
            inputs: Every input by name, with its dtype and full shape, the batch included; float32 for BF16.

        Returns:
            Every output by name, with its full shape.

        Raises:
            ValueError: An input is missing, unknown, or has another dtype or rank; or the numbers of rows differ.
            RefusedError: The server rejected it, for example because of its shape.
            NoAnswerError: The server does not respond.
        """
        arrays = {spec.name: self._check(spec, inputs) for spec in self._address.signature.inputs}
        if unknown := sorted(set(inputs) - set(arrays)):
            raise ValueError(f"unknown input {', '.join(unknown)}; the model accepts {', '.join(arrays)}")
        results = [self._infer(part) for part in self._parts(arrays)]
        if len(results) == 1:
            return results[0]
        return {name: np.concatenate([outputs[name] for outputs in results]) for name in results[0]}

    def _check(self, spec: TensorSpec, inputs: Arrays) -> Array:
        if spec.name not in inputs:
            raise ValueError(f"input {spec.name} is missing")
        array = np.asarray(inputs[spec.name])
        if array.dtype != np.dtype(DTYPES[spec.dtype].numpy):
            raise ValueError(f"input {spec.name} is {array.dtype}, the model accepts {spec.dtype}")
        if array.ndim != len(spec.shape):
            raise ValueError(f"input {spec.name} has shape {array.shape}, the model accepts {list(spec.shape)}")
        return array

    def _parts(self, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield requests of at most ``max_batch_size`` rows."""
        largest = self._address.max_batch_size
        if largest == 0:
            yield dict(arrays)
            return
        rows = {len(array) for array in arrays.values()}
        if len(rows) != 1 or 0 in rows:
            raise ValueError(
                f"every input must have the same number of rows, at least one; the inputs have {sorted(rows)}"
            )
        for start in range(0, rows.pop(), largest):
            yield {name: array[start : start + largest] for name, array in arrays.items()}

    def _infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        batched = self._address.max_batch_size > 0
        signature = self._address.signature
        tensors = [
            WireTensor(spec.name, DTYPES[spec.dtype].wire, wire_array(arrays[spec.name], batched=batched))
            for spec in signature.inputs
        ]
        position = single_request() if self._address.sequences else None
        outputs = self._client.infer(self._address.model, self._address.version, tensors, position)
        return {spec.name: _model_shape(outputs[spec.name], spec) for spec in signature.outputs if spec.name in outputs}


def _model_shape(array: Array, spec: TensorSpec) -> Array:
    """Undo ``wire_array``, which adds a dim since Triton requires at least one dim after the batch."""
    rank = len(spec.shape)
    return array.reshape(array.shape[:rank]) if array.ndim == rank + 1 and array.shape[-1] == 1 else array
