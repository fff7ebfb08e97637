"""Strings in golden.npz: exact bytes, without pickle."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.repository.golden import packed, unpacked


@given(st.lists(st.binary(max_size=8), max_size=6))
def test_any_bytes_round_trip(items: list[bytes]) -> None:
    """Including trailing NULs, which NumPy's strings lose, and empty strings."""
    array = np.empty((len(items), 1), dtype=object)
    array[:, 0] = items
    file = io.BytesIO()
    np.savez(file, **packed("0.in.0", array))  # type: ignore[arg-type] # keys never are allow_pickle
    file.seek(0)

    with np.load(file, allow_pickle=False) as arrays:
        result = unpacked(dict(arrays), "0.in.0")

    assert result.shape == array.shape
    assert result.tolist() == array.tolist()


def test_numbers_are_unchanged() -> None:
    """One array, under its own key."""
    array = np.arange(3)

    assert list(packed("k", array)) == ["k"]
    assert unpacked(packed("k", array), "k") is array


@pytest.mark.parametrize("ends", [[3, 2], [1, 2], [9]])
def test_inconsistent_strings_are_an_error(ends: list[int]) -> None:
    """The ends of the strings do not match their bytes."""
    with pytest.raises(ValueError, match="do not match their bytes"):
        unpacked({"k": np.zeros(3, np.uint8), "k.ends": np.array(ends)}, "k")
