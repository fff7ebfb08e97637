"""What the processes that run models receive and send, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import Literal

from pydantic import TypeAdapter

from repogen.errors import ErrorRecord  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same


@dataclass(frozen=True)
class TorchJob:
    """A model of a spec to run in PyTorch.

    Attributes:
        compiled: Whether to run it with torch.compile.
        model: Its spec entry.
        root: Directory of the spec.
        fetched: Directory of the files that were downloaded for an ``mlflow`` source; None for every other.
        inputs: File of the inputs by batch size; the key of each array is the index of the input.
        names: Names of the inputs, in this order.
        version_dir: The published version, whose first golden case the outputs are compared with.
        batched: Whether axis 0 of the inputs is the batch.
        threads: Number of compute threads.
        commands: Pipe with the measurements to make.
        work_dir: Directory for temporary files.
    """

    compiled: bool
    model: ModelSpec
    root: Path
    fetched: Path | None
    inputs: dict[int, Path]
    names: tuple[str, ...]
    version_dir: Path
    batched: bool
    threads: int
    commands: Path
    work_dir: Path


@dataclass(frozen=True)
class OnnxJob:
    """A graph to run in ONNX Runtime.

    Attributes:
        python: The interpreter of the embedded Triton.
        file: JSON file with the rest of the job.
    """

    python: str
    file: Path


@dataclass(frozen=True)
class RunnerEvent:
    """One event of a process that runs a model.

    Attributes:
        kind: ``ready`` once it is warmed up; ``round`` after each measurement; ``failed`` is the last.
        latencies: Duration of each call in milliseconds, with ``round``.
        version: Version of PyTorch or ONNX Runtime, with ``ready``.
        note: What the user should know, with ``ready``.
        error: Why it failed, with ``failed``.
    """

    kind: Literal["ready", "round", "failed"]
    latencies: tuple[float, ...] = ()
    version: str = ""
    note: str = ""
    error: ErrorRecord | None = None


TORCH_JOB: TypeAdapter[TorchJob] = TypeAdapter(TorchJob)
ONNX_JOB: TypeAdapter[OnnxJob] = TypeAdapter(OnnxJob)
EVENT: TypeAdapter[RunnerEvent] = TypeAdapter(RunnerEvent)
