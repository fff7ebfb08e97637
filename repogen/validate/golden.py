"""Records a few small parity cases as golden tensors, which any Triton server can be compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json, packed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.sweep import SweepCase
    from repogen.validate.tolerance import Tolerances

_MAX_CASES = 4
_MAX_BYTES = 2 * 1024 * 1024
_MAX_SEQUENCE_BYTES = 8 * 1024 * 1024


class GoldenRecorder:
    """Records the first cases of a sweep, within a limit of cases and bytes."""

    def __init__(self) -> None:
        """Start without cases."""
        self._cases: list[tuple[SweepCase, Arrays, Arrays]] = []
        self._bytes = 0
        self._sequence: list[tuple[SweepCase, Arrays, Arrays]] = []

    def offer(self, case: SweepCase, inputs: Arrays, expected: Arrays, actual: Arrays) -> None:
        """Record the original's outputs of a case that may be golden, and is the first or within the limits."""
        del actual
        if not case.golden:
            return
        size = sum(array.nbytes for array in (*inputs.values(), *expected.values()))
        if not self._cases or (len(self._cases) < _MAX_CASES and self._bytes + size <= _MAX_BYTES):
            self._cases.append((case, dict(inputs), dict(expected)))
            self._bytes += size

    def record_sequence(self, requests: Sequence[tuple[SweepCase, Arrays, Arrays]]) -> None:
        """Record the requests of a sequence in addition to the cases of the sweep, unless they are too large."""
        arrays = [array for _, *sides in requests for side in sides for array in side.values()]
        if sum(array.nbytes for array in arrays) <= _MAX_SEQUENCE_BYTES:
            self._sequence = [(case, dict(inputs), dict(outputs)) for case, inputs, outputs in requests]

    def write(self, directory: Path, batch_dim: str | None, tolerances: Tolerances) -> None:
        """Write ``golden.json`` and ``golden.npz``.

        Args:
            directory: Existing directory.
            batch_dim: The dim that is the batch; None if the model cannot be batched.
            tolerances: (rtol, atol) for each output.
        """
        arrays: dict[str, Array] = {}
        cases = []
        for index, (case, inputs, outputs) in enumerate([*self._cases, *self._sequence]):
            sides = []
            for side, tensors in (("in", inputs), ("out", outputs)):
                keys = {name: f"{index}.{side}.{i}" for i, name in enumerate(tensors)}
                for name, array in tensors.items():
                    arrays.update(packed(keys[name], array))
                sides.append(tuple(GoldenTensor(name, key) for name, key in keys.items()))
            batch = 0 if batch_dim is None else case.sizes[batch_dim]
            cases.append(GoldenCase(case.name, batch, sides[0], sides[1]))
        np.savez(directory / GOLDEN_NPZ, **arrays)  # type: ignore[arg-type] # no key is allow_pickle
        text = golden_to_json(Golden(tuple(cases), tolerances))
        (directory / GOLDEN_JSON).write_text(text, encoding="utf-8")
