"""Which sizes to try: each dim at its bounds, its example and between, alone and together, cheapest first."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.values.source import DimRange


@dataclass(frozen=True)
class SweepCase:
    """One parity case to run.

    Attributes:
        sizes: Size of every symbolic dim.
        seed: Seed of the inputs.
        required: Whether it runs whatever the budget.
    """

    sizes: dict[str, int]
    seed: int
    required: bool

    @property
    def name(self) -> str:
        """For example ``batch=2,sequence=16 seed=0``."""
        dims = ",".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{dims} seed={self.seed}".strip()

    @property
    def cost(self) -> int:
        """Product of the sizes: what the compute budget is divided by."""
        return prod(self.sizes.values())


def plan_sweep(dims: Mapping[str, DimRange], seed: int, seeds: int) -> list[SweepCase]:
    """Return the cases: the example on ``seeds`` seeds, everything at its minimum, then the rest by cost.

    Args:
        dims: Symbolic dims.
        seed: First seed.
        seeds: How many seeds at the example size.
    """
    example = {name: dim.example for name, dim in dims.items()}
    low = {name: dim.min for name, dim in dims.items()}
    high = {name: dim.max for name, dim in dims.items()}
    middle = {name: (dim.example + dim.max) // 2 for name, dim in dims.items()}
    first = [SweepCase(example, seed + i, required=i == 0) for i in range(seeds)]
    wanted = [low, middle, high]
    for name in dims:
        wanted += [{**example, name: sizes[name]} for sizes in (low, middle, high)]
        wanted += [{**low, name: example[name]}, {**high, name: low[name]}]
    distinct = {tuple(sizes.values()): sizes for sizes in wanted}
    distinct.pop(tuple(example.values()), None)
    rest = [SweepCase(sizes, seed + seeds + i, required=sizes == low) for i, sizes in enumerate(distinct.values())]
    rest.sort(key=lambda case: (not case.required, case.cost))
    required = [case for case in rest if case.required]
    return [first[0], *required, *first[1:], *(case for case in rest if not case.required)]
