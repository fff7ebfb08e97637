"""Runs a task in a process of its own on the machine that an executor has chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from repogen.executors.interface import TaskLostError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULT = "result.json"
"""The output file that the process writes last."""
_LOG = "task.log"
_MAX_LOG_BYTES = 16 * 1024
_PATH = "PYTHONPATH"


def task_command(root: Path, inputs: Path, outputs: Path) -> list[str]:
    """Return the command that runs a task; it prints one JSON object per step, with the key ``step``.

    Args:
        root: A copy of the spec's directory.
        inputs: The task's input files.
        outputs: An empty directory.
    """
    return [sys.executable, "-P", "-m", "repogen.build.node", str(root), str(inputs), str(outputs), str(os.getpid())]


def run_task(root: Path, inputs: Path, outputs: Path) -> Iterator[str]:
    """Run a task on this machine, and yield its steps; the process ends with the iterator.

    Args:
        root: A copy of the spec's directory.
        inputs: The task's input files.
        outputs: An empty directory, which receives the output files.

    Raises:
        TaskLostError: The process ended without a result.
    """
    with (
        (inputs / _LOG).open("wb") as log,
        subprocess.Popen(
            task_command(root, inputs, outputs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=root,
            env=_environment(root),
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                yield str(json.loads(line)["step"])
        finally:
            if process.poll() is None and not (outputs / RESULT).is_file():
                process.terminate()
    if not (outputs / RESULT).is_file():
        printed = (inputs / _LOG).read_bytes()[-_MAX_LOG_BYTES:].decode(errors="replace")
        raise TaskLostError(
            f"the process of the task ended with status {process.returncode}",
            "--debug shows what it printed; the machine may have run out of memory",
            details=printed,
        )


def _environment(root: Path) -> dict[str, str]:
    """Return the environment without the spec's directory on Python's path: its modules must not replace others."""
    paths = [path for path in os.environ.get(_PATH, "").split(os.pathsep) if path and path != str(root)]
    return {**os.environ, _PATH: os.pathsep.join(paths)}
