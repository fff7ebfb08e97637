"""The steps that need the user's model in memory, and the fall-back from one exporter to the next."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BuiltModel, RungOutcome
from repogen.artifacts.source import Code
from repogen.errors import ExportError, ParityError, RepogenError
from repogen.export.fallback_chain import export_with, exporters
from repogen.onnx_graph.normalize import Finishing
from repogen.optimize.passes import optimize
from repogen.source.load import load_source
from repogen.targets import targets
from repogen.validate.structure import TargetLimitError
from repogen.validate.validation import Validation, prove, validate
from repogen.worker.imports import imported_code
from repogen.worker.timeout import at_most

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact, PassOutcome
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.export.exporter import Exporter
    from repogen.worker.job import Job
    from repogen.worker.progress import Ledger

# The model's own fault: another exporter would meet it again.
_MODEL_FAULTS = frozenset({"parity.not-finite", "parity.non-deterministic", "source.declared-size"})

_LEAST = 1.0


@dataclass(frozen=True)
class _Rung:
    """A faithful graph with its proofs."""

    exported: OnnxArtifact
    artifact: OnnxArtifact
    validation: Validation
    golden_dir: Path


def build_model(job: Job, ledger: Ledger) -> BuiltModel:
    """Run the steps for one model; try the next exporter when one's graph does not hold.

    Raises:
        RepogenError: The first step that failed, with every exporter's reason when all of them did.
    """
    with ledger.step("source"):
        source = load_source(job.model, job.root, job.fetched, job.steps, job.work_dir)
    ledger.note(source.notes)
    if isinstance(source.origin, Code):
        return _proved(source, source.origin, job, ledger)
    failures: list[tuple[str, RepogenError]] = []
    built: BuiltModel | None = None
    doubts: list[dict[str, int]] = []  # of all rungs: what one exporter doubts, the next may freeze without a word
    rungs = exporters(source.origin, job.model.export)
    deadline = time.monotonic() + job.model.limits.timeout_seconds
    for index, exporter in enumerate(rungs):
        begun = time.monotonic()
        # Half of what is left, but for the last one.
        share = (deadline - begun) / (1 if index + 1 == len(rungs) else 2)
        try:
            with at_most(max(share, _LEAST)):
                rung = _climb(exporter, source, job, ledger, doubts)
        except (ExportError, ParityError, TargetLimitError) as error:
            seconds = time.monotonic() - begun
            reason = error.message.partition("\n")[0].removesuffix(":")
            ledger.tried(RungOutcome(exporter.name, ok=False, reason=reason, seconds=seconds))
            failures.append((exporter.name, error))
            if error.code in _MODEL_FAULTS:
                raise none_worked(failures, error) from error
            continue
        if built is None and (unanswered := rung.validation.parity.unanswered):
            ledger.note((_not_taken(unanswered),))
        ledger.tried(RungOutcome(exporter.name, ok=True, reason="", seconds=time.monotonic() - begun))
        built = built or BuiltModel(
            artifact=rung.artifact,
            golden_dir=rung.golden_dir,
            nodes_exported=rung.exported.nodes,
            parity=rung.validation.parity,
            batch=rung.validation.batch,
            imported=imported_code(job.root, source.files),
            companions={companion.name: companion.path for companion in source.companions},
            labels=dict(source.labels),
        )
        if not job.every_rung:
            break
    if built is None:
        raise none_worked(failures)
    return built


def _proved(source: SourceModel, code: Code, job: Job, ledger: Ledger) -> BuiltModel:
    """Prove what there is nothing to export of: Python code, an ensemble."""
    golden = job.work_dir / "golden"
    with ledger.step("validate"):
        validation = prove(source, code.published, job.model, golden)
        if code.told_batch not in {None, validation.batch.max_batch_size}:
            parity = prove(*_told(job, validation.batch.max_batch_size), job.model, golden).parity
            validation = Validation(parity, validation.batch)
    if unanswered := validation.parity.unanswered:
        ledger.note((_not_taken(unanswered),))
    return BuiltModel(
        artifact=code.artifact,
        golden_dir=golden,
        nodes_exported=0,
        parity=validation.parity,
        batch=validation.batch,
        imported=imported_code(job.root, source.files),
        companions={companion.name: companion.path for companion in source.companions},
        labels=dict(source.labels),
    )


def _told(job: Job, largest: int) -> tuple[SourceModel, Reference]:
    """Return Python code again, and another instance, that read in their config the batch which was measured."""
    triton = job.model.triton.model_copy(update={"max_batch_size": largest})
    model = job.model.model_copy(update={"triton": triton})
    source = load_source(model, job.root, job.fetched, job.steps, job.work_dir)
    return source, source.origin.published if isinstance(source.origin, Code) else source.reference


def _not_taken(unanswered: tuple[str, ...]) -> str:
    shown = ", ".join(name.rpartition(" seed=")[0] for name in unanswered[:3])
    return f"the model itself takes some sizes within dims: only, and so does what is published; it fails at {shown}"


def _climb(exporter: Exporter, source: SourceModel, job: Job, ledger: Ledger, doubts: list[dict[str, int]]) -> _Rung:
    """Export with one exporter, optimize, validate; drop the optimization when only it spoils parity."""
    target = targets()[job.release]
    finishing = Finishing(source.signature, target, job.model.export.external_data, exporter.name)
    directory = job.work_dir / exporter.name
    with ledger.step("export"):
        directory.mkdir()
        exported = export_with(exporter, source, job.model.export, finishing, directory)
    doubts += exported.doubts
    gc.collect()  # the exporter's graph has cycles and holds every weight once more
    with ledger.step("optimize"):
        artifact, passes = optimize(exported, job.model.optimize, finishing, directory)
    ledger.optimized(passes)
    if exported.unused:
        ledger.note((f"nothing in the model reads {', '.join(exported.unused)}: taken from clients, and ignored",))
    golden = directory / "golden"
    with ledger.step("validate"):
        try:
            validation = validate(artifact, source, job.model, target, golden, doubts)
        except (ExportError, ParityError, TargetLimitError) as error:
            if artifact is exported or error.code in _MODEL_FAULTS:
                raise
            ledger.optimized(tuple(_dropped(outcome, error.message) for outcome in passes))
            artifact = exported
            validation = validate(artifact, source, job.model, target, golden, doubts)
    return _Rung(exported, artifact, validation, golden)


def _dropped(outcome: PassOutcome, reason: str) -> PassOutcome:
    return replace(outcome, applied=False, nodes_after=outcome.nodes_before, reason=reason)


def none_worked(failures: list[tuple[str, RepogenError]], main: RepogenError | None = None) -> RepogenError:
    """Return the error to raise when no exporter held: the one that came furthest, with every one's reason.

    Args:
        failures: Name of each exporter, and its error.
        main: The error to go by, where one is the model's own fault.
    """
    errors = [error for _, error in failures]
    # Of two that failed at the same step, one that found a branch on values knows more than one that found its size.
    main = main or max(errors, key=lambda error: (error.exit_code, error.code == "export.data-dependent"))
    if len(errors) == 1:
        return main
    reasons = "\n".join(f"  {name}: {error.message}" for name, error in failures)
    return type(main)(
        f"no exporter kept the model as it is:\n{reasons}",
        main.hint or next((error.hint for error in errors if error.hint), ""),
        code=main.code,
        where=main.where or next((error.where for error in errors if error.where), ""),
        details="\n\n".join(error.details for error in errors if error.details),
    )
