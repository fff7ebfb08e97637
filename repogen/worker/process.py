"""Builds a model in a worker process, and turns every way in which that process can end into an outcome."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel
from repogen.errors import ExportError, ParityError, RepogenError, error_from_record
from repogen.worker.fork_server import ForkServer
from repogen.worker.job import EVENT, JOB, Event, Job, Outcome
from repogen.worker.supervisor import (
    ENVIRONMENT,
    MemoryLimitError,
    ProcessEndedError,
    ServerEndedError,
    SupervisedProcess,
    SupervisionError,
    Task,
    TimeLimitError,
    job_json,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from repogen.artifacts.progress import Progress
    from repogen.errors import ErrorRecord
    from repogen.spec.models import ModelSpec

_PYTORCH_SOURCES = frozenset({"torch", "huggingface"})
_DYNAMO = frozenset(
    {
        "onnxscript.function_libs.torch_lib.ops",
        "torch.export._trace",
        "torch.onnx._internal.exporter._compat",
        "torch.onnx._internal.exporter._torchlib.ops",
    }
)
_KILLED = "worker.killed"
_CRASHED = "native code crashed; --debug shows the whole stack"
_SIGNAL_HINTS = {
    "SIGKILL": "it may have run out of memory (see dmesg)",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"), _CRASHED),
}


def run_worker(job: Job, progress: Progress, cancelled: threading.Event, server: ForkServer | None = None) -> Outcome:
    """Build a model in a process of its own.

    Args:
        job: The model.
        progress: Receives the worker's steps.
        cancelled: When set, the worker is killed.
        server: Forks the worker; None if it is to be started directly.

    Returns:
        The model; or the error that the worker reported, how it ended, or the limit that it exceeded, with the step.

    Raises:
        KeyboardInterrupt: The build was cancelled.
    """
    try:
        return _run(job, progress, cancelled, server)
    except ServerEndedError:  # no fault of the model: perhaps the kernel ended the server to free memory
        shutil.rmtree(job.work_dir, ignore_errors=True)
        job.work_dir.mkdir(parents=True)
        return _run(job, progress, cancelled, None)


def may_lack_memory(error: ErrorRecord) -> bool:
    """Return whether a worker was killed as Linux kills a process when the memory of the machine is exhausted."""
    return error.code == _KILLED and signal.SIGKILL.name in error.message


def open_fork_server(models: Sequence[ModelSpec], threads: int) -> ForkServer:
    """Return a fork server for the workers of several models, to be used as a context manager.

    Args:
        models: The models.
        threads: Number of compute threads of each worker.
    """
    return ForkServer(common_modules(models), {**ENVIRONMENT, **_thread_settings(threads)})


def common_modules(models: Sequence[ModelSpec]) -> list[str]:
    """Return what the workers of all models import, sorted: the imported distributions are inputs of a build."""
    return sorted(set[str].intersection(*map(_modules, models)))


def _modules(model: ModelSpec) -> set[str]:
    """Return what the worker of a model imports, unless its build fails early."""
    modules = {"repogen.worker.sequence"}
    if model.source.kind in _PYTORCH_SOURCES:
        modules |= {"repogen.source.torch.loader", "torch._dynamo", "torch.onnx"}
        if "dynamo" in model.export.exporters:
            modules |= _DYNAMO
    if model.source.kind == "huggingface":
        modules |= {"repogen.source.huggingface.loader", "transformers"}
    modules |= {"onnxsim" for selected in model.passes if selected.name == "onnxsim"}
    return modules


def _thread_settings(threads: int) -> dict[str, str]:
    """Return the variables of a worker's compute threads.

    By default, threads of OpenMP that wait for each other spin. If other programs use the cores, a thread that is not
    scheduled makes the others spin for milliseconds at each operator: with 15 programs on 2 cores, a ResNet-18 of
    PyTorch took 8 times as long as with threads that sleep.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def _run(job: Job, progress: Progress, cancelled: threading.Event, server: ForkServer | None) -> Outcome:
    environment = {
        # HF_HOME may be shared, and transformers would import what another user created there
        "HF_MODULES_CACHE": str(job.work_dir / "huggingface"),
        **_thread_settings(job.threads),
    }
    log = job.work_dir / "worker.log"
    task = Task("repogen.worker.child", job_json(JOB, job), job.root, log, environment)
    monitor = _Monitor(job, progress)
    with SupervisedProcess(task, cancelled, server) as process:
        try:
            result: BuiltModel | RepogenError = monitor.follow(process)
        except RepogenError as error:
            result = error
    if isinstance(result, RepogenError) and (printed := process.log.text).strip():
        parts = (result.details, f"end of the worker's log:\n{printed}")
        result.details = "\n\n".join(part.rstrip() for part in parts if part)
    return Outcome(monitor.diagnostics, result)


class _Monitor:
    """Follows the events of one worker: its current step, and the diagnostics until then."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        self._step = "import"
        self._began = time.monotonic()
        self.diagnostics = BuildDiagnostics()

    def follow(self, process: SupervisedProcess) -> BuiltModel:
        """Return the model that the worker built.

        Raises:
            RepogenError: The worker reported an error, or was cut short.
        """
        process.limit_time(self._job.model.limits.timeout_seconds)
        if (memory_mb := self._job.model.limits.memory_mb) is not None:
            process.limit_memory(memory_mb)
        try:
            for event in process.events(EVENT):
                self._record(event)
                if event.error is not None:
                    raise error_from_record(event.error)
                if event.built is not None:
                    return event.built
        except ServerEndedError:
            raise
        except SupervisionError as error:
            raise self._cut_short(error, process) from error
        raise AssertionError("events() ends with an exception")

    def _record(self, event: Event) -> None:
        self.diagnostics = event.diagnostics
        if event.kind == "step":
            self._step, self._began = event.step, time.monotonic()
            self._progress.step(self._job.name, event.step)

    def _cut_short(self, error: SupervisionError, process: SupervisedProcess) -> RepogenError:
        """Return the error for a worker that could not report the error itself, and count the time of its last step."""
        seconds = self.diagnostics.seconds.get(self._step, 0.0) + time.monotonic() - self._began
        if self._step != "import":  # a part of the worker's start, which the pipeline measures
            self.diagnostics = replace(self.diagnostics, seconds={**self.diagnostics.seconds, self._step: seconds})
        limits, log = self._job.model.limits, process.log
        match error:
            case TimeLimitError():
                message = f"the step {self._step!r} was still running after {limits.timeout_seconds:g} s"
                hint = "look for an endless loop in the model's code, or raise limits.timeout_seconds"
                code = "worker.timeout"
            case MemoryLimitError():
                message = f"the step {self._step!r} used {error}, more than {limits.memory_mb} MB"
                hint, code = "raise limits.memory_mb, or build on a larger machine", "worker.memory"
            case ProcessEndedError() if error.signal_name:
                message = f"the worker {error} in the step {self._step!r}{log.suffix}"
                hint = _SIGNAL_HINTS.get(error.signal_name, "the model's code or another program sent the signal")
                code = _KILLED
            case _:
                message = f"the worker {error} in the step {self._step!r}{log.suffix}"
                hint = "the model's code called os._exit, or closed or wrote to the worker's files"
                code = "worker.exited"
        kind = ParityError if self._step == "validate" else ExportError
        return kind(message, hint, code=code, where=log.location)
