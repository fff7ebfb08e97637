"""Golden cases on the wire: repeated rows and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from repogen.smoke.deployed_model import WireCase


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_tiled(size: int) -> None:
    """Inputs and outputs repeat the rows."""
    x, y = np.arange(12).reshape(3, 2, 2), np.arange(3)
    case = WireCase("c", 3, {"x": x}, {"y": y}).tiled(size)
    rows = [row % 3 for row in range(size)]
    assert (size, x[rows].tolist(), y[rows].tolist()) == (
        case.batch,
        case.inputs["x"].tolist(),
        case.outputs["y"].tolist(),
    )


def test_row_bytes() -> None:
    """Strings count with their length and its four bytes."""
    strings = np.array([[b"a" * 96], [b"a" * 196]], dtype=object)
    case = WireCase("c", 2, {"text": strings, "n": np.zeros((2, 3), np.float32)}, {"y": np.zeros((2, 5), np.int8)})
    assert (case.row_bytes, case.output_row_bytes) == (150 + 12, 5)
