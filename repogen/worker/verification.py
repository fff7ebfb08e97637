"""Verifies a graph: its target, the target's ONNX Runtime, parity or quality, batching, and golden tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.errors import ExportError, ParityError
from repogen.onnx_graph.written_shapes import with_output_shapes, without_sizes
from repogen.targets import target_of
from repogen.validate.runtime import OTHER_EXPORTER
from repogen.validate.structure import check_structure
from repogen.validate.validation import Validation, validate, validate_lossy
from repogen.worker.memory import trim_memory
from repogen.worker.target_runtime import TargetDriftError, target_runtime
from repogen.worker.unoptimized import record_unoptimized

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import Lossy, OnnxArtifact, Precision
    from repogen.artifacts.source import SourceModel
    from repogen.worker.job import Job
    from repogen.worker.target_runtime import TargetRuntime


@dataclass(frozen=True)
class VerifiedGraph:
    """A graph that can be published.

    Attributes:
        artifact: The graph.
        validation: What was measured.
        golden_dir: Directory of its golden tensors.
        lossy: The lossy passes that were applied; None if there were none.
    """

    artifact: OnnxArtifact
    validation: Validation
    golden_dir: Path
    lossy: Lossy | None = None


def verify(
    artifact: OnnxArtifact,
    source: SourceModel,
    job: Job,
    golden: Path,
    *,
    extra_sizes: list[dict[str, int]] | None = None,
    lossy_precision: Precision | None = None,
) -> VerifiedGraph:
    """Check a graph against the target, its ONNX Runtime and the original.

    Args:
        artifact: The graph.
        source: The original.
        job: The model that is built.
        golden: Directory for golden tensors; created.
        extra_sizes: Sizes at which parity is measured in addition to the sweep.
        lossy_precision: The precision of a graph that is not required to have parity; None if it is.

    Returns:
        The graph with its final output shapes.

    Raises:
        ExportError: The size of an output changes, and the target's ONNX Runtime infers that it is fixed (exit 3).
        ParityError: It does not load or fails, or disagrees with the original (exit 4).
        ConfigError: The spec sets max_batch_size, and it cannot be batched (exit 5).
        TargetLimitError: It is too new for the target.
    """
    target = target_of(job.release)
    check_structure(artifact, target)

    def measure(graph: OnnxArtifact) -> Validation:
        if lossy_precision is not None:
            return validate_lossy(graph, source, job.model, golden, lossy_precision)
        return validate(graph, source, job.model, golden, extra_sizes or ())

    with target_runtime(target, job.threads) as runtime:
        artifact = _with_shapes(artifact, runtime, source)
        validation = measure(artifact)
        if validation.wrong_sizes:
            artifact = _with_shapes(without_sizes(artifact, validation.wrong_sizes), runtime, source)
            validation = measure(artifact)
        for name, axis in sorted(validation.wrong_sizes):
            raise ExportError(
                f"the size of axis {axis} of output {name!r} changes, but ONNX Runtime infers that it is fixed",
                OTHER_EXPORTER,
                code="export.specialized-dim",
            )
        trim_memory()
        try:
            runtime.check(artifact, golden)
        except TargetDriftError:
            note = record_unoptimized(artifact, source, runtime, golden) if lossy_precision is None else ""
            if not note:
                raise
            parity = replace(validation.parity, notes=(*validation.parity.notes, note))
            validation = replace(validation, parity=parity)
    return VerifiedGraph(artifact, validation, golden)


def _with_shapes(artifact: OnnxArtifact, runtime: TargetRuntime, source: SourceModel) -> OnnxArtifact:
    """Write the output shapes that the target's ONNX Runtime infers."""
    try:
        return with_output_shapes(artifact, runtime.load(artifact))
    except ParityError as error:
        raise _with_precision(error, source.precision) from error


def _with_precision(error: ParityError, precision: str) -> ParityError:
    """Return an error about a missing kernel that names the precision that the model computes in."""
    if precision not in {"float16", "bfloat16"} or "Could not find an implementation" not in error.message:
        return error
    return ParityError(
        f"{error.message}: the model computes in {precision}",
        f"compute in float32: remove torch.autocast(dtype=torch.{precision}) and casts to {precision} from forward",
        code=error.code,
        details=error.details,
    )
