"""Pickles that create a file ``bait`` in the case's directory when they are loaded; it must not exist afterward."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pathlib import Path


class _Opens:
    """Opens a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        """Call ``open``, in place of harmful code."""
        return io.open, (self.path, "w")


def bomb(directory: Path, name: str) -> None:
    """Write a ``torch.save`` archive with such an object instead of a tensor."""
    torch.save({"weight": _Opens(str(directory / "bait"))}, directory / name)


def bare_bomb(directory: Path, name: str) -> None:
    """Write a bare pickle with such an object."""
    (directory / name).write_bytes(pickle.dumps(_Opens(str(directory / "bait"))))
