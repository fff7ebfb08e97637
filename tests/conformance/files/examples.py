"""Example inputs in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy

if TYPE_CHECKING:
    from pathlib import Path


def two_files(directory: Path, kind: str) -> None:
    """Write an input of 2 rows to one file, and of 5 rows to another."""
    rng = np.random.default_rng(0)
    for name, rows in (("two", 2), ("five", 5)):
        arrays = {"input": rng.standard_normal((rows, 4)).astype(np.float32)}
        if kind == "npz":
            np.savez(directory / f"{name}.npz", **arrays)  # type: ignore[arg-type] # arrays by name
        else:
            safetensors.numpy.save_file(arrays, directory / f"{name}.safetensors")
