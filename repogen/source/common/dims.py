"""Symbolic dims: their bounds, and the size that each has while the model is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.source import DimRange
from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.spec.models import DimSpec

BATCH = "batch"
FOUND_BATCH = DimRange(min=1, max=32, example=2)
"""The batch of a model that nobody declared one for."""
_EXAMPLE = 16


def dim_ranges(specs: Mapping[str, DimSpec]) -> dict[str, DimRange]:
    """Choose every dim's example size, all different: equal sizes would let an exporter take two dims for one.

    Raises:
        SourceError: A dim may only be 1.
    """
    ranges: dict[str, DimRange] = {}
    for name, spec in sorted(specs.items(), key=lambda item: item[1].example is None):
        ranges[name] = example_range(name, spec, frozenset(chosen.example for chosen in ranges.values()))
    return {name: ranges[name] for name in specs}


def example_range(name: str, spec: DimSpec, taken: frozenset[int]) -> DimRange:
    """Choose the example size of a dim: the spec's, else 2 for a batch and 16 for others, never 1, not one taken.

    Raises:
        SourceError: The only size allowed is 1.
    """
    if spec.max == 1:
        raise SourceError(
            f"dim {name!r} may only be 1, so it is not dynamic", "write 1 in the shape instead", code="source.dim-one"
        )
    if spec.example is not None:
        return DimRange(spec.min, spec.max, spec.example)
    low = max(spec.min, 2)
    start = min(max(low, 2 if name == BATCH else _EXAMPLE), spec.max)
    candidates = [*range(start, min(spec.max, start + 64) + 1), *range(start, low - 1, -1)]
    return DimRange(spec.min, spec.max, next((c for c in candidates if c not in taken), start))
