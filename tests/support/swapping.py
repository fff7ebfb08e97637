"""Another user, who replaces a file or a directory by a symlink at the moment at which a path is opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def swap_when_opened(monkeypatch: pytest.MonkeyPatch, opened: Path, replaced: Path, target: Path) -> None:
    """Replace a path by a symlink immediately before a file is opened by its name.

    Args:
        monkeypatch: Restores ``os.open``.
        opened: The file.
        replaced: The file, or a directory above it.
        target: Where the symlink leads to.
    """
    original = os.open

    def swapping(path: str | bytes | Path, *args: int, **kwargs: int) -> int:
        if os.fspath(path) == str(opened) and not replaced.is_symlink():
            replaced.rename(replaced.with_name(f"{replaced.name}.moved"))
            replaced.symlink_to(target)
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swapping)
