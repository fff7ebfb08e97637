"""Measures whether the rows of a ragged batch affect each other, by forming the batches that Triton forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import BatchReport
from repogen.errors import ConfigError, RepogenError
from repogen.triton_config.text.ragged import batch_input, scattered
from repogen.validate.compare import difference
from repogen.validate.parity import original_name
from repogen.validate.sweep import SweepCase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays, Signature, TensorSpec
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.validate.compare import Comparison
    from repogen.validate.golden import GoldenRecorder
    from repogen.validate.tolerance import Tolerances

ROW = "row"
"""In place of the batch dim: each golden case of a ragged model is one request of one row."""
_LENGTHS = (2, 0, 1, 4, 3, 0, 5, 1)
"""Lengths of the rows of a batch, above the smallest length."""


@dataclass(frozen=True)
class _RaggedBatch:
    """Forms the inputs of a run from rows, each of them a request, and splits the outputs, as Triton does.

    A row has the inputs that a client sends: all elements of a ragged input, and one row of each other input.
    """

    triton: TritonSpec
    signature: Signature

    @property
    def ragged(self) -> list[TensorSpec]:
        """The inputs whose rows are concatenated."""
        return [spec for spec in self.signature.inputs if self._is_ragged(spec.name)]

    @property
    def others(self) -> list[TensorSpec]:
        """The other inputs that clients send."""
        targets = {entry.target_name[0] for entry in self.triton.batch_input}
        inputs = self.signature.inputs
        return [spec for spec in inputs if spec.name not in targets and not self._is_ragged(spec.name)]

    def row(self, arrays: Arrays) -> Arrays:
        """Return example inputs as one row."""
        row = {spec.name: arrays[spec.name] for spec in self.ragged}
        return row | {spec.name: arrays[spec.name][:1] for spec in self.others}

    def inputs(self, rows: Sequence[Arrays]) -> dict[str, Array]:
        """Return the graph's inputs for several rows."""
        inputs = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        dtypes = {spec.name: spec.dtype for spec in self.signature.inputs}
        for entry in self.triton.batch_input:
            (source,), (target,) = entry.source_input, entry.target_name
            inputs[target] = batch_input(entry.kind, self._shapes(source, rows), dtypes[target])
        return {name: inputs[name] for name in dtypes}

    def outputs(self, model: Reference, rows: Sequence[Arrays]) -> list[dict[str, Array]]:
        """Run a model on several rows and return the outputs of each.

        Raises:
            RepogenError: The model fails.
            ValueError: An output cannot be split into rows.
        """
        parts: list[dict[str, Array]] = [{} for _ in rows]
        sources = {entry.target_name[0]: entry.source_input[0] for entry in self.triton.batch_output}
        for name, array in model(self.inputs(rows)).items():
            if name in sources:
                pieces = scattered(array, (-1, -1, *array.shape[1:]), self._shapes(sources[name], rows))
                pieces = [piece.reshape(piece.shape[1:]) for piece in pieces]
            elif array.ndim == 0 or array.shape[0] != len(rows):
                raise ValueError(f"output {name!r} has shape {list(array.shape)} for {len(rows)} rows")
            else:
                pieces = [array[index : index + 1] for index in range(len(rows))]
            for part, piece in zip(parts, pieces, strict=True):
                part[name] = piece
        return parts

    def _is_ragged(self, name: str) -> bool:
        settings = self.triton.input.get(name)
        return settings is not None and settings.allow_ragged_batch

    def _shapes(self, source: str, rows: Sequence[Arrays]) -> list[tuple[int, ...]]:
        """Return the shape in which clients send an input, for each row."""
        return [(1, *row[source].shape) if self._is_ragged(source) else row[source].shape for row in rows]


def row_dims(signature: Signature, triton: TritonSpec) -> dict[str, str]:
    """Return the dim with one value for each row of a ragged batch -> the dim with all their elements.

    Each row has at least one element, so a batch with more rows than elements does not exist.
    """
    first = {spec.name: spec.shape[0] for spec in signature.inputs if spec.shape}
    pairs = (
        (first.get(entry.target_name[0]), first.get(entry.source_input[0]))
        for entry in triton.batch_input
        if entry.kind != "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE"
    )
    return {few: many for few, many in pairs if isinstance(few, str) and isinstance(many, str) and few != many}


