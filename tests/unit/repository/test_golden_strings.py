"""Strings in golden.npz: their very bytes, without pickle."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.repository.golden import packed, unpacked


@given(st.lists(st.binary(max_size=8), max_size=6))
def test_any_bytes_survive(items: list[bytes]) -> None:
    """Also NULs at an end, which NumPy's own strings lose, and empty ones."""
    array = np.empty((len(items), 1), dtype=object)
    array[:, 0] = items
    file = io.BytesIO()
    np.savez(file, **packed("0.in.0", array))  # type: ignore[arg-type] # keys never are allow_pickle
    file.seek(0)

    with np.load(file, allow_pickle=False) as arrays:
        found = unpacked(dict(arrays), "0.in.0")

    assert found.shape == array.shape
    assert found.tolist() == array.tolist()


def test_numbers_are_as_they_are() -> None:
    """One array, under its own key."""
    array = np.arange(3)

    assert list(packed("k", array)) == ["k"]
    assert unpacked(packed("k", array), "k") is array


@pytest.mark.parametrize("ends", [[3, 2], [1, 2], [9]])
def test_strings_that_do_not_fit_together_are_told(ends: list[int]) -> None:
    """A file that somebody changed."""
    with pytest.raises(ValueError, match="do not match their bytes"):
        unpacked({"k": np.zeros(3, np.uint8), "k.ends": np.array(ends)}, "k")
