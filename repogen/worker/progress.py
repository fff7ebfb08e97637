"""The progress log of a build: its diagnostics are part of every event, so that no end of the worker loses them."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BuildDiagnostics
from repogen.machine import is_linux
from repogen.validate.drift import DriftError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.built_model import ExportAttempt, PassOutcome
    from repogen.errors import RepogenError


class BuildLog:
    """Collects the diagnostics of a build, and times its steps.

    Args:
        on_step: Called with the name of each step when it begins, and the diagnostics until then.
    """

    def __init__(self, on_step: Callable[[str, BuildDiagnostics], None]) -> None:
        """Start with empty diagnostics."""
        self._on_step = on_step
        self._diagnostics = BuildDiagnostics()

    @property
    def diagnostics(self) -> BuildDiagnostics:
        """The diagnostics so far."""
        unit = 1024 if is_linux() else 1  # source: getrusage(2) of Linux and of macOS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return replace(self._diagnostics, peak_rss_bytes=peak)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; the times of a repeated step, as with the next exporter, are added."""
        self._on_step(name, self.diagnostics)
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = self._diagnostics.seconds
            total = seconds.get(name, 0.0) + time.monotonic() - began
            self._diagnostics = replace(self._diagnostics, seconds={**seconds, name: total})

    def add_notes(self, notes: tuple[str, ...]) -> None:
        """Add notes for the report; a repeated note is added once."""
        new = tuple(note for note in notes if note not in self._diagnostics.notes)
        self._diagnostics = replace(self._diagnostics, notes=(*self._diagnostics.notes, *new))

    def set_passes(self, passes: tuple[PassOutcome, ...]) -> None:
        """Set the outcomes of the passes on the current exporter's graph."""
        self._diagnostics = replace(self._diagnostics, passes=passes)

    def add_failure(self, error: RepogenError) -> None:
        """Keep what was measured of a graph that disagrees with the original."""
        if isinstance(error, DriftError):
            self._diagnostics = replace(self._diagnostics, parity=error.parity)

    def add_attempt(self, attempt: ExportAttempt) -> None:
        """Add the outcome of an exporter."""
        self._diagnostics = replace(self._diagnostics, attempts=(*self._diagnostics.attempts, attempt))
