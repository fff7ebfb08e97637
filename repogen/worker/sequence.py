"""Builds one model: the steps that need the user's model in memory, and the fallback from one exporter to the next."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BuiltModel, ExportAttempt
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ExportError, ParityError, PublishError, RepogenError, SourceError, error_from_record
from repogen.export.fallback_chain import export_with, fallback_chain, with_centered_values
from repogen.files import open_inside, raise_if_exhausted, reason
from repogen.onnx_graph.normalize import NormalizeOptions
from repogen.optimize.passes import Workspace, optimize, select_passes
from repogen.source.load import load_source
from repogen.targets import BFLOAT16_SINCE, target_of
from repogen.triton_config.render.tensors import triton_fed
from repogen.validate.drift import DriftError
from repogen.validate.runtime import OTHER_EXPORTER
from repogen.validate.structure import TargetLimitError
from repogen.validate.validation import Validation, prove
from repogen.worker.imports import EDITED, imported_code
from repogen.worker.memory import release_memory
from repogen.worker.optimization import Subject, apply_measured
from repogen.worker.target_runtime import TargetDriftError
from repogen.worker.timeout import time_limit
from repogen.worker.verification import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.built_model import Artifact, Lossy, OnnxArtifact, PassOutcome
    from repogen.artifacts.source import Companion, Reference, SourceModel
    from repogen.export.interface import Exporter
    from repogen.optimize.passes import SelectedPass
    from repogen.targets import Target
    from repogen.worker.job import Job
    from repogen.worker.progress import BuildLog
    from repogen.worker.verification import VerifiedGraph

# Errors of the model itself: every other exporter would lead to the same error.
_MODEL_ERRORS = frozenset({"parity.not-finite", "parity.non-deterministic", "source.declared-size", "source.outputs"})

_INEXACT_VARIANCE = "the target's ONNX Runtime computes the variance of values that are far from zero inexactly"

_TOLERANCES = "if the differences are acceptable, set parity: {rtol: …, atol: …}"

_MIN_SECONDS, _MAX_RETRY_SECONDS = 1.0, 120.0


@dataclass(frozen=True)
class _Verified:
    """What is published, after it passed validation."""

    artifact: Artifact
    validation: Validation
    golden_dir: Path
    nodes_exported: int = 0
    lossy: Lossy | None = None


@dataclass(frozen=True)
class _Attempt:
    """An exporter's graph that can be published, and what is needed to optimize it further.

    Attributes:
        graph: The graph, after the structural passes.
        nodes_exported: Number of nodes before them.
        outcomes: Outcomes of these passes.
        measured: The passes that follow, each of which is verified by itself.
        workspace: Where passes work.
    """

    graph: VerifiedGraph
    nodes_exported: int
    outcomes: tuple[PassOutcome, ...]
    measured: tuple[SelectedPass, ...]
    workspace: Workspace


def build_model(job: Job, log: BuildLog) -> BuiltModel:
    """Run the steps for one model; try the next exporter when the graph of one fails validation.

    Raises:
        RepogenError: A step failed. When every exporter failed, the message has the reason of each.
    """
    began_ns = time.time_ns()
    with log.step("source"):
        source = load_source(job.model, job.root, job.fetched, job.steps, job.work_dir)
        _check_outputs(source, target_of(job.release))
    log.add_notes(source.notes)
    if isinstance(source.origin, PassThroughSource):
        return _verify_code(source, source.origin, job, log, began_ns)
    failures: list[tuple[str, RepogenError]] = []
    attempt: _Attempt | None = None
    # Shared by all exporters: what one of them reports, the next may freeze without a warning.
    guard_violations: list[dict[str, int]] = []
    chain = fallback_chain(source.origin, job.model.export)
    all_tried = job.try_all_exporters or job.model.export.exporter == "auto"
    deadline = time.monotonic() + job.model.limits.timeout_seconds
    for index, exporter in enumerate(chain):
        began = time.monotonic()
        # Every exporter but the last gets half of the remaining time.
        seconds = (deadline - began) / (1 if index + 1 == len(chain) else 2)
        try:
            with time_limit(max(seconds, _MIN_SECONDS)):
                succeeded = _try_exporter(exporter, source, job, log, guard_violations)
        except (ExportError, ParityError, TargetLimitError) as error:
            reason = error.record.summary
            log.add_attempt(ExportAttempt(exporter.name, ok=False, reason=reason, seconds=time.monotonic() - began))
            failures.append((exporter.name, error))
            log.add_failure(error)
            if error.code in _MODEL_ERRORS:
                raise combined_error(failures, error, all_tried=all_tried) from error
            continue
        log.add_attempt(ExportAttempt(exporter.name, ok=True, reason="", seconds=time.monotonic() - began))
        attempt = attempt or succeeded
        if not job.try_all_exporters:
            break
    if attempt is None:
        attempt = _try_largest_sizes(chain, failures, source, job, log, guard_violations, deadline)
    if attempt is None:
        raise combined_error(failures, all_tried=all_tried)
    verified = _apply_measured(attempt, source, job, log, guard_violations, deadline)
    return _built(verified, source, job, log, began_ns)


def _try_largest_sizes(  # noqa: PLR0913, PLR0917 - the state of the chain
    chain: list[Exporter],
    failures: list[tuple[str, RepogenError]],
    source: SourceModel,
    job: Job,
    log: BuildLog,
    guard_violations: list[dict[str, int]],
    deadline: float,
) -> _Attempt | None:
    """Export with dynamo again, with the largest sizes as example; return None if that fails, or cannot help.

    At the example sizes, the exporter may have frozen what is different at larger ones only: a derived size of 1, such
    as the number of frames of a signal, or a table that grows with the longest input.
    """
    depends_on_size = {name for name, error in failures if isinstance(error, DriftError) and _agrees_at_example(error)}
    exporter = next((each for each in chain if each.name in depends_on_size & {"dynamo", "dynamo-eager"}), None)
    sizes = _largest_sizes(source)
    if exporter is None or sizes == source.example_sizes:
        return None
    began = time.monotonic()
    seconds = min(_MAX_RETRY_SECONDS, deadline - began)
    reason, attempt = "", None
    try:
        with time_limit(max(seconds, _MIN_SECONDS)):
            attempt = _try_exporter(exporter, source, job, log, guard_violations, sizes)
    except RepogenError as error:
        reason = error.record.summary
    at = ", ".join(f"{name} {size}" for name, size in sizes.items())
    where = f"at {at}: {reason}" if reason else ""
    log.add_attempt(ExportAttempt(exporter.name, not reason, where, time.monotonic() - began))
    if attempt is not None:
        log.add_notes((f"exported at {at}, because the graph of the example sizes is correct at these sizes only",))
    return attempt


def _agrees_at_example(error: DriftError) -> bool:
    return error.parity is not None and bool(error.parity.cases) and error.parity.cases[0].passed


def _largest_sizes(source: SourceModel) -> dict[str, int]:
    """Return a different size for every dim, because an exporter could merge two dims of equal size."""
    sizes: dict[str, int] = {}
    for name, dim in source.dims.items():
        largest = range(dim.max, max(dim.min, 2) - 1, -1)
        free = (size for size in largest if size not in sizes.values())
        sizes[name] = dim.example if name == source.signature.batch_dim else next(free, dim.example)
    return sizes


def _apply_measured(
    attempt: _Attempt,
    source: SourceModel,
    job: Job,
    log: BuildLog,
    guard_violations: list[dict[str, int]],
    deadline: float,
) -> _Verified:
    """Run the passes whose results are measured, in the time that the exporters left."""
    graph, outcomes = attempt.graph, attempt.outcomes
    if attempt.measured:
        subject = Subject(source, job, attempt.workspace, guard_violations, graph, deadline)
        with log.step("optimize"):
            graph, measured = apply_measured(attempt.measured, subject)
        outcomes = (*outcomes, *measured)
    log.set_passes(outcomes)
    return _Verified(graph.artifact, graph.validation, graph.golden_dir, attempt.nodes_exported, graph.lossy)


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


def _verify_code(source: SourceModel, code: PassThroughSource, job: Job, log: BuildLog, began_ns: int) -> BuiltModel:
    """Verify a model that is not exported: Python code or an ensemble."""
    golden = job.work_dir / "golden"
    if job.model.passes:
        log.add_notes((f"optimize: was not applied, because {job.name} has no ONNX graph of its own",))
    with log.step("validate"):
        try:
            validation = prove(source, code.published, job.model, golden)
        except ParityError as error:
            log.add_failure(error)
            raise
        if code.assumed_max_batch not in {None, validation.batch.max_batch_size}:
            parity = prove(*_reload(job, validation.batch.max_batch_size), job.model, golden).parity
            validation = Validation(parity, validation.batch)
    return _built(_Verified(code.artifact, validation, golden), source, job, log, began_ns)


def _reload(job: Job, max_batch_size: int) -> tuple[SourceModel, Reference]:
    """Load Python code again, with the measured batch size in its config; return the source and a new instance."""
    triton = job.model.triton.model_copy(update={"max_batch_size": max_batch_size})
    model = job.model.model_copy(update={"triton": triton})
    source = load_source(model, job.root, job.fetched, job.steps, job.work_dir)
    return source, source.origin.published if isinstance(source.origin, PassThroughSource) else source.reference


def _built(verified: _Verified, source: SourceModel, job: Job, log: BuildLog, began_ns: int) -> BuiltModel:
    parity = verified.validation.parity
    log.add_notes(parity.notes)
    if parity.unanswered:
        cases = ", ".join(name.rpartition(" seed=")[0] for name in parity.unanswered[:3])
        log.add_notes((f"the model itself rejects some sizes within dims, and so does the published model: {cases}",))
    imported = imported_code(job.root, source.files, began_ns)
    if edited := [path for path, digest in imported.files.items() if digest == EDITED]:
        names = f"{', '.join(edited[:3])}{' and others' if edited[3:] else ''}"
        log.add_notes((f"{names} changed during the build, so the next build builds the model again",))
    return BuiltModel(
        artifact=verified.artifact,
        golden_dir=verified.golden_dir,
        nodes_exported=verified.nodes_exported,
        parity=parity,
        batch=verified.validation.batch,
        imported=imported,
        companions=_companions(source.companions, job.work_dir / "companions"),
        labels=dict(source.labels),
        lossy=verified.lossy,
    )


def _companions(companions: Sequence[Companion], directory: Path) -> dict[str, Path]:
    """Return copies of companions by name: their owner may replace the files by links before they are published.

    Raises:
        PublishError: One cannot be read, or leads out of its directory.
    """
    directory.mkdir()
    copies = {companion.name: directory / str(index) for index, companion in enumerate(companions)}
    for companion in companions:
        path, root = companion.path, companion.directory
        try:
            with open_inside(path, root or path.parent, root) as reader, copies[companion.name].open("wb") as writer:
                shutil.copyfileobj(reader, writer)
        except OSError as error:
            raise_if_exhausted(error)
            raise PublishError(f"{companion.name} cannot be published: {reason(error)}", code="stage.write") from error
    return copies


def _try_exporter(
    exporter: Exporter,
    source: SourceModel,
    job: Job,
    log: BuildLog,
    guard_violations: list[dict[str, int]],
    sizes: dict[str, int] | None = None,
) -> _Attempt:
    """Export with one exporter, optimize and validate; center values if the target's ONNX Runtime disagrees."""
    options = NormalizeOptions(source.signature, target_of(job.release), job.model.export.external_data, exporter.name)
    directory = job.work_dir / (exporter.name if sizes is None else f"{exporter.name}-largest")
    workspace = Workspace(options, job.root, directory)
    with log.step("export"):
        workspace.directory.mkdir()
        exported = export_with(exporter, source, job.model.export, options, workspace.directory, sizes)
    guard_violations += exported.guard_violations
    release_memory()  # the exporter's graph has reference cycles and holds a second copy of every weight
    try:
        return _optimized(exported, source, job, log, guard_violations, workspace)
    except TargetDriftError:
        workspace = replace(workspace, directory=directory / "centered")
        workspace.directory.mkdir()
        centered = with_centered_values(exported, options, workspace.directory)
        if centered is None:
            raise
        attempt = _optimized(centered, source, job, log, guard_violations, workspace)
    log.add_notes((f"the mean is subtracted before each LayerNormalization: {_INEXACT_VARIANCE}",))
    return attempt


