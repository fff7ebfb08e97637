"""What the search needs from a server: a ``TestBed``, which a test can replace with a function of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from repogen.artifacts.tune import Figures, Settings


class Candidate(Protocol):
    """A config that is served, and whose outputs are correct."""

    def measure(self, seconds: float) -> Figures:
        """Send requests for some time.

        Raises:
            BenchError: The measurement failed.
        """


class TestBed(Protocol):
    """Serves one config at a time."""

    def open(self, settings: Settings) -> AbstractContextManager[Candidate]:
        """Serve the config with these settings while the block runs.

        Raises:
            RepogenError: The settings cannot be rendered or served, or the outputs are wrong.
        """
