"""Measures whether a model can be batched: Triton joins requests along axis 0, and splits the outputs along it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from repogen.artifacts.built_model import BatchReport
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ConfigError
from repogen.validate.parity import original_name
from repogen.validate.rows import RowProbe, RowRecorder
from repogen.validate.runtime import accepts_nan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array
    from repogen.validate.compare import Comparison
    from repogen.validate.rows import RecordedBatch
    from repogen.validate.tolerance import Tolerances

Inputs: TypeAlias = "dict[str, Array]"

_SIZES = (1, 2, 3, 5)
_SEEDS = 20
_MAX_COLUMNS = 64
"""Features of a row that other rows may share separately."""

_EQUAL_ROWS = "all rows of its example inputs are equal, so batching cannot be verified"


def check_batch(
    comparison: Comparison,
    allowed: Tolerances,
    requested: int | Literal["auto"],
    seed: int,
    recorder: RowRecorder | None = None,
) -> BatchReport:
    """Measure max_batch_size: the requested one if the model can be batched; 0 for ``auto`` if it cannot.

    Args:
        comparison: The original and the published model, which are both measured.
        allowed: The tolerance of each output.
        requested: ``triton.max_batch_size`` of the spec.
        seed: Seed of the inputs.
        recorder: Recorded rows of the parity cases.

    Raises:
        ConfigError: max_batch_size is above 0, and the model cannot be batched, or not by that much (exit 5).
    """
    if requested == 0:
        return BatchReport(batchable=False, max_batch_size=0, reason="the spec sets max_batch_size: 0")
    source = comparison.source
    dim = source.signature.batch_dim
    limit = source.dims[dim].max if dim else 0
    unsuitable = _unsuitable_reason(source, dim)
    reason = unsuitable or _row_dependence(
        comparison, allowed, limit if requested == "auto" else requested, seed, recorder or RowRecorder(dim)
    )
    compared = not unsuitable and reason != _EQUAL_ROWS
    if reason and source.declare:  # a wrong guess of the values may be the only cause
        reason = f"{reason}; {source.declare}"
    if reason and requested == "auto":
        return BatchReport(batchable=False, max_batch_size=0, reason=reason, compared=compared)
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
        axes = ", ".join(
            f"{spec.name} {spec.shape[0] if spec.shape else 'has none'}" for spec in source.signature.inputs
        )
        return (
            f"axis 0 of its inputs is not one shared dynamic dim ({axes or 'it has no inputs'}); if it is the batch, "
            "declare the same dim there: inputs: {NAME: {shape: [batch, …]}}"
        )
    if (low := source.dims[dim].min) > 1:
        return f"dim {dim!r} has a minimum of {low}, and Triton also sends batches of 1"
    for spec in source.signature.inputs:
        if dim in spec.shape[1:]:
            return f"dim {dim!r} is also another axis of input {spec.name!r}, and Triton batches along axis 0 only"
    return ""


def _row_dependence(
    comparison: Comparison, allowed: Tolerances, requested: int, seed: int, recorder: RowRecorder
) -> str:
    """Return how rows depend on each other, up to a batch of ``requested``; empty if they are independent."""
    source = comparison.source
    dim = source.signature.batch_dim or ""
    limit = source.dims[dim].max
    inputs = _inputs_with_different_rows(source, dim, max(size for size in _SIZES if size <= limit), seed)
    if inputs is None:
        return _EQUAL_ROWS
    code = source.origin if isinstance(source.origin, PassThroughSource) else None
    names = (f"the {original_name(source)}", code.served if code else "ONNX Runtime")
    check = _RowCheck(comparison, allowed, dim, min(requested, limit), seed, inputs, recorder)
    for index, (model, name) in enumerate(zip((source.reference, comparison.published), names, strict=True)):
        if reason := next(filter(None, check.reasons(model, index)), ""):
            return f"{reason}; measured with {name}"
        if model is comparison.published:  # a lossy graph is compared with itself
            break
    return ""


@dataclass(frozen=True)
class _RowCheck:
    """What the rows of both models are compared on.

    Attributes:
        comparison: The models.
        allowed: The tolerance of each output.
        dim: The batch.
        largest: The largest batch to check.
        seed: Seed of the inputs.
        inputs: Some rows at the example sizes.
        recorder: Rows of the parity cases.
    """

    comparison: Comparison
    allowed: Tolerances
    dim: str
    largest: int
    seed: int
    inputs: Inputs
    recorder: RowRecorder

    def reasons(self, model: Reference, index: int) -> Iterator[str]:
        """Yield the result of each comparison: how rows depend on each other, or nothing.

        Args:
            model: The model.
            index: 0 for the original, 1 for the published model.
        """
        source = self.comparison.source
        rows = len(next(iter(self.inputs.values())))
        probe = self._probe(model, self.inputs)
        yield probe.in_small_batches([size for size in _SIZES if size <= rows])
        yield probe.with_varied_rows()
        large = self._recorded_batch(index, probe.varying) if self.largest > rows else None
        # Copies, like other large batches, are as good at small sizes of the other dims.
        batch_probe = probe if large is None else self._probe(model, large.inputs)
        yield batch_probe.with_copies()
        if not source.noise:  # scales of dynamic quantization depend on the other rows
            yield probe.with_other_rows()
            yield probe.with_shared_values(self._flat_inputs)
            if accepts_nan(self.comparison.published):
                yield probe.with_missing_values(self.seed)
        # A model may mix rows only in large batches, such as a mixture of experts with a fixed capacity.
        if large is not None:
            yield batch_probe.in_large_batches(large.outputs[index])
        elif self.largest > rows:
            examples = source.examples({**source.example_sizes, self.dim: self.largest}, self.seed)
            yield self._probe(model, examples).in_large_batches(None)
        others = {name: size for name, size in source.example_sizes.items() if name != self.dim}
        yield probe.across_cases(self.recorder.cases, index, others)

    @property
    def _flat_inputs(self) -> frozenset[str]:
        """Names of the inputs of features: a fixed number of values for each row."""
        specs = self.comparison.source.signature.inputs
        return frozenset(
            spec.name
            for spec in specs
            if len(spec.shape) == 2 and isinstance(spec.shape[1], int) and spec.shape[1] <= _MAX_COLUMNS  # noqa: PLR2004
        )

    def _probe(self, model: Reference, inputs: Inputs) -> RowProbe:
        limit = self.comparison.source.dims[self.dim].max
        return RowProbe(model, inputs, self.comparison.limits, self.allowed, limit)

    def _recorded_batch(self, index: int, varying: frozenset[str]) -> RecordedBatch | None:
        """Return the recorded batch; None if it is smaller, or if its sizes hide that outputs depend on the row."""
        large = self.recorder.large
        return large if large is not None and large.rows == self.largest and varying <= large.varying(index) else None


def _inputs_with_different_rows(source: SourceModel, dim: str, size: int, seed: int) -> Inputs | None:
    """Return a batch whose first two rows differ, from the first seed that gives one; None if none does."""
    for attempt in range(seed, seed + _SEEDS):
        inputs = source.examples({**source.example_sizes, dim: size}, attempt)
        if any(not np.array_equal(array[:1], array[1:2]) for array in inputs.values()):
            return inputs
    return None
