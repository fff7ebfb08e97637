"""Variations of the examples: the same values negated and rescaled, which may reach other branches of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array, Arrays

FACTORS = (-1.0, 10.0, 0.1, -10.0)
"""Factors of the floating-point inputs; a model may not support such values."""
_VALUES_PER_NAN = 4


def scaled(inputs: Arrays, factor: float) -> dict[str, Array] | None:
    """Return the inputs with every floating-point array multiplied; None if none is a floating-point array."""
    if not any(array.dtype.kind == "f" for array in inputs.values()):
        return None
    with np.errstate(over="ignore"):
        return {
            name: np.asarray(np.multiply(array, factor, dtype=array.dtype)) if array.dtype.kind == "f" else array
            for name, array in inputs.items()
        }


def with_nan(inputs: Arrays, seed: int) -> dict[str, Array] | None:
    """Return the inputs with NaN at some places of every floating-point array; None if none is a floating-point array.

    Args:
        inputs: Arrays by name.
        seed: Seed of the places.
    """
    if not any(array.dtype.kind == "f" and array.size for array in inputs.values()):
        return None
    draw = np.random.default_rng(seed)
    changed = dict(inputs)
    for name, array in inputs.items():
        if array.dtype.kind == "f":
            is_nan = draw.permutation(array.size) < max(1, array.size // _VALUES_PER_NAN)
            changed[name] = np.where(is_nan.reshape(array.shape), np.asarray(np.nan, array.dtype), array)
    return changed


def only_nan(inputs: Arrays) -> dict[str, Array] | None:
    """Return the inputs with NaN in every floating-point array; None if none is a floating-point array."""
    if not any(array.dtype.kind == "f" for array in inputs.values()):
        return None
    return {name: np.full_like(array, np.nan) if array.dtype.kind == "f" else array for name, array in inputs.items()}


def with_shared_values(row: Arrays, other: Arrays, flat: frozenset[str]) -> list[dict[str, Array]]:
    """Return variants of another row that have some inputs, or some columns of flat inputs, of a row.

    For any two of these parts, at least one variant has the first and not the second: those of the row are the parts
    with equal bits in their number.

    Args:
        row: A batch of one.
        other: Another one.
        flat: Names of the inputs whose columns are separate parts.

    >>> first, second = ({"card": np.array([card]), "shop": np.array([shop])} for card, shop in ((1, 2), (3, 4)))
    >>> [[int(array[0]) for array in variant.values()] for variant in with_shared_values(first, second, frozenset())]
    [[1, 4], [3, 2]]
    """
    parts = [
        (name, column) for name, array in row.items() for column in (range(array.shape[1]) if name in flat else (...,))
    ]
    variants = []
    for bit in range((len(parts) - 1).bit_length()):
        for value in (0, 1):
            variant = {name: array.copy() for name, array in other.items()}
            for number, (name, column) in enumerate(parts):
                if number >> bit & 1 == value:
                    variant[name][0, column] = row[name][0, column]
            variants.append(variant)
    return variants


@dataclass
class Variety:
    """Finds the outputs that are the same for all inputs: they do not depend on them, or the examples are too alike."""

    _first: tuple[dict[str, Array], dict[str, Array]] | None = None
    _constant: set[str] = field(default_factory=set)
    _varied: set[str] = field(default_factory=set)

    def add(self, inputs: Arrays, outputs: Arrays) -> None:
        """Compare a case with the first one, and the values of each output with each other."""
        if self._first is None:
            self._first = (dict(inputs), dict(outputs))
            self._constant |= {name for name, array in outputs.items() if array.size and (array == array.flat[0]).all()}
            return
        first_inputs, first_outputs = self._first
        if all(np.array_equal(array, first_inputs[name]) for name, array in inputs.items()):
            return
        for name, array in outputs.items():
            if first_outputs[name].shape == array.shape:
                equal = np.array_equal(first_outputs[name], array)
                (self._constant if equal else self._varied).add(name)

    @property
    def constant(self) -> list[str]:
        """Names of the outputs that were the same in every case of the same size; none of a model without inputs."""
        return sorted(self._constant - self._varied) if self._first and self._first[0] else []
