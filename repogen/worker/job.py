"""What a worker receives and what it sends, as JSON: no object of user code is unpickled in repogen's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import Literal

from pydantic import TypeAdapter

from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel
from repogen.errors import ErrorRecord, RepogenError
from repogen.source.interface import BuiltStep  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same


@dataclass(frozen=True)
class Job:
    """One model to build.

    Attributes:
        name: Model name.
        model: Its spec entry.
        root: Directory of the spec.
        release: Target Triton release.
        work_dir: Empty directory for the worker's files.
        threads: Number of compute threads.
        fetched: Directory of the files that were downloaded for an ``mlflow`` source; None for every other.
        try_all_exporters: Whether to try the remaining exporters after the first one that succeeds.
        steps: Built models that an ensemble uses, and those that they use, by name.
    """

    name: str
    model: ModelSpec
    root: Path
    release: str
    work_dir: Path
    threads: int
    fetched: Path | None = None
    try_all_exporters: bool = False
    steps: dict[str, BuiltStep] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """One event from the worker.

    Attributes:
        kind: ``step`` when a step begins, then ``built`` or ``error``, which is the last.
        step: Name of the step, with ``step``.
        diagnostics: Diagnostics of the build until then.
        built: The model, with ``built``.
        error: The error, with ``error``.
    """

    kind: Literal["step", "built", "error"]
    step: str = ""
    diagnostics: BuildDiagnostics = field(default_factory=BuildDiagnostics)
    built: BuiltModel | None = None
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a worker.

    Attributes:
        diagnostics: Diagnostics of the build until its end.
        result: The model, or the error.
    """

    diagnostics: BuildDiagnostics
    result: BuiltModel | RepogenError

    def model(self) -> BuiltModel:
        """Return the model.

        Raises:
            RepogenError: The build failed.
        """
        if isinstance(self.result, RepogenError):
            raise self.result
        return self.result


JOB: TypeAdapter[Job] = TypeAdapter(Job)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
