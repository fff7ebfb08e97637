"""Keeps a few cases, small, so that any Triton anywhere can be asked whether it still agrees with PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json, packed

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.sweep import SweepCase

_MOST_CASES = 4
_MOST_BYTES = 2 * 1024 * 1024


class GoldenKeeper:
    """Takes the first cases of the sweep (the example, the minimum), and others while they are small."""

    def __init__(self) -> None:
        """Start with none."""
        self._kept: list[tuple[SweepCase, Arrays, Arrays]] = []
        self._bytes = 0

    def offer(self, case: SweepCase, inputs: Arrays, outputs: Arrays) -> None:
        """Keep the case if it is required or there is room."""
        size = sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
        room = len(self._kept) < _MOST_CASES and self._bytes + size <= _MOST_BYTES
        if not self._kept or room:
            self._kept.append((case, dict(inputs), dict(outputs)))
            self._bytes += size

    def write(self, directory: Path, batch_dim: str | None, tolerances: dict[str, tuple[float, float]]) -> None:
        """Write ``golden.json`` and ``golden.npz``.

        Args:
            directory: Existing directory.
            batch_dim: The dim that is the batch; None when the model does not batch.
            tolerances: (rtol, atol) by output.
        """
        arrays: dict[str, Array] = {}
        cases = []
        for index, (case, inputs, outputs) in enumerate(self._kept):
            places = []
            for side, tensors in (("in", inputs), ("out", outputs)):
                keyed = [(name, f"{index}.{side}.{i}", array) for i, (name, array) in enumerate(tensors.items())]
                for _, key, array in keyed:
                    arrays.update(packed(key, array))
                places.append(tuple(GoldenTensor(name, key) for name, key, _ in keyed))
            batch = 0 if batch_dim is None else case.sizes[batch_dim]
            cases.append(GoldenCase(case.name, batch, places[0], places[1]))
        np.savez(directory / GOLDEN_NPZ, **arrays)  # type: ignore[arg-type] # keys never are allow_pickle
        text = golden_to_json(Golden(tuple(cases), tolerances))
        (directory / GOLDEN_JSON).write_text(text, encoding="utf-8")
