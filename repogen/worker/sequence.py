"""Builds one model: the steps that need the user's model in memory, and the fallback from one exporter to the next."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BuiltModel, ExportAttempt
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ExportError, ParityError, RepogenError, SourceError, error_from_record
from repogen.export.fallback_chain import export_with, fallback_chain
from repogen.onnx_graph.normalize import NormalizeOptions
from repogen.onnx_graph.written_shapes import with_output_shapes, without_sizes
from repogen.optimize.passes import optimize
from repogen.source.load import load_source
from repogen.targets import BFLOAT16_SINCE, target_of
from repogen.validate.runtime import OTHER_EXPORTER
from repogen.validate.structure import TargetLimitError, check_structure
from repogen.validate.validation import Validation, prove, validate
from repogen.worker.imports import imported_code
from repogen.worker.target_runtime import target_runtime
from repogen.worker.timeout import time_limit

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import Artifact, OnnxArtifact, PassOutcome
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.export.interface import Exporter
    from repogen.targets import Target
    from repogen.worker.job import Job
    from repogen.worker.progress import BuildLog

# Errors of the model itself: every other exporter would lead to the same error.
_MODEL_ERRORS = frozenset({"parity.not-finite", "parity.non-deterministic", "source.declared-size"})

_MIN_SECONDS = 1.0


@dataclass(frozen=True)
class _Verified:
    """What is published, after it passed validation."""

    artifact: Artifact
    validation: Validation
    golden_dir: Path
    nodes_exported: int = 0


def build_model(job: Job, log: BuildLog) -> BuiltModel:
    """Run the steps for one model; try the next exporter when the graph of one fails validation.

    Raises:
        RepogenError: A step failed. When every exporter failed, the message has the reason of each.
    """
    with log.step("source"):
        source = load_source(job.model, job.root, job.fetched, job.steps, job.work_dir)
        _check_outputs(source, target_of(job.release))
    log.add_notes(source.notes)
    if isinstance(source.origin, PassThroughSource):
        return _verify_code(source, source.origin, job, log)
    failures: list[tuple[str, RepogenError]] = []
    built: BuiltModel | None = None
    # Shared by all exporters: what one of them reports, the next may freeze without a warning.
    guard_violations: list[dict[str, int]] = []
    chain = fallback_chain(source.origin, job.model.export)
    deadline = time.monotonic() + job.model.limits.timeout_seconds
    for index, exporter in enumerate(chain):
        began = time.monotonic()
        # Every exporter but the last gets half of the remaining time.
        seconds = (deadline - began) / (1 if index + 1 == len(chain) else 2)
        try:
            with time_limit(max(seconds, _MIN_SECONDS)):
                verified = _try_exporter(exporter, source, job, log, guard_violations)
        except (ExportError, ParityError, TargetLimitError) as error:
            reason = error.message.partition("\n")[0].removesuffix(":")
            log.add_attempt(ExportAttempt(exporter.name, ok=False, reason=reason, seconds=time.monotonic() - began))
            failures.append((exporter.name, error))
            if error.code in _MODEL_ERRORS:
                raise combined_error(failures, error) from error
            continue
        log.add_attempt(ExportAttempt(exporter.name, ok=True, reason="", seconds=time.monotonic() - began))
        built = built or _built(verified, source, job, log)
        if not job.try_all_exporters:
            break
    if built is None:
        raise combined_error(failures)
    return built


def _check_outputs(source: SourceModel, target: Target) -> None:
    """Reject BF16 outputs before the export if the target does not serve them.

    Raises:
        SourceError: An output is BF16.
    """
    names = [repr(spec.name) for spec in source.signature.outputs if spec.dtype == "bfloat16"]
    if names and not target.serves_bfloat16:
        raise SourceError(
            f"output {', '.join(names)} is bfloat16, which Triton's ONNX Runtime backend serves in release "
            f"{BFLOAT16_SINCE} and later, and the target is {target.release}",
            "return x.float() in the model, or choose a newer target.triton",
            code="source.output-dtype",
        )


def _verify_code(source: SourceModel, code: PassThroughSource, job: Job, log: BuildLog) -> BuiltModel:
    """Verify a model that is not exported: Python code or an ensemble."""
    golden = job.work_dir / "golden"
    with log.step("validate"):
        validation = prove(source, code.published, job.model, golden)
        if code.assumed_max_batch not in {None, validation.batch.max_batch_size}:
            parity = prove(*_reload(job, validation.batch.max_batch_size), job.model, golden).parity
            validation = Validation(parity, validation.batch)
    return _built(_Verified(code.artifact, validation, golden), source, job, log)


def _reload(job: Job, max_batch_size: int) -> tuple[SourceModel, Reference]:
    """Load Python code again, with the measured batch size in its config; return the source and a new instance."""
    triton = job.model.triton.model_copy(update={"max_batch_size": max_batch_size})
    model = job.model.model_copy(update={"triton": triton})
    source = load_source(model, job.root, job.fetched, job.steps, job.work_dir)
    return source, source.origin.published if isinstance(source.origin, PassThroughSource) else source.reference


def _built(verified: _Verified, source: SourceModel, job: Job, log: BuildLog) -> BuiltModel:
    parity = verified.validation.parity
    log.add_notes(parity.notes)
    if parity.unanswered:
        cases = ", ".join(name.rpartition(" seed=")[0] for name in parity.unanswered[:3])
        log.add_notes((f"the model itself rejects some sizes within dims:, and so does the published model: {cases}",))
    return BuiltModel(
        artifact=verified.artifact,
        golden_dir=verified.golden_dir,
        nodes_exported=verified.nodes_exported,
        parity=parity,
        batch=verified.validation.batch,
        imported=imported_code(job.root, source.files),
        companions={companion.name: companion.path for companion in source.companions},
        labels=dict(source.labels),
    )


def _try_exporter(
    exporter: Exporter, source: SourceModel, job: Job, log: BuildLog, guard_violations: list[dict[str, int]]
) -> _Verified:
    """Export with one exporter, optimize and validate; skip the optimization if only it fails validation."""
    target = target_of(job.release)
    options = NormalizeOptions(source.signature, target, job.model.export.external_data, exporter.name)
    directory = job.work_dir / exporter.name
    with log.step("export"):
        directory.mkdir()
        exported = export_with(exporter, source, job.model.export, options, directory)
    guard_violations += exported.guard_violations
    gc.collect()  # the exporter's graph has reference cycles and holds a second copy of every weight
    with log.step("optimize"):
        artifact, passes = optimize(exported, job.model.optimize, options, directory)
    log.set_passes(passes)
    if exported.unused:
        names = ", ".join(exported.unused)
        log.add_notes((f"unused inputs, which clients must still send: {names}",))
    golden = directory / "golden"
    with log.step("validate"):
        try:
            artifact, validation = _validate(artifact, source, job, golden, guard_violations)
        except (ExportError, ParityError, TargetLimitError) as error:
            if artifact is exported or error.code in _MODEL_ERRORS:
                raise
            log.set_passes(tuple(_skip(outcome, error.message) for outcome in passes))
            artifact, validation = _validate(exported, source, job, golden, guard_violations)
    return _Verified(artifact, validation, golden, exported.nodes)


def _validate(
    artifact: OnnxArtifact, source: SourceModel, job: Job, golden: Path, extra_sizes: list[dict[str, int]]
) -> tuple[OnnxArtifact, Validation]:
    """Check a graph against the target, its ONNX Runtime and the original; return it with its final output shapes."""
    target = target_of(job.release)
    check_structure(artifact, target)
    runtime = target_runtime(target, job.threads)
    artifact, validation = _measure(artifact, source, job, golden, extra_sizes)
    if validation.wrong_sizes:
        artifact = without_sizes(artifact, validation.wrong_sizes)
        artifact, validation = _measure(artifact, source, job, golden, extra_sizes)
    for name, axis in sorted(validation.wrong_sizes):
        raise ExportError(
            f"the size of axis {axis} of output {name!r} changes, but ONNX Runtime infers that it is fixed",
            OTHER_EXPORTER,
            code="export.specialized-dim",
        )
    runtime.check(artifact, golden)
    return artifact, validation


def _measure(
    artifact: OnnxArtifact, source: SourceModel, job: Job, golden: Path, extra_sizes: list[dict[str, int]]
) -> tuple[OnnxArtifact, Validation]:
    """Write the output shapes that the target's ONNX Runtime infers, and compare the graph with the original."""
    runtime = target_runtime(target_of(job.release), job.threads)
    try:
        artifact = with_output_shapes(artifact, runtime.load(artifact))
    except ParityError as error:
        raise _with_precision(error, source.precision) from error
    return artifact, validate(artifact, source, job.model, golden, extra_sizes)


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


def _skip(outcome: PassOutcome, reason: str) -> PassOutcome:
    return replace(outcome, applied=False, nodes_after=outcome.nodes_before, reason=reason)


def combined_error(failures: list[tuple[str, RepogenError]], main: RepogenError | None = None) -> RepogenError:
    """Return the error to raise when every exporter failed, with the reason of each.

    Args:
        failures: Name of each exporter, and its error.
        main: The error that decides code and class; the one that occurred in the latest step if None.
    """
    errors = [error for _, error in failures]
    # Of two errors in the same step, one about a value-dependent branch is more specific than one about a fixed size.
    main = main or max(errors, key=lambda error: (error.exit_code, error.code == "export.data-dependent"))
    if len(errors) == 1:
        return main
    reasons = "\n".join(f"  {name}: {error.message}" for name, error in failures)
    record = replace(
        main.record,
        message=f"every exporter failed:\n{reasons}",
        hint=main.hint or next((error.hint for error in errors if error.hint), ""),
        where=main.where or next((error.where for error in errors if error.where), ""),
        details="\n\n".join(error.details for error in errors if error.details),
    )
    return error_from_record(record)
