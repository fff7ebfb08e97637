"""An executor that runs each task in a copy of the spec's directory: ``--executor copy=DIRECTORY``."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.executors.process import run_task

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from repogen.executors.interface import Task, Workplace


class CopyExecutor:
    """Runs tasks in a directory of their own, as if it were another machine."""

    name = "copy"

    @contextmanager
    def open(self, workplace: Workplace, address: str) -> Iterator[Copies]:
        """Copy the spec's directory."""
        with tempfile.TemporaryDirectory(dir=address or None) as directory:
            root = Path(directory, "spec")
            shutil.copytree(workplace.root, root, ignore=shutil.ignore_patterns(*workplace.unused))
            yield Copies(root)


class Copies:
    """The copy."""

    jobs = 2

    def __init__(self, root: Path) -> None:
        """Run tasks in ``root``."""
        self._root = root

    def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
        """Run a task with copies of its files."""
        with tempfile.TemporaryDirectory(dir=self._root.parent) as directory:
            inputs, outputs = Path(directory, "inputs"), Path(directory, "outputs")
            shutil.copytree(task.inputs, inputs)
            outputs.mkdir()
            for step in run_task(self._root, inputs, outputs):
                if cancelled.is_set():
                    raise KeyboardInterrupt
                progress(f"{step} (copy)")
            shutil.copytree(outputs, task.outputs, dirs_exist_ok=True)
