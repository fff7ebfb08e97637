"""The interface of an executor: it runs the tasks of a build, one per model, on any machine.

A task is a directory of input files, a copy of the spec's directory, and an empty directory for its output files. On
the machine, ``repogen.executors.process.run_task`` runs it, or the command that ``task_command`` returns. An executor
copies the files to the machine and back, and chooses the machine. Publishing is not a part of a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from repogen.errors import ExportError, SpecError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path


@dataclass(frozen=True)
class Workplace:
    """What all tasks of a build share.

    Attributes:
        root: Directory of the spec; tasks run in a copy of it.
        unused: Files and directories below it that tasks do not read, such as the repository; relative to it.
        packages: Directories of packages, and files of modules, that tasks import from elsewhere; they are not
            installed, so the directory that contains the copy of each must be on Python's path.
    """

    root: Path
    unused: tuple[str, ...]
    packages: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Task:
    """The export, the verification and the smoke test of one model.

    Attributes:
        name: The model.
        inputs: Directory of files that the task reads.
        outputs: Empty directory for the files that it writes.
        cpus: Number of processors that it uses.
        memory_mb: Memory that it needs, in MiB; None if the spec does not set it.
        gpus: Number of GPUs that it needs.
    """

    name: str
    inputs: Path
    outputs: Path
    cpus: int = 1
    memory_mb: int | None = None
    gpus: int = 0


class TaskLostError(ExportError):
    """The machine of a task, or the process of the task, ended before the result arrived (exit 3)."""

    default_code = "executor.lost"


def unusable_file(name: str, why: str) -> SpecError:
    """Return the error that a machine returned a file which is not part of the result of a task."""
    return SpecError(
        f"a machine returned a file named {name[:200]!r}, {why}",
        "check which code runs on the machine, and check the executor",
        code="executor.file",
    )


class RunningExecutor(Protocol):
    """An executor that is connected.

    Attributes:
        jobs: Number of tasks to start at the same time; those that do not fit wait in the executor.
    """

    jobs: int

    def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
        """Run a task, and copy its output files to ``task.outputs``; called from one thread per task.

        Args:
            task: The task.
            progress: Receives each step.
            cancelled: When set, the task is ended.

        Raises:
            TaskLostError: The machine or the process of the task ended, and so did repeated attempts.
            RepogenError: The task cannot run anywhere.
            KeyboardInterrupt: It was cancelled.
        """


@runtime_checkable
class Executor(Protocol):
    """An entry point of ``repogen.executors``; its name is what ``--executor`` accepts."""

    name: str

    def open(self, workplace: Workplace, address: str) -> AbstractContextManager[RunningExecutor | None]:
        """Connect to the machines; the end of the block ends what still runs.

        Args:
            workplace: What the tasks share.
            address: What follows the name in ``--executor NAME=ADDRESS``; empty without one.

        Returns:
            A context manager with the connected executor; None if models are built by this process itself.

        Raises:
            RepogenError: It cannot be used.
        """
