"""Everything that is measured about a published model: parity, batching, and golden tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.source import Eager, OnnxFile, PassThroughSource, Program
from repogen.validate.batch import check_batch
from repogen.validate.compare import Comparison, difference
from repogen.validate.divergence import first_divergence
from repogen.validate.golden import GoldenRecorder
from repogen.validate.parity import check_parity
from repogen.validate.ragged import ROW, check_ragged, row_dims
from repogen.validate.rows import RowRecorder
from repogen.validate.runtime import OnnxModel
from repogen.validate.tolerance import Limit, coarsest, limits
from repogen.validate.transitions import record_transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.built_model import BatchReport, OnnxArtifact, ParityReport, Precision
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays, Sizes
    from repogen.spec.models import ModelSpec, ParitySpec
    from repogen.validate.sweep import SweepCase


@dataclass(frozen=True)
class Validation:
    """What was measured.

    Attributes:
        parity: The comparison with the original.
        batch: Whether the model can be batched.
        wrong_sizes: Names and axes of outputs whose sizes differ from those that the graph declares.
    """

    parity: ParityReport
    batch: BatchReport
    wrong_sizes: frozenset[tuple[str, int]] = frozenset()


def validate(
    artifact: OnnxArtifact,
    source: SourceModel,
    model: ModelSpec,
    golden_dir: Path,
    extra_sizes: Sequence[Sizes] = (),
) -> Validation:
    """Check parity and batching of a graph, and write golden tensors.

    Args:
        artifact: The graph.
        source: The original.
        model: The spec entry.
        golden_dir: Directory for the golden tensors; created.
        extra_sizes: Sizes at which parity is measured in addition to the sweep, such as guard violations.

    Raises:
        ParityError: ONNX Runtime and the original disagree (exit 4).
        ConfigError: The spec sets max_batch_size, and the model cannot be batched (exit 5).
    """
    explain = partial(_explain, artifact, source, _limits(source, model.parity))
    published = OnnxModel(artifact)
    validation = prove(source, published, model, golden_dir, explain=explain, extra_sizes=extra_sizes)
    return replace(validation, wrong_sizes=frozenset(published.wrong_sizes))


def validate_lossy(
    artifact: OnnxArtifact, source: SourceModel, model: ModelSpec, golden_dir: Path, precision: Precision
) -> Validation:
    """Measure a graph that is not required to have parity, and write golden tensors with its own outputs.

    Over the sweep, outputs must have the shapes of the original's, and no NaN; their differences are measured. Batching
    is checked, and golden tensors are compared later, with the tolerances of ``precision``, or twice the largest
    difference if that is more: two outputs that each differ from the original's by at most E differ by at most 2 E. The
    kernels of another ONNX Runtime round differently, and quantization depends on the other rows of a batch.

    Args:
        artifact: The graph.
        source: The original.
        model: The spec entry; its tolerances do not apply.
        golden_dir: Directory for the golden tensors; created.
        precision: What the graph computes in.

    Raises:
        ParityError: The graph fails on inputs that the original accepts, or returns other shapes, infinities or NaN
            (exit 4).
        ConfigError: The spec sets max_batch_size, and the graph cannot be batched (exit 5).
    """
    published = OnnxModel(artifact)
    spec = model.parity.model_copy(update={"rtol": None, "atol": None})
    any_value = {output.name: Limit(rtol=0.0, share=0.0, atol=math.inf) for output in source.signature.outputs}
    original = replace(source, reference=partial(_as_floats, source.reference))
    comparison = Comparison(original, partial(_as_floats, published), any_value)
    errors = _LargestErrors()
    parity, _ = check_parity(comparison, spec, (errors,))
    itself = replace(
        source,
        origin=OnnxFile(artifact.path),
        reference=published,
        precision=coarsest(precision, source.precision),
        against="",
        stored="",
        noise={name: 2 * error for name, error in errors.by_output.items()},
    )
    batch = prove(itself, published, model.model_copy(update={"parity": spec}), golden_dir).batch
    return Validation(parity, batch, frozenset(published.wrong_sizes))


def _limits(source: SourceModel, spec: ParitySpec) -> dict[str, Limit]:
    """Return how far outputs may differ from those of a source."""
    allowed = limits(source.signature, spec, source.precision)
    return {name: limit.at_least(source.noise.get(name, 0.0)) for name, limit in allowed.items()}


class _LargestErrors:
    """Records the largest absolute error of each output over a sweep.

    Attributes:
        by_output: The errors by name.
    """

    def __init__(self) -> None:
        self.by_output: dict[str, float] = {}

    def offer(self, case: SweepCase, inputs: Arrays, expected: Arrays, actual: Arrays) -> None:
        """Record the errors of a case; those that cannot be compared end the sweep with an error."""
        del case, inputs
        for name, array in actual.items():
            error = difference({name: expected[name]}, {name: array}, {name: (0.0, math.inf)}).max_abs
            self.by_output[name] = max(self.by_output.get(name, 0.0), error)


def _as_floats(model: Reference, inputs: Arrays) -> dict[str, Array]:
    """Return outputs whose integers and booleans are numbers that may differ."""
    outputs = model(inputs)
    return {name: array.astype(np.float64) if array.dtype.kind in "biu" else array for name, array in outputs.items()}


def prove(
    source: SourceModel,
    published: Reference,
    model: ModelSpec,
    golden_dir: Path,
    *,
    explain: Callable[[Arrays], str] = lambda _: "",
    extra_sizes: Sequence[Sizes] = (),
) -> Validation:
    """Check parity and batching of a running model, and write golden tensors.

    Args:
        source: The original.
        published: Runs the published model.
        model: The spec entry.
        golden_dir: Directory for the golden tensors; created.
        explain: Returns the cause of a difference in one line, for the inputs of the first case that differs.
        extra_sizes: Sizes at which parity is measured in addition to the sweep.

    Raises:
        ParityError: The two disagree (exit 4).
        ConfigError: The spec sets max_batch_size, and the model cannot be batched (exit 5).
    """
    comparison = Comparison(source, published, _limits(source, model.parity))
    batch_dim = source.signature.batch_dim
    golden = GoldenRecorder()
    rows = RowRecorder(batch_dim, source.dims[batch_dim].max if batch_dim else 0)
    parity, allowed = check_parity(
        comparison,
        model.parity,
        (golden, rows),
        explain=explain,
        extra_sizes=extra_sizes,
        smaller=row_dims(source.signature, model.triton),
    )
    if model.triton.ragged and model.triton.max_batch_size and not isinstance(source.origin, PassThroughSource):
        golden = GoldenRecorder()
        batch, batch_dim = check_ragged(comparison, allowed, model.triton, model.parity.seed, golden), ROW
    else:
        batch = check_batch(comparison, allowed, model.triton.max_batch_size, model.parity.seed, rows)
        batch_dim = batch_dim if batch.batchable else None
    record_transitions(source, model.triton, model.parity.seed, golden)
    golden_dir.mkdir(parents=True, exist_ok=True)
    golden.write(golden_dir, batch_dim, allowed)
    return Validation(parity, batch)


def _explain(artifact: OnnxArtifact, source: SourceModel, allowed: Mapping[str, Limit], inputs: Arrays) -> str:
    """Return the first operator of a PyTorch model that the graph computes differently; empty if it is unknown."""
    if not isinstance(source.origin, (Eager, Program)):
        return ""
    limit = max(allowed.values(), key=lambda limit: (limit.rtol, limit.share))
    ordered = {spec.name: inputs[spec.name] for spec in source.signature.inputs}
    try:
        divergence = first_divergence(source.origin.module, artifact.path, ordered, limit)
    except Exception:  # noqa: BLE001 - the parity error must be reported even if the search for its cause fails
        return ""
    return "" if divergence is None else str(divergence)
