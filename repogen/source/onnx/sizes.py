"""Sizes to try for dims of a file that nobody gave bounds for: found by running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.source import DimRange
from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repogen.artifacts.source import Examples, Reference

# What models take: any size; convolutions that need some pixels; networks that halve an image four to six times.
_TRIED = (
    DimRange(1, 64, 16),
    DimRange(2, 64, 16),
    DimRange(8, 64, 16),
    DimRange(16, 64, 32),
    DimRange(32, 128, 64),
    DimRange(64, 256, 128),
    DimRange(224, 224, 224),
    DimRange(1, 1, 1),
)


def find_sizes(
    dims: Mapping[str, DimRange], undeclared: Collection[str], examples: Examples, reference: Reference
) -> dict[str, DimRange]:
    """Return bounds within which a model runs, for the dims that nobody declared; the usual ones when none do.

    Args:
        dims: All dims.
        undeclared: Those to find bounds for.
        examples: Maker of example inputs.
        reference: The model.
    """
    free = [name for name in dims if name in undeclared]
    if not free:
        return {}
    fixed = {name: dim.example for name, dim in dims.items()}
    for tried in _TRIED:
        sizes = {tried.example, tried.min, tried.max, (tried.example + tried.max) // 2}
        if all(_runs({**fixed, **dict.fromkeys(free, size)}, examples, reference) for size in sorted(sizes)):
            return {
                name: _alone(name, tried, {**fixed, **dict.fromkeys(free, tried.example)}, examples, reference)
                for name in free
            }
    return {}


def _alone(name: str, tried: DimRange, fixed: Mapping[str, int], examples: Examples, reference: Reference) -> DimRange:
    """Return bounds for one dim while the others keep their size: as tried, or narrowed to the example's size."""
    runs = all(_runs({**fixed, name: size}, examples, reference) for size in {tried.min, tried.max})
    return tried if runs else DimRange(tried.example, tried.example, tried.example)


def _runs(sizes: Mapping[str, int], examples: Examples, reference: Reference) -> bool:
    try:
        reference(examples(sizes, 0))
    except SourceError:
        return False
    return True
