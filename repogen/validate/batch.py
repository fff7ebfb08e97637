"""Measures whether a model can be batched: Triton joins requests along axis 0, and splits the outputs along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from repogen.artifacts.built_model import BatchReport
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ConfigError
from repogen.validate.rows import RowProbe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array
    from repogen.validate.compare import Comparison
    from repogen.validate.rows import RecordedRow
    from repogen.validate.tolerance import Tolerances

Inputs: TypeAlias = "dict[str, Array]"

_SIZES = (1, 2, 3, 5)
_SEEDS = 20


def check_batch(
    comparison: Comparison,
    allowed: Tolerances,
    requested: int | Literal["auto"],
    seed: int,
    recorded: Sequence[RecordedRow] = (),
) -> BatchReport:
    """Measure max_batch_size: the requested one if the model can be batched; 0 for ``auto`` if it cannot.

    Args:
        comparison: The original and the published model, which are both measured.
        allowed: The tolerance of each output.
        requested: ``triton.max_batch_size`` of the spec.
        seed: Seed of the inputs.
        recorded: Rows of the parity cases.

    Raises:
        ConfigError: max_batch_size is above 0, and the model cannot be batched, or not by that much (exit 5).
    """
    if requested == 0:
        return BatchReport(batchable=False, max_batch_size=0, reason="the spec sets max_batch_size: 0")
    source = comparison.source
    dim = source.signature.batch_dim
    limit = source.dims[dim].max if dim else 0
    reason = _unsuitable_reason(source, dim) or _row_dependence(
        comparison, allowed, limit if requested == "auto" else requested, seed, recorded
    )
    if reason and source.declare:  # a wrong guess of the values may be the only cause
        reason = f"{reason}; {source.declare}"
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
    comparison: Comparison, allowed: Tolerances, requested: int, seed: int, recorded: Sequence[RecordedRow]
) -> str:
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
    large = source.examples({**source.example_sizes, dim: largest}, seed) if largest > sizes[-1] else None
    code = source.origin if isinstance(source.origin, PassThroughSource) else None
    names = (code.original, code.served) if code else ("PyTorch", "ONNX Runtime")
    for index, (model, name) in enumerate(zip((source.reference, comparison.published), names, strict=True)):
        probe = RowProbe(model, comparison.limits, allowed, limit)
        reason = (
            probe.in_small_batches(inputs, sizes)
            or probe.with_varied_rows(inputs)
            or probe.with_copies(inputs)
            or ("" if source.noise else probe.with_other_rows(inputs))  # scales of dynamic quantization
        )
        if not reason and large is not None:
            reason = probe.in_large_batches(large)
        reason = reason or probe.across_cases(recorded, index)
        if reason:
            return f"{reason} ({name})"
    return ""


def _inputs_with_different_rows(source: SourceModel, dim: str, size: int, seed: int) -> Inputs | None:
    """Return a batch whose first two rows differ, from the first seed that gives one; None if none does."""
    for attempt in range(seed, seed + _SEEDS):
        inputs = source.examples({**source.example_sizes, dim: size}, attempt)
        if any(not np.array_equal(array[:1], array[1:2]) for array in inputs.values()):
            return inputs
    return None