def _optimized(
    exported: OnnxArtifact,
    source: SourceModel,
    job: Job,
    log: BuildLog,
    guard_violations: list[dict[str, int]],
    workspace: Workspace,
) -> _Attempt:
    """Run the structural passes and validate; drop them if only they fail validation."""
    passes = select_passes(job.model.passes)
    structural = tuple(takewhile(lambda selected: selected.structural, passes))
    with log.step("optimize"):
        artifact, outcomes = optimize(exported, structural, workspace)
    if artifact is not exported:
        release_memory()
    log.set_passes(outcomes)
    if sent := [name for name in exported.unused if name not in triton_fed(job.model.triton)]:
        log.add_notes((f"unused inputs, which clients must still send: {', '.join(sent)}",))
    golden = workspace.directory / "golden"
    with log.step("validate"):
        try:
            graph = verify(artifact, source, job, golden, extra_sizes=guard_violations)
        except (ExportError, ParityError, TargetLimitError) as error:
            if artifact is exported or error.code in _MODEL_ERRORS:
                raise
            outcomes = tuple(outcome.dropped(error.message) for outcome in outcomes)
            log.set_passes(outcomes)
            graph = verify(exported, source, job, golden, extra_sizes=guard_violations)
    return _Attempt(graph, exported.nodes, outcomes, passes[len(structural) :], workspace)


