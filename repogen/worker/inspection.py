"""The inspection process: loads a model once to find its inputs and outputs, for `repogen init --from`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - a dataclass's field

from pydantic import TypeAdapter

from repogen.artifacts.tensors import Signature
from repogen.errors import ErrorRecord, SourceError, error_from_record
from repogen.files.temporary import temporary_directory
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same
from repogen.worker.supervisor import SupervisedProcess, SupervisionError, Task, job_json

_SECONDS = 300.0


@dataclass(frozen=True)
class InspectionJob:
    """A model to load.

    Attributes:
        model: Its block of the spec.
        root: Directory that paths are relative to; created if it does not exist, because `..` in a path needs it.
    """

    model: ModelSpec
    root: Path


@dataclass(frozen=True)
class Inspection:
    """What loading a model showed.

    Attributes:
        signature: Inputs with symbolic dims by name, and outputs at the example size.
        dims: Smallest and largest size of each symbolic dim.
        notes: Messages of the loader.
        error: Why there is no signature.
    """

    signature: Signature = field(default_factory=lambda: Signature((), ()))
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: ErrorRecord | None = None


JOB: TypeAdapter[InspectionJob] = TypeAdapter(InspectionJob)
EVENT: TypeAdapter[Inspection] = TypeAdapter(Inspection)


def inspect(job: InspectionJob) -> Inspection:
    """Load a model in a process of its own.

    Raises:
        RepogenError: The model could not be loaded, or its process crashed or exceeded the time limit.
    """
    try:
        job.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{job.root} cannot be created: {error.strerror}", code="init.unwritable") from error
    with temporary_directory() as scratch:
        log = scratch / "log"
        task = Task("repogen.worker.inspection_child", job_json(JOB, job), job.root, log)
        with SupervisedProcess(task) as process:
            process.limit_time(_SECONDS)
            try:
                for event in process.events(EVENT):
                    if event.error is not None:
                        raise error_from_record(event.error)
                    return event
            except SupervisionError as error:
                raise SourceError(
                    f"the process that loads the model {error}{process.log.suffix}",
                    code="worker.exited",
                    where=process.log.location,
                    details=process.log.text,
                ) from error
    raise AssertionError("events() ends with an exception")
