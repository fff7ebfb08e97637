"""A filesystem that fails once, at a chosen operation; publish and sync must survive it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from repogen.repository.filesystem import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Failing(Disk):
    """A filesystem whose operation number ``at`` fails, before or after it took effect."""

    def __init__(self, at: int, *, late: bool) -> None:
        """Initialize with the number of the operation that fails."""
        self.left = at
        self.late = late

    def _run(self, deed: Callable[[], None]) -> None:
        self.left -= 1
        if self.left != -1 or self.late:
            deed()
        if self.left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "disk")

    def rename(self, source: Path, target: Path) -> None:
        """Rename, or fail."""
        self._run(lambda: Disk.rename(self, source, target))

    def exchange(self, first: Path, second: Path) -> None:
        """Swap, or fail."""
        self._run(lambda: Disk.exchange(self, first, second))

    def write(self, path: Path, text: str) -> None:
        """Write, or fail."""
        self._run(lambda: Disk.write(self, path, text))

    def remove(self, path: Path) -> None:
        """Remove, or fail."""
        self._run(lambda: Disk.remove(self, path))
