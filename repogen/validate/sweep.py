"""Plans the parity cases: each dim at its bounds, its example and between, alone and together, cheapest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Sizes


@dataclass(frozen=True)
class SweepCase:
    """One parity case to run.

    Attributes:
        sizes: Size of each symbolic dim.
        seed: Seed of the inputs.
        required: Whether it runs regardless of the budget.
        probing: Whether the sizes are not declared in the spec, so that the original may fail at them.
        golden: Whether it may be recorded as a golden case.
    """

    sizes: Sizes
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
        """Product of the sizes, the unit of the compute budget."""
        return prod(self.sizes.values())


def plan_sweep(
    dims: Mapping[str, DimRange],
    seed: int,
    seeds: int,
    extra_sizes: Sequence[Sizes] = (),
    smaller: Mapping[str, str] | None = None,
) -> list[SweepCase]:
    """Return the cases: the example with ``seeds`` seeds, all dims at their minimum, then the rest by cost.

    Args:
        dims: Symbolic dims.
        seed: First seed.
        seeds: Number of seeds at the example size.
        extra_sizes: Additional sizes, which are required.
        smaller: Dims whose size cannot exceed that of another dim: in a ragged batch, the rows and their elements.
    """
    example = {name: dim.example for name, dim in dims.items()}
    low = {name: dim.min for name, dim in dims.items()}
    high = {name: dim.max for name, dim in dims.items()}
    middle = {name: (dim.example + dim.max) // 2 for name, dim in dims.items()}
    declared = [low, middle, high]
    for name in dims:
        declared += [{**example, name: sizes[name]} for sizes in (low, middle, high)]
        declared += [{**low, name: example[name]}, {**high, name: low[name]}]
    primes = {name: _prime_sizes(dim) for name, dim in dims.items()}
    probes = [{**example, name: size} for name, sizes in primes.items() for size in sizes]
    # One prime size of each dim is required: all sizes that a user declares may share a divisor.
    required = [low, *extra_sizes, *({**example, name: sizes[0]} for name, sizes in primes.items() if sizes)]
    other_cases = [
        SweepCase(
            sizes,
            seed + seeds + i,
            required=sizes in required,
            probing=any(size not in {low[name], high[name], example[name]} for name, size in sizes.items()),
            golden=sizes in declared,
        )
        for i, sizes in enumerate(_distinct([*declared, *probes, *extra_sizes], example))
    ]
    other_cases.sort(key=lambda case: case.cost)
    lowest = [case for case in other_cases if case.sizes == low]
    first = [SweepCase(example, seed + i, required=i == 0) for i in range(seeds)]
    cases = [first[0], *lowest, *first[1:], *(case for case in other_cases if case.sizes != low)]
    return [replace(case, sizes=_possible(case.sizes, dims, smaller or {})) for case in cases]


def _possible(sizes: Sizes, dims: Mapping[str, DimRange], smaller: Mapping[str, str]) -> Sizes:
    """Return sizes in which each dim of ``smaller`` is at most as large as the other one, which is raised if it can."""
    changed = dict(sizes)
    for few, many in smaller.items():
        changed[many] = max(changed[many], min(changed[few], dims[many].max))
        changed[few] = min(changed[few], changed[many])
    return changed


def _distinct(candidates: list[Sizes], example: Sizes) -> list[Sizes]:
    """Return sizes without duplicates, and without those of the example."""
    distinct = {tuple(sizes[name] for name in example): sizes for sizes in candidates}
    distinct.pop(tuple(example.values()), None)
    return list(distinct.values())


def _prime_sizes(dim: DimRange) -> list[int]:
    """Return three primes among a dim's sizes: the nearest to the example, the smallest, and the largest."""
    primes = [size for size in range(max(dim.min, 3), dim.max + 1) if all(size % d for d in range(2, isqrt(size) + 1))]
    if not primes:
        return []
    nearest = min(primes, key=lambda size: (abs(size - dim.example), size))
    return list(dict.fromkeys((nearest, primes[0], primes[-1])))
