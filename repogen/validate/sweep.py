"""Which sizes to try: each dim at its bounds, its example and between, alone and together, cheapest first."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.artifacts.source import DimRange


@dataclass(frozen=True)
class SweepCase:
    """One parity case to run.

    Attributes:
        sizes: Size of every symbolic dim.
        seed: Seed of the inputs.
        required: Whether it runs whatever the budget.
        probing: Whether the spec says nothing of these very sizes: the original may fail at them.
        golden: Whether its answers may be kept to be asked for again.
    """

    sizes: dict[str, int]
    seed: int
    required: bool
    probing: bool = False
    golden: bool = True

    @property
    def name(self) -> str:
        """For example ``batch=2,sequence=16 seed=0``."""
        dims = ",".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{dims} seed={self.seed}".strip()

    @property
    def cost(self) -> int:
        """Product of the sizes: what the compute budget is divided by."""
        return prod(self.sizes.values())


def plan_sweep(
    dims: Mapping[str, DimRange], seed: int, seeds: int, doubts: Sequence[dict[str, int]] = ()
) -> list[SweepCase]:
    """Return the cases: the example on ``seeds`` seeds, everything at its minimum, then the rest by cost.

    Args:
        dims: Symbolic dims.
        seed: First seed.
        seeds: How many seeds at the example size.
        doubts: Further sizes, which are required.
    """
    example = {name: dim.example for name, dim in dims.items()}
    low = {name: dim.min for name, dim in dims.items()}
    high = {name: dim.max for name, dim in dims.items()}
    middle = {name: (dim.example + dim.max) // 2 for name, dim in dims.items()}
    usual = [low, middle, high]
    for name in dims:
        usual += [{**example, name: sizes[name]} for sizes in (low, middle, high)]
        usual += [{**low, name: example[name]}, {**high, name: low[name]}]
    uneven = {name: _uneven(dim) for name, dim in dims.items()}
    probes = [{**example, name: size} for name, sizes in uneven.items() for size in sizes]
    # One uneven size of each dim runs whatever the budget: all that a user declares may share a divisor.
    required = [low, *doubts, *({**example, name: sizes[0]} for name, sizes in uneven.items() if sizes)]
    rest = [
        SweepCase(
            sizes,
            seed + seeds + i,
            required=sizes in required,
            probing=any(size not in {low[name], high[name], example[name]} for name, size in sizes.items()),
            golden=sizes in usual,
        )
        for i, sizes in enumerate(_distinct([*usual, *probes, *doubts], example))
    ]
    rest.sort(key=lambda case: case.cost)
    lowest = [case for case in rest if case.sizes == low]
    first = [SweepCase(example, seed + i, required=i == 0) for i in range(seeds)]
    return [first[0], *lowest, *first[1:], *(case for case in rest if case.sizes != low)]


def _distinct(wanted: list[dict[str, int]], example: dict[str, int]) -> list[dict[str, int]]:
    """Return sizes without repetition, and without the example's."""
    distinct = {tuple(sizes[name] for name in example): sizes for sizes in wanted}
    distinct.pop(tuple(example.values()), None)
    return list(distinct.values())


def _uneven(dim: DimRange) -> list[int]:
    """Return primes among a dim's sizes, the nearest to the example first: bounds and example may share a divisor."""
    primes = [size for size in range(max(dim.min, 3), dim.max + 1) if all(size % d for d in range(2, isqrt(size) + 1))]
    if not primes:
        return []
    near = min(primes, key=lambda size: (abs(size - dim.example), size))
    return list(dict.fromkeys((near, primes[0], primes[-1])))
