"""Progress on standard error: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from repogen.artifacts.progress import Progress, Silent
from repogen.reporting.output import write_text
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, TextIO

    from rich.console import RenderableType
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_KIB = 2**10
_MEGABYTE = 10**6
_MAX_LENGTH = 2_000
_ENDED = {"done": "green", "failed": "red"}
"""The last steps of a model, and their colors."""
_STEPS = {
    "preflight": "check what the build needs",
    "cache": "cache: look for an earlier result for the same inputs",
    "import": "import: start a process with torch",
    "source": "source: load the model and run it",
    "export": "export to ONNX",
    "optimize": "optimize the graph",
    "validate": "validate: compare with the original at many shapes",
    "keep": "cache: keep the verified model",
    "configure": "configure: write config.pbtxt",
    "stage": "stage: copy the files next to the repository",
    "server": "server: wait until Triton has started",
    "smoke": "smoke: load and test on Triton",
    "track": "track: log to MLflow",
    "fetch": "fetch: download from the registry",
    "confirm": "confirm in MLflow's registry",
}
"""What a step does, where its name does not explain it."""


def _amount(done: int, total: int) -> str:
    """Return how much of a file was transferred.

    >>> _amount(0, 300), _amount(2_000, 500_000), _amount(10**6, 2 * 10**6)
    ('0 of 1 KiB', '2 of 489 KiB', '1 of 2 MB')
    """
    if total < _MEGABYTE:
        return f"{-(-done // _KIB)} of {-(-total // _KIB)} KiB"
    return f"{done / _MEGABYTE:.0f} of {total / _MEGABYTE:.0f} MB"


@contextmanager
def progress_view(*, quiet: bool) -> Iterator[Progress]:
    """Yield the Progress that fits standard error.

    Args:
        quiet: Print nothing (``--json``).
    """
    if quiet:
        yield Silent()
    elif sys.stderr.isatty() and os.environ.get("GITHUB_ACTIONS") != "true":  # some runners allocate a terminal
        with _live() as live:
            yield live
    else:
        yield PlainProgress()


class PlainProgress:
    """One line per event, with the seconds since the start: for CI logs."""

    def __init__(self) -> None:
        """Start the clock."""
        self._begun = time.monotonic()
        self._printed: dict[str, int] = {}
        self._steps: dict[str, str] = {}

    def step(self, model: str, step: str) -> None:
        """Print the step, unless it is the model's current one."""
        if (model or step not in _ENDED) and self._steps.get(model) != step:
            self._steps[model] = step
            self._line(f"{model + ': ' if model else ''}{_STEPS.get(step, step)}")

    def note(self, model: str, text: str) -> None:
        """Print the note."""
        self._line(f"{model + ': ' if model else ''}note: {text}")

    def download(self, what: str, done: int, total: int) -> None:
        """Print each tenth of a download."""
        tenth = 10 * done // total if total else 0
        if tenth > self._printed.get(what, -1):
            self._printed[what] = tenth
            self._line(f"{what}: {_amount(done, total)}")

    def _line(self, text: str) -> None:
        write_text(f"[{time.monotonic() - self._begun:6.1f}s] {printable(text, _MAX_LENGTH)}", err=True)


class LiveProgress:
    """One line per model with its current step, and one bar per download.

    Args:
        view: A started rich Progress.
    """

    def __init__(self, view: RichProgress) -> None:
        """Start with an empty view."""
        self._view = view
        self._lines: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def step(self, model: str, step: str) -> None:
        """Show the step in the line of the model."""
        self._show(model or "repogen", _STEPS.get(step, step), None, None)

    def note(self, model: str, text: str) -> None:
        """Print the note above the lines."""
        line = printable(f"{model or 'repogen'}: {text}", _MAX_LENGTH)
        self._view.console.print(line, markup=False, highlight=False)

    def download(self, what: str, done: int, total: int) -> None:
        """Update the bar."""
        self._show(what, _amount(done, total), done, total)

    def close(self) -> None:
        """Remove the lines of steps that have not ended: the command has, and its report follows."""
        for task in self._view.tasks:
            if not task.finished:
                self._view.remove_task(task.id)

    def _show(self, line: str, text: str, done: int | None, total: int | None) -> None:
        line, text = printable(line), printable(text)
        with self._lock:
            if line not in self._lines:
                self._lines[line] = self._view.add_task(line, total=total, state=text)
            ended = text in _ENDED
            self._view.update(
                self._lines[line],
                state=text,
                completed=1 if ended else done,
                total=1 if ended else total,
                refresh=True,
            )


@contextmanager
def _live() -> Iterator[LiveProgress]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class DownloadBar(BarColumn):
        """A bar for a line with a known total, which only downloads have."""

        def render(self, task: Task) -> RenderableType:  # type: ignore[override] # a column may render anything
            return Text() if task.total is None or task.finished else super().render(task)

    class Shortened(TextColumn):
        """Text that is cut where the terminal is too narrow; rich shortens columns that may wrap before others."""

        def __init__(self, text: str) -> None:
            super().__init__(text, markup=False, table_column=Column())

        def render(self, task: Task) -> Text:
            return Text(self.text_format.format(task=task), overflow="ellipsis", no_wrap=True)

    class State(Shortened):
        """The step of a model, in color when it is the last one."""

        def render(self, task: Task) -> Text:
            state = str(task.fields["state"])
            return Text(state, style=_ENDED.get(state, ""), overflow="ellipsis", no_wrap=True)

    columns = (
        SpinnerColumn(finished_text=" ", table_column=Column(no_wrap=True)),
        Shortened("{task.description}"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        DownloadBar(bar_width=16, table_column=Column(no_wrap=True)),
        State(""),
    )
    console = Console(file=cast("IO[str]", _Stream(sys.stderr)))
    with Progress(*columns, console=console) as view:
        progress = LiveProgress(view)
        yield progress
        progress.close()


class _Stream:
    """A stream that ignores errors: the terminal may be closed, and the command then has to clean up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
