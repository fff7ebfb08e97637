"""Files that are read more than once: scanned first, and then loaded by a library that opens them by their names."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.content import copy_bytes, open_regular
from repogen.files.paths import is_own_place, is_private

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def private_file(path: Path) -> Iterator[Path]:
    """Yield a path whose file no other user can change or replace: the path itself, or that of a private copy.

    The copy has the same name, and is removed at the end.

    Args:
        path: A regular file. Symlinks are followed.

    Raises:
        OSError: The file cannot be read or copied.
    """
    if is_private(path) and is_own_place(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        with open_regular(path) as reader, copy.open("xb") as writer:
            copy_bytes(reader, writer, os.fstat(reader.fileno()).st_size)
        yield copy
