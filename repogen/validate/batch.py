"""Measures whether a model can be batched: Triton joins requests along axis 0, and splits the outputs along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from repogen.artifacts.built_model import BatchReport
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ConfigError, RepogenError
from repogen.validate.compare import Tolerances, difference, not_finite

if TYPE_CHECKING:
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.compare import Comparison

Outputs: TypeAlias = "dict[str, Array]"

_SIZES = (1, 2, 3, 5)
_SEEDS = 20
_MAX_SAMPLED_ROWS = 8
"""Rows of a large batch that are also computed alone."""
_AMPLIFICATION = 10.0
"""Factor of the second round of inputs: some models mix rows only when values are large."""


def check_batch(comparison: Comparison, requested: int | Literal["auto"], seed: int) -> BatchReport:
    """Measure max_batch_size: the requested one if the model can be batched; 0 for ``auto`` if it cannot.

    Args:
        comparison: The original and the published model, which are both measured.
        requested: ``triton.max_batch_size`` of the spec.
        seed: Seed of the inputs.

    Raises:
        ConfigError: max_batch_size is above 0, and the model cannot be batched, or not by that much (exit 5).
    """
    if requested == 0:
        return BatchReport(batchable=False, max_batch_size=0, reason="the spec sets max_batch_size: 0")
    source = comparison.source
    dim = source.signature.batch_dim
    limit = source.dims[dim].max if dim else 0
    reason = _unsuitable_reason(source, dim) or _row_dependence(
        comparison, limit if requested == "auto" else requested, seed
    )
    if reason and requested == "auto":
        return BatchReport(batchable=False, max_batch_size=0, reason=reason)
    if reason:
        raise ConfigError(
            f"max_batch_size is {requested}, but the model cannot be batched: {reason}",
            "set max_batch_size: 0 (or auto) and remove dynamic_batching, or make the model compute each row "
            "independently",
            code="config.not-batchable",
        )
    if requested != "auto" and requested > limit:
        raise ConfigError(
            f"max_batch_size is {requested}, but dim {dim!r} is verified up to {limit} only",
            f"raise dims.{dim}.max to {requested}, or lower max_batch_size",
            code="config.batch-above-dim",
        )
    return BatchReport(batchable=True, max_batch_size=limit if requested == "auto" else requested)


def _unsuitable_reason(source: SourceModel, dim: str | None) -> str:
    """Return why the declared inputs cannot have a batch on axis 0; empty if they can."""
    if dim is None:
        return "axis 0 of its inputs is not one shared dynamic dim"
    if (low := source.dims[dim].min) > 1:
        return f"dim {dim!r} has a minimum of {low}, and Triton also sends batches of 1"
    for spec in source.signature.inputs:
        if dim in spec.shape[1:]:
            return f"dim {dim!r} is also another axis of input {spec.name!r}, and Triton batches along axis 0 only"
    return ""


def _row_dependence(comparison: Comparison, requested: int, seed: int) -> str:
    """Return how rows depend on each other, up to a batch of ``requested``; empty if they are independent."""
    source = comparison.source
    dim = source.signature.batch_dim or ""
    limit = source.dims[dim].max
    sizes = [size for size in _SIZES if size <= limit]
    inputs = _inputs_with_different_rows(source, dim, sizes[-1], seed)
    if inputs is None:
        return "all rows of its example inputs are equal, so batching cannot be verified"
    # A model may mix rows only in large batches, such as a mixture of experts with a fixed capacity.
    largest = min(requested, limit)
    batches = [
        source.examples({**source.example_sizes, dim: size}, seed)
        for size in (largest // 2, largest)
        if size > sizes[-1]
    ]
    code = source.origin if isinstance(source.origin, PassThroughSource) else None
    names = (code.original, code.served) if code else ("PyTorch", "ONNX Runtime")
    for model, name in zip((source.reference, comparison.published), names, strict=True):
        rows = _RowComparison(model, comparison.tolerances)
        reason = rows.in_small_batches(inputs, sizes) or rows.amplified(inputs)
        for batch in batches:
            reason = reason or rows.in_large_batch(batch)
        if reason:
            return f"{reason} ({name})"
    return ""


def _inputs_with_different_rows(source: SourceModel, dim: str, size: int, seed: int) -> Outputs | None:
    """Return a batch whose first two rows differ, from the first seed that gives one; None if none does."""
    for attempt in range(seed, seed + _SEEDS):
        inputs = source.examples({**source.example_sizes, dim: size}, attempt)
        if any(not np.array_equal(array[:1], array[1:2]) for array in inputs.values()):
            return inputs
    return None


class _RowComparison:
    """Compares rows in a batch with the same rows alone and in another order.

    Each method returns how the rows depend on each other; empty if they are independent.
    """

    def __init__(self, model: Reference, tolerances: Tolerances) -> None:
        self._model = model
        self._tolerances = tolerances

    def in_small_batches(self, inputs: Arrays, sizes: list[int]) -> str:
        """Compare the first rows, in batches of several sizes."""
        single_outputs: list[Outputs] = []
        for size in sizes:
            try:
                reason = self._in_batch(_rows(inputs, slice(size)), single_outputs)
            except RepogenError as error:
                reason = f"a batch of {size} fails: {error.message}"
            if reason:
                return reason
        reversed_batch = self._model(_rows(inputs, slice(None, None, -1)))
        reason = self._difference(_join(single_outputs[::-1]), reversed_batch)
        return f"rows give other outputs in another order: {reason}" if reason else ""

    def _in_batch(self, inputs: Arrays, single_outputs: list[Outputs]) -> str:
        """Compare one batch; ``alone`` has the outputs of its first rows, and is extended by those of the others."""
        size = _length(inputs)
        batch = self._model(inputs)
        for name, array in batch.items():
            if array.ndim == 0 or array.shape[0] != size:
                return f"output {name!r} has shape {list(array.shape)} for a batch of {size}: axis 0 is not the batch"
        single_outputs += [self._model(_rows(inputs, slice(i, i + 1))) for i in range(len(single_outputs), size)]
        for name, array in batch.items():
            if any(row[name].shape != (1, *array.shape[1:]) for row in single_outputs):
                return f"output {name!r} has another shape for one row than in a batch of {size}"
        reason = self._difference(_join(single_outputs), batch)
        return f"a row gives another output alone than in a batch of {size}: {reason}" if reason else ""

    def amplified(self, inputs: Arrays) -> str:
        """Compare rows with larger values; a model that cannot compute with them passes."""
        floats = {name for name, array in inputs.items() if array.dtype.kind == "f"}
        large = {
            name: np.multiply(array, _AMPLIFICATION, dtype=array.dtype) if name in floats else array
            for name, array in inputs.items()
        }
        tolerances = {name: (rtol, atol * _AMPLIFICATION) for name, (rtol, atol) in self._tolerances.items()}
        try:
            if not floats or not_finite(self._model(large)):
                return ""
            return _RowComparison(self._model, tolerances).in_large_batch(large)
        except RepogenError:  # the model does not support such values
            return ""

    def in_large_batch(self, inputs: Arrays) -> str:
        """Compare a sample of the rows of one batch."""
        size = _length(inputs)
        sample = sorted({round(i * (size - 1) / (_MAX_SAMPLED_ROWS - 1)) for i in range(_MAX_SAMPLED_ROWS)})
        try:
            batch, reversed_batch = self._model(inputs), self._model(_rows(inputs, slice(None, None, -1)))
            single_outputs = [self._model(_rows(inputs, slice(i, i + 1))) for i in sample]
        except RepogenError as error:
            return f"a batch of {size} fails: {error.message}"
        if reason := self._difference(_join(single_outputs), {name: array[sample] for name, array in batch.items()}):
            return f"a row gives another output alone than in a batch of {size}: {reason}"
        reason = self._difference(batch, {name: array[::-1] for name, array in reversed_batch.items()})
        return f"rows give other outputs in another order in a batch of {size}: {reason}" if reason else ""

    def _difference(self, expected: Arrays, actual: Arrays) -> str:
        return difference(expected, actual, self._tolerances).reason


def _rows(inputs: Arrays, selection: slice) -> Outputs:
    return {name: np.ascontiguousarray(array[selection]) for name, array in inputs.items()}


def _join(rows: list[Outputs]) -> Outputs:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _length(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))
