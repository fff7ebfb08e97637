"""A server that runs the embedded Triton and records its starts: ``--server recording:log=PATH``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 - pydantic evaluates the annotation
from typing import TYPE_CHECKING

from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.interface import ServerOptions, ServerPlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.progress import Progress
    from repogen.serving.interface import ControlMode, RunningTriton
    from repogen.targets import Target


class RecordingOptions(ServerOptions):
    """Options of the server.

    Attributes:
        log: File to which each start is appended.
    """

    log: Path


@dataclass(frozen=True)
class RecordingTriton:
    """The embedded Triton with a log of its starts."""

    embedded: EmbeddedTriton
    log: Path

    def preflight(self) -> None:
        """Check that the embedded Triton can run here."""
        self.embedded.preflight()

    def install(self) -> None:
        """Install the embedded Triton."""
        self.embedded.install()

    @contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningTriton]:
        """Record the start and run the embedded Triton."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{repository.name} {mode.value}\n")
        with self.embedded.running(repository, mode, strict=strict) as triton:
            yield replace(triton, endpoint=replace(triton.endpoint, kind="recording"))


def create(options: RecordingOptions, target: Target, progress: Progress) -> RecordingTriton:
    """Return the server for a target release."""
    return RecordingTriton(EmbeddedTriton(target, progress), options.log)


PLUGIN = ServerPlugin(RecordingOptions, create)
