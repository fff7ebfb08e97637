"""A directory that is nested deeper than Python's recursion limit, and than the longest path of Linux."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEPTH = 3_000


@contextmanager
def deep_tree(directory: Path) -> Iterator[None]:
    """Create 3,000 nested directories in a directory; delete them after the block, because pytest cannot."""
    descriptor = os.open(directory, os.O_RDONLY)
    for _ in range(_DEPTH):
        os.mkdir("d", dir_fd=descriptor)
        child = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    os.close(descriptor)
    try:
        yield
    finally:
        subprocess.run(["/bin/rm", "-rf", "--", directory], check=False)
