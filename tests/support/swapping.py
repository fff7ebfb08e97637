"""Another user, who replaces a file or a directory by a symlink at the moment at which a path is opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from repogen.files.resolve import open_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def swap_when_opened(
    monkeypatch: pytest.MonkeyPatch, opened: Path, replaced: Path, target: Path, owner: int | None = None
) -> None:
    """Replace a path by a symlink immediately before a file is opened by its name.

    Args:
        monkeypatch: Restores the functions that open files.
        opened: The file.
        replaced: The file, or a directory above it.
        target: Where the symlink leads to.
        owner: Owner of the symlink; None for this user.
    """

    def swapping(original: Callable[..., int]) -> Callable[..., int]:
        def open_swapped(path: str | bytes | Path, *args: int, **kwargs: int) -> int:
            if os.fspath(path) == str(opened) and not replaced.is_symlink():
                replaced.rename(replaced.with_name(f"{replaced.name}.moved"))
                replaced.symlink_to(target)
                if owner is not None:
                    os.chown(replaced, owner, -1, follow_symlinks=False)
            return original(path, *args, **kwargs)

        return open_swapped

    monkeypatch.setattr(os, "open", swapping(os.open))
    monkeypatch.setattr("repogen.files.content.open_file", swapping(open_file))
