"""What the worker knows of its model so far: it goes along with every event, so that no end of the worker loses it."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Learned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.built_model import PassOutcome, RungOutcome


class Ledger:
    """Collects what is learned, tells which step the worker is in, and adds up how long each took.

    Args:
        announce: Called with the name of each step entered, and what is known by then.
    """

    def __init__(self, announce: Callable[[str, Learned], None]) -> None:
        """Start with nothing."""
        self._announce = announce
        self._learned = Learned()

    @property
    def learned(self) -> Learned:
        """Everything so far."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return replace(self._learned, peak_rss_bytes=peak)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; one that comes again, as for the next exporter, is added up."""
        self._announce(name, self.learned)
        begun = time.monotonic()
        try:
            yield
        finally:
            known = self._learned.seconds
            took = time.monotonic() - begun
            self._learned = replace(self._learned, seconds={**known, name: known.get(name, 0.0) + took})

    def note(self, notes: tuple[str, ...]) -> None:
        """Keep what a person should know."""
        fresh = tuple(note for note in notes if note not in self._learned.notes)
        self._learned = replace(self._learned, notes=(*self._learned.notes, *fresh))

    def optimized(self, passes: tuple[PassOutcome, ...]) -> None:
        """Keep what the passes did to the present exporter's graph."""
        self._learned = replace(self._learned, passes=passes)

    def tried(self, rung: RungOutcome) -> None:
        """Keep how an exporter fared."""
        self._learned = replace(self._learned, rungs=(*self._learned.rungs, rung))
