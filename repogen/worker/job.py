"""What the worker is asked and what it answers, as JSON: nothing that user code made is unpickled here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import Literal

from pydantic import TypeAdapter

from repogen.errors import ErrorRecord  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same
from repogen.values.artifacts import BuiltModel  # noqa: TC001 - the same


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
    """

    name: str
    model: ModelSpec
    root: Path
    release: str
    work_dir: Path
    threads: int


@dataclass(frozen=True)
class Event:
    """One line from the worker: a step entered, a note, the result, or the error.

    Attributes:
        kind: Which of them.
        text: The step or the note.
        built: With ``built``.
        error: With ``error``.
    """

    kind: Literal["step", "note", "built", "error"]
    text: str = ""
    built: BuiltModel | None = None
    error: ErrorRecord | None = None


JOB: TypeAdapter[Job] = TypeAdapter(Job)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
