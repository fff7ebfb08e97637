"""Starts the processes that run a model in PyTorch or ONNX Runtime, and lets them measure one after another."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Self

from repogen.bench import loop
from repogen.bench.jobs import EVENT, ONNX_JOB, TORCH_JOB, OnnxJob, TorchJob
from repogen.bench.statistics import summarize
from repogen.errors import BenchError, error_from_record
from repogen.machine import available_processors
from repogen.worker.process_tree import peak_memory
from repogen.worker.supervisor import SupervisedProcess, SupervisionError, Task, TimeLimitError, job_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.bench import Sample
    from repogen.bench.jobs import RunnerEvent
    from repogen.serving.install import Installation

_CALL_SECONDS = 300.0
"""Time limit of one measurement, in addition to its duration."""


class Runner:
    """A process that runs a model; a context manager that ends it.

    Args:
        task: The process.
        commands: The pipe from which it reads what to measure; created here.
    """

    def __init__(self, task: Task, commands: Path) -> None:
        """Start the process, which loads the model while others are started."""
        os.mkfifo(commands)
        # Opened for both, so that neither side waits for the other.
        self._commands = os.open(commands, os.O_RDWR)
        self._process = SupervisedProcess(task)
        self._events: Iterator[RunnerEvent] = self._process.events(EVENT)

    def __enter__(self) -> Self:
        """Return the runner."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and everything that it started."""
        os.close(self._commands)
        self._process.__exit__()

    def wait(self, seconds: float) -> RunnerEvent:
        """Return the event of the warmed-up model.

        Raises:
            BenchError: The model failed, or needs more time than this.
        """
        return self._next(seconds)

    def measure(self, batch: int, seconds: float) -> Sample:
        """Run a batch size for some time.

        Raises:
            BenchError: The model failed.
        """
        os.write(self._commands, f"{batch} {seconds}\n".encode("ascii"))
        return summarize(self._next(seconds + _CALL_SECONDS).latencies, batch)

    @property
    def memory_bytes(self) -> int:
        """Largest resident memory of the process and of those that it started."""
        return peak_memory(self._process.pid)

    def _next(self, seconds: float) -> RunnerEvent:
        self._process.limit_time(seconds)
        try:
            event = next(self._events)
        except TimeLimitError as error:
            raise BenchError(f"was still running after {seconds:g} s", code="bench.runner") from error
        except SupervisionError as error:
            raise BenchError(f"its process {error}{self._process.log.suffix}", code="bench.runner") from error
        if event.error is not None:
            raise error_from_record(event.error)
        return event


def start_torch(job: TorchJob) -> Runner:
    """Start a process that runs the model in PyTorch."""
    threads = str(job.threads)
    environment = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "HF_MODULES_CACHE": str(job.work_dir / "huggingface"),  # HF_HOME may be shared
    }
    content = job_json(TORCH_JOB, job)
    task = Task("repogen.bench.torch_child", content, job.root, job.work_dir / "log", environment)
    return Runner(task, job.commands)


def start_onnxruntime(
    model: Path, inputs: dict[int, Path], names: list[str], installation: Installation, directory: Path
) -> Runner:
    """Start a process that runs a graph in the target's ONNX Runtime.

    Args:
        model: The ONNX file.
        inputs: File of the inputs by batch size; the key of each array is the index of the input.
        names: Names of the inputs, in this order.
        installation: The embedded Triton, which has the same ONNX Runtime.
        directory: Empty directory for the files of the process.
    """
    commands, file = directory / "commands", directory / "job.json"
    job = {
        "site": str(installation.site),
        "loop": loop.__file__,
        "model": str(model),
        "inputs": {str(batch): str(path) for batch, path in inputs.items()},
        "names": names,
        "threads": available_processors(),
        "commands": str(commands),
    }
    file.write_text(json.dumps(job), encoding="utf-8")
    content = job_json(ONNX_JOB, OnnxJob(str(installation.python.executable), file))
    return Runner(Task("repogen.bench.onnx_child", content, directory, directory / "log"), commands)
