"""A model as the function that user code calls: arrays by name to arrays by name, with any number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays, Signature, TensorSpec


@dataclass(frozen=True)
class Predict:
    """Calls a model; inputs with more rows than its largest batch become several calls.

    Attributes:
        signature: Inputs and outputs with full shapes.
        max_batch_size: Largest number of rows in a call; 0 if the model does not batch.
        model: The model.
    """

    signature: Signature
    max_batch_size: int
    model: Reference

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for ``inputs``.

        Args:
            inputs: Every input by name, with its dtype and full shape, the batch included; float32 for BF16.

        Returns:
            Every output by name, with its full shape.

        Raises:
            ValueError: An input is missing, unknown, or has another dtype or rank; or the numbers of rows differ.
            Exception: The model failed.
        """
        arrays = {spec.name: _checked(spec, inputs) for spec in self.signature.inputs}
        if unknown := sorted(set(inputs) - set(arrays)):
            raise ValueError(f"unknown input {', '.join(unknown)}; the model accepts {', '.join(arrays)}")
        results = [self.model(part) for part in self._parts(arrays)]
        if len(results) == 1:
            return results[0]
        return {name: np.concatenate([outputs[name] for outputs in results]) for name in results[0]}

    def _parts(self, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield inputs of at most ``max_batch_size`` rows."""
        largest = self.max_batch_size
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


def _checked(spec: TensorSpec, inputs: Arrays) -> Array:
    if spec.name not in inputs:
        raise ValueError(f"input {spec.name} is missing")
    array = np.asarray(inputs[spec.name])
    if array.dtype != np.dtype(DTYPES[spec.dtype].numpy):
        raise ValueError(f"input {spec.name} is {array.dtype}, the model accepts {spec.dtype}")
    if array.ndim != len(spec.shape):
        raise ValueError(f"input {spec.name} has shape {array.shape}, the model accepts {list(spec.shape)}")
    return array