def combined_error(
    failures: list[tuple[str, RepogenError]], main: RepogenError | None = None, *, all_tried: bool = False
) -> RepogenError:
    """Return the error to raise when every exporter failed, with the reason of each.

    Its hint does not advise to try another exporter, except after the one that the spec selects.

    Args:
        failures: Name of each exporter, and its error.
        main: The error that decides code and class; the one that occurred in the latest step if None.
        all_tried: Whether there is no other exporter, or this is `repogen diagnose`, which that hint names.
    """
    errors = [error for _, error in failures]
    # Of two errors in the same step, one about a value-dependent branch is more specific than one about a fixed size.
    main = main or max(errors, key=lambda error: (error.exit_code, error.code == "export.data-dependent"))
    if len(errors) == 1 and not all_tried:
        return main
    hints = (error.hint.removesuffix(OTHER_EXPORTER).removesuffix("; or ") for error in (main, *errors))
    acceptable = all(error.code == "parity.drift" for error in errors)
    hint = next(filter(None, hints), _TOLERANCES if acceptable else "")
    if len(errors) == 1:
        return main if hint == main.hint else error_from_record(replace(main.record, hint=hint))
    reasons = "\n".join(f"  {name}: {error.message}" for name, error in failures)
    record = replace(
        main.record,
        message=f"every exporter failed:\n{reasons}",
        hint=hint,
        where=main.where or next((error.where for error in errors if error.where), ""),
        details="\n\n".join(error.details for error in errors if error.details),
    )
    return error_from_record(record)
