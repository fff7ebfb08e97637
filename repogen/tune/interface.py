"""What the search needs: a ``TestBed``, which a test can replace with a function of the settings, and a builder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.tune import Figures, Settings
    from repogen.spec.models import PassSpec


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


class PassBuilder(Protocol):
    """Builds the model with other optimization passes, by the code that ``repogen build`` uses."""

    def outdated(self, repository: Path, version: int) -> str:
        """Return why the graph of a version is not the one that a build would publish now; empty if it is.

        Raises:
            RepogenError: It cannot be compared.
        """

    def build(self, passes: tuple[PassSpec, ...], repository: Path, progress: Progress) -> ModelReport:
        """Export and verify the model with these passes, and publish it to a new repository, without a smoke test.

        A failure of the model is in the report.

        Raises:
            RepogenError: No model can be built here.
        """
