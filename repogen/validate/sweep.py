"""Which sizes to try: each dim at its bounds, its example and between, alone and together, cheapest first."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.values.source import DimRange


@dataclass(frozen=True)
class SweepCase:
    """One parity case to run.

    Attributes:
        sizes: Size of every symbolic dim.
        seed: Seed of the inputs.
        required: Whether it runs whatever the budget.
        probing: Whether the spec says nothing of these very sizes: the original may fail at them.
    """

    sizes: dict[str, int]
    seed: int
    required: bool
    probing: bool = False

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
    first = [SweepCase(example, seed + i, required=i == 0) for i in range(seeds)]
    wanted = [low, middle, high]
    for name in dims:
        wanted += [{**example, name: sizes[name]} for sizes in (low, middle, high)]
        wanted += [{**low, name: example[name]}, {**high, name: low[name]}]
    doubted = {tuple(sizes[name] for name in dims) for sizes in doubts}
    declared = {tuple(sizes.values()): sizes for sizes in wanted}
    probes = [{**example, name: size} for name, dim in dims.items() for size in _uneven(dim)]
    probed = {tuple(sizes[name] for name in dims): sizes for sizes in (*probes, *doubts)}
    # One uneven size of each dim runs whatever the budget: all that a user declares may share a divisor.
    doubted |= {tuple({**example, name: _uneven(dim)[0]}.values()) for name, dim in dims.items() if _uneven(dim)}
    distinct = {**declared, **{key: sizes for key, sizes in probed.items() if key not in declared}}
    distinct.pop(tuple(example.values()), None)
    rest = [
        SweepCase(sizes, seed + seeds + i, required=sizes == low or key in doubted, probing=key not in declared)
        for i, (key, sizes) in enumerate(distinct.items())
    ]
    rest.sort(key=lambda case: case.cost)
    lowest = [case for case in rest if case.sizes == low]
    return [first[0], *lowest, *first[1:], *(case for case in rest if case.sizes != low)]


def _uneven(dim: DimRange) -> list[int]:
    """Return primes among a dim's sizes, the nearest to the example first: bounds and example may share a divisor."""
    primes = [size for size in range(max(dim.min, 3), dim.max + 1) if all(size % d for d in range(2, isqrt(size) + 1))]
    if not primes:
        return []
    near = min(primes, key=lambda size: (abs(size - dim.example), size))
    return list(dict.fromkeys((near, primes[0], primes[-1])))
