"""What the worker is asked and what it answers, as JSON: nothing that user code made is unpickled here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import Literal

from pydantic import TypeAdapter

from repogen.artifacts.built_model import BuiltModel, Learned
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
        threads: Compute threads the worker may use.
        fetched: Directory of the files that were downloaded for an ``mlflow`` source; None for every other.
        every_rung: Whether to go on after the first exporter that holds, to hear of all.
        steps: What an ensemble is made of, and what that is made of, by name.
    """

    name: str
    model: ModelSpec
    root: Path
    release: str
    work_dir: Path
    threads: int
    fetched: Path | None = None
    every_rung: bool = False
    steps: dict[str, BuiltStep] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """One line from the worker: that it started, a step entered, the result, or the error.

    Attributes:
        kind: Which of them.
        text: The worker's process id, or the step.
        learned: What is known of the model by then.
        built: With ``built``.
        error: With ``error``.
    """

    kind: Literal["started", "step", "built", "error"]
    text: str = ""
    learned: Learned = field(default_factory=Learned)
    built: BuiltModel | None = None
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class Outcome:
    """How a worker ended.

    Attributes:
        learned: What it learned of the model until then.
        result: The model, or why there is none.
    """

    learned: Learned
    result: BuiltModel | RepogenError

    def model(self) -> BuiltModel:
        """Return the model.

        Raises:
            RepogenError: There is none.
        """
        if isinstance(self.result, RepogenError):
            raise self.result
        return self.result


JOB: TypeAdapter[Job] = TypeAdapter(Job)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