def check_ragged(
    comparison: Comparison, allowed: Tolerances, triton: TritonSpec, seed: int, golden: GoldenRecorder
) -> BatchReport:
    """Compare rows of different lengths in one batch with the same rows alone, and record rows as golden cases.

    Args:
        comparison: The original and the published model, which are both measured.
        allowed: The tolerance of each output.
        triton: The spec's section, with a ``max_batch_size`` above 0.
        seed: Seed of the inputs.
        golden: Records each row with its batch inputs; its batch dim is ``ROW``.

    Raises:
        ConfigError: Rows affect each other, or the dims do not allow a batch (exit 5).
    """
    source, requested = comparison.source, int(triton.max_batch_size)
    batch = _RaggedBatch(triton, source.signature)
    reason = _unsuitable_reason(source, batch, requested)
    rows = [] if reason else _example_rows(source, batch, requested, seed)
    for model, name in ((source.reference, f"the {original_name(source)}"), (comparison.published, "ONNX Runtime")):
        reason = reason or _row_dependence(allowed, batch, model, rows, name)
    if reason:
        raise ConfigError(
            f"max_batch_size is {requested}, but rows of different lengths cannot be batched: {reason}",
            "compute each row independently, with the lengths from batch_input; or set max_batch_size: 0",
            code="config.not-batchable",
        )
    for index, row in enumerate(rows):
        sizes = {ROW: 1} | {str(spec.shape[0]): len(row[spec.name]) for spec in batch.ragged}
        case = SweepCase(sizes, seed + index, required=True)
        golden.offer(case, batch.inputs([row]), batch.outputs(source.reference, [row])[0], {})
    return BatchReport(batchable=True, max_batch_size=requested)


def _unsuitable_reason(source: SourceModel, batch: _RaggedBatch, requested: int) -> str:
    """Return why the declared inputs do not allow such batches; empty if they do."""
    for spec in batch.ragged:
        if len(spec.shape) != 1 or not isinstance(spec.shape[0], str):
            return f"ragged input {spec.name!r} has shape {list(spec.shape)}, and must have one dynamic dim (RG206)"
        needed = sum(_row_lengths(source, spec, 2))
        if (limit := source.dims[spec.shape[0]].max) < needed:
            return f"two rows of different lengths need {needed} elements, and dims.{spec.shape[0]}.max is {limit}"
    for spec in batch.others:
        if not spec.shape or not isinstance(spec.shape[0], str):
            return f"axis 0 of input {spec.name!r} is not a dynamic dim"
    return _target_limit(source, batch, requested)


def _target_limit(source: SourceModel, batch: _RaggedBatch, requested: int) -> str:
    """Return which target of a batch_input is too small for the largest batch; empty if none is."""
    shapes = {spec.name: spec.shape for spec in source.signature.inputs}
    for entry in batch.triton.batch_input:
        dim = next(iter(shapes[entry.target_name[0]]), None)
        if entry.kind == "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE" or not isinstance(dim, str):
            continue
        most = len(batch_input(entry.kind, [(1, 1)] * requested, "int32"))
        if source.dims[dim].max < most:
            return f"{entry.target_name[0]!r} has {most} values, but dims.{dim}.max is {source.dims[dim].max}"
    return ""


def _row_lengths(source: SourceModel, spec: TensorSpec, rows: int) -> list[int]:
    smallest = max(source.dims[str(spec.shape[0])].min, 1)
    return [smallest + length for length in _LENGTHS[:rows]]


def _example_rows(source: SourceModel, batch: _RaggedBatch, requested: int, seed: int) -> list[Arrays]:
    """Return rows of different lengths, as many as the dims allow in one batch."""
    count = min(requested, len(_LENGTHS))
    limits = {spec.name: source.dims[str(spec.shape[0])].max for spec in batch.ragged}
    while any(sum(_row_lengths(source, spec, count)) > limits[spec.name] for spec in batch.ragged):
        count -= 1
    rows = []
    for index in range(count):
        lengths = {str(spec.shape[0]): _row_lengths(source, spec, count)[index] for spec in batch.ragged}
        rows.append(batch.row(source.examples({**source.example_sizes, **lengths}, seed + index)))
    return rows


def _row_dependence(
    allowed: Tolerances, batch: _RaggedBatch, model: Reference, rows: Sequence[Arrays], name: str
) -> str:
    """Return how rows affect each other in a model; empty if they do not."""
    try:
        alone = [batch.outputs(model, [row])[0] for row in rows]
        together = batch.outputs(model, rows)
        reversed_order = batch.outputs(model, rows[::-1])[::-1]
    except ValueError as error:
        return f"{error}: name a batch_output, or return one row for each row of a batch (measured with {name})"
    except RepogenError as error:
        return f"a batch of rows with {[len(next(iter(row.values()))) for row in rows]} elements fails: {error.message}"
    for others, what in ((together, "in a batch"), (reversed_order, "in a batch in another order")):
        for index, (expected, actual) in enumerate(zip(alone, others, strict=True)):
            if reason := difference(expected, actual, allowed).reason:
                rows_text = f"row {index} has a different output alone than {what} of {len(rows)} rows"
                return f"{rows_text}: {reason}; measured with {name}"
    return ""
