"""A served version as a function: arrays by name in, arrays by name out, in the model's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES, Array, Arrays, Signature, TensorSpec
from repogen.smoke.inference import InferenceClient, WireTensor
from repogen.smoke.sequences import alone
from repogen.triton_config.text.dims import wire_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Address:
    """Where a version is served, and what it takes and gives; another process can be told so as JSON.

    Attributes:
        grpc: ``host:port``.
        model: Name on the server.
        version: Version number on the server.
        max_batch_size: Rows of a request; 0 when the model does not batch.
        signature: Full shapes, the batch included.
        sequences: Whether it serves sequences; each request is then one of its own.
    """

    grpc: str
    model: str
    version: int
    max_batch_size: int
    signature: Signature
    sequences: bool = False


class Predictor:
    """Asks a served version; more rows than it batches become several requests.

    Args:
        client: A connection to its server.
        address: The version.
    """

    def __init__(self, client: InferenceClient, address: Address) -> None:
        """Keep both."""
        self._client = client
        self._address = address

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for ``inputs``.

        Args:
            inputs: Every input by name, in its dtype and its own shape, the batch included.

        Returns:
            Every output by name, in its own shape.

        Raises:
            ValueError: An input is missing, unknown, or of another dtype; or batches differ.
            RefusedError: The server refused it, for example because of its shape.
            NoAnswerError: The server does not answer.
        """
        import numpy as np  # noqa: PLC0415 - the room's import stays light

        arrays = {spec.name: self._checked(spec, inputs) for spec in self._address.signature.inputs}
        if unknown := sorted(set(inputs) - set(arrays)):
            raise ValueError(f"there is no input {', '.join(unknown)}; the model takes {', '.join(arrays)}")
        answers = [self._ask(part) for part in self._parts(arrays)]
        if len(answers) == 1:
            return answers[0]
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}

    def _checked(self, spec: TensorSpec, inputs: Arrays) -> Array:
        import numpy as np  # noqa: PLC0415 - as above

        if spec.name not in inputs:
            raise ValueError(f"the input {spec.name} is missing")
        array = np.asarray(inputs[spec.name])
        if array.dtype != np.dtype(spec.dtype):
            raise ValueError(f"the input {spec.name} is {array.dtype}, the model takes {spec.dtype}")
        if array.ndim != len(spec.shape):
            raise ValueError(f"the input {spec.name} has the shape {array.shape}, the model takes {list(spec.shape)}")
        return array

    def _parts(self, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield requests of at most ``max_batch_size`` rows."""
        largest = self._address.max_batch_size
        if largest == 0:
            yield dict(arrays)
            return
        rows = {len(array) for array in arrays.values()}
        if len(rows) != 1 or 0 in rows:
            raise ValueError(f"every input needs the same number of rows, at least one; these have {sorted(rows)}")
        for start in range(0, rows.pop(), largest):
            yield {name: array[start : start + largest] for name, array in arrays.items()}

    def _ask(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        batched = self._address.max_batch_size > 0
        signature = self._address.signature
        sent = [
            WireTensor(spec.name, DTYPES[spec.dtype].wire, wire_array(arrays[spec.name], batched=batched))
            for spec in signature.inputs
        ]
        turn = alone() if self._address.sequences else None
        got = self._client.infer(self._address.model, self._address.version, sent, turn)
        return {spec.name: _own_shape(got[spec.name], spec) for spec in signature.outputs if spec.name in got}


def _own_shape(array: Array, spec: TensorSpec) -> Array:
    """Undo what ``wire_array`` does: Triton wants at least one dim beside the batch."""
    rank = len(spec.shape)
    return array.reshape(array.shape[:rank]) if array.ndim == rank + 1 and array.shape[-1] == 1 else array
