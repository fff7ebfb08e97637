"""A program that publishes a pickled StagedVersion and is killed by SIGKILL at its k-th filesystem operation."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import NoReturn

from repogen.repository.filesystem import Disk
from repogen.repository.publish import publish


class Killed(Disk):
    """The disk, until operation number ``at``: then the process is killed, in the middle of a write."""

    def __init__(self, at: int) -> None:
        """Count down from ``at``."""
        self.left = at

    def _tick(self) -> bool:
        self.left -= 1
        return self.left < 0

    def rename(self, source: Path, target: Path) -> None:
        """Rename or kill the process."""
        if self._tick():
            _die()
        super().rename(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        """Swap or kill the process."""
        if self._tick():
            _die()
        super().exchange(first, second)

    def write(self, path: Path, text: str) -> None:
        """Write everything, or write half and kill the process."""
        if self._tick():
            path.write_text(text[: len(text) // 2])
            _die()
        super().write(path, text)

    def remove(self, path: Path) -> None:
        """Remove or kill the process."""
        if self._tick():
            _die()
        super().remove(path)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    staged = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 - written by the test
    publish(staged, Path(sys.argv[2]), breaking=True, filesystem=Killed(int(sys.argv[3])))
