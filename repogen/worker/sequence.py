"""The steps that need the user's model in memory, and the fall-back from one exporter to the next."""

from __future__ import annotations

import gc
import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.errors import ExportError, ParityError, RepogenError
from repogen.export import Exporter, export_with, exporters
from repogen.graph import Finishing
from repogen.optimize import optimize
from repogen.source import load_source
from repogen.validate import Validation, validate
from repogen.values.artifacts import BuiltModel, OnnxArtifact, PassOutcome, RungOutcome
from repogen.values.target import targets
from repogen.worker.imports import imported_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.values.source import SourceModel
    from repogen.worker.job import Job

# The model's own fault: another exporter would meet it again.
_MODEL_FAULTS = frozenset({"parity.not-finite", "parity.non-deterministic"})


class Clock:
    """Tells which step the worker is in, and adds up how long each took.

    Args:
        announce: Called with the name of each step entered.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        """Start with no step."""
        self._announce = announce
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        self._announce(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


@dataclass(frozen=True)
class _Rung:
    """A faithful graph with its proofs."""

    exported: OnnxArtifact
    artifact: OnnxArtifact
    passes: tuple[PassOutcome, ...]
    validation: Validation
    golden_dir: Path


def build_model(job: Job, clock: Clock) -> BuiltModel:
    """Run the steps for one model; try the next exporter when one's graph does not hold.

    Raises:
        RepogenError: The first step that failed, with every exporter's reason when all of them did.
    """
    with clock.step("source"):
        source = load_source(job.model, job.root)
    rungs: list[RungOutcome] = []
    errors: list[RepogenError] = []
    for exporter in exporters(job.model.export):
        begun = time.monotonic()
        try:
            rung = _climb(exporter, source, job, clock)
        except (ExportError, ParityError) as error:
            if error.code in _MODEL_FAULTS:
                raise
            errors.append(error)
            rungs.append(RungOutcome(exporter.name, ok=False, reason=error.message, seconds=time.monotonic() - begun))
            continue
        rungs.append(RungOutcome(exporter.name, ok=True, reason="", seconds=time.monotonic() - begun))
        return BuiltModel(
            artifact=rung.artifact,
            golden_dir=rung.golden_dir,
            nodes_exported=rung.exported.nodes,
            rungs=tuple(rungs),
            passes=rung.passes,
            parity=rung.validation.parity,
            batch=rung.validation.batch,
            notes=source.notes,
            imported=imported_code(job.root),
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            seconds=clock.seconds,
        )
    raise none_worked(rungs, errors)


def _climb(exporter: Exporter, source: SourceModel, job: Job, clock: Clock) -> _Rung:
    """Export with one exporter, optimize, validate; drop the optimization when only it spoils parity."""
    target = targets()[job.release]
    finishing = Finishing(source.signature, target, job.model.export.external_data, exporter.name)
    directory = job.work_dir / exporter.name
    directory.mkdir()
    with clock.step("export"):
        exported = export_with(exporter, source, job.model.export, finishing, directory)
    gc.collect()  # the exporter's graph has cycles and holds every weight once more
    with clock.step("optimize"):
        artifact, passes = optimize(exported, job.model.optimize, finishing, directory)
    golden = directory / "golden"
    with clock.step("validate"):
        try:
            validation = validate(artifact, source, job.model, target, golden)
        except (ExportError, ParityError) as error:
            if artifact is exported or error.code in _MODEL_FAULTS:
                raise
            passes = tuple(replace(p, applied=False, nodes_after=p.nodes_before, reason=error.message) for p in passes)
            artifact = exported
            validation = validate(artifact, source, job.model, target, golden)
    return _Rung(exported, artifact, passes, validation, golden)


def none_worked(rungs: list[RungOutcome], errors: list[RepogenError]) -> RepogenError:
    """Return the error to raise when no exporter held: the one that came furthest, with every one's reason."""
    main = max(errors, key=lambda error: error.exit_code)
    if len(errors) == 1:
        return main
    reasons = "\n".join(f"  {rung.exporter}: {rung.reason}" for rung in rungs)
    return type(main)(
        f"no exporter kept the model as it is:\n{reasons}",
        main.hint or next((error.hint for error in errors if error.hint), ""),
        code=main.code,
        where=main.where or next((error.where for error in errors if error.where), ""),
        details="\n\n".join(error.details for error in errors if error.details),
    )
