"""Plans the parity cases: sizes at which a graph can differ from the original, cheapest first.

Each dim is at its minimum, its maximum, the smallest prime and the prime nearest to its example, and at a prime between
example and maximum; all dims together are at their minimum and their maximum. A prime shares no divisor with the sizes
that a user declares, and shows what only those support.

Large batches are expensive, and what they reveal barely depends on the other dims: they run at small sizes of these.
The case with all dims at their maximum is the most expensive one. It shows what a single dim at its maximum shows, so
these cases run only if the budget does not allow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isqrt, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Sizes

_NOT_SPECIAL = 3
"""Smaller sizes are special: a size of 1 is broadcast, and two values have a trivial mean and order."""


@dataclass(frozen=True)
class SweepCase:
    """One parity case to run.

    Attributes:
        sizes: Size of each symbolic dim.
        seed: Seed of the inputs.
        required: Whether it runs regardless of the budget.
        probing: Whether the sizes are not declared in the spec, so that the original may fail at them.
        golden: Whether it may be recorded as a golden case.
        otherwise: Runs instead if the original fails at undeclared sizes.
        covered_by: Sizes of a case that shows the same: it is not needed if that one ran.
    """

    sizes: Sizes
    seed: int
    required: bool
    probing: bool = False
    golden: bool = True
    otherwise: SweepCase | None = None
    covered_by: Sizes | None = None

    @property
    def name(self) -> str:
        """For example ``batch=2,sequence=16 seed=0``."""
        dims = ",".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{dims} seed={self.seed}".strip()

    @property
    def cost(self) -> int:
        """Product of the sizes, the unit of the compute budget."""
        return prod(self.sizes.values())


class _Levels:
    """The sizes of one dim in a sweep.

    Attributes:
        nearest: The prime nearest to the example; None if the dim has none.
        smallest: The smallest prime; None if the dim has none.
        middle: In the middle of example and maximum.
        between: A prime near it; the middle itself if there is none.
        small: A size that costs little and is not a special case.
    """

    def __init__(self, dim: DimRange) -> None:
        primes = [size for size in range(max(dim.min, 3), dim.max + 1) if _is_prime(size)]
        self.nearest = _nearest(primes, dim.example)
        self.smallest = primes[0] if primes else None
        self.middle = (dim.example + dim.max) // 2
        self.between = _nearest((size for size in primes if dim.example < size < dim.max), self.middle) or self.middle
        self.small = dim.min if dim.min >= _NOT_SPECIAL else min(self.smallest or dim.example, dim.example)


class _Grid:
    """The sizes of all dims in a sweep.

    Args:
        dims: Symbolic dims.
        batch_dim: The dim of axis 0 of all inputs; None if there is none.
    """

    def __init__(self, dims: Mapping[str, DimRange], batch_dim: str | None) -> None:
        self._batch = batch_dim
        self.levels = {name: _Levels(dim) for name, dim in dims.items()}
        self.example = {name: dim.example for name, dim in dims.items()}
        self.low = {name: dim.min for name, dim in dims.items()}
        self.high = {name: dim.max for name, dim in dims.items()}
        self._small = {name: levels.small for name, levels in self.levels.items() if name != batch_dim}

    def bounds(self) -> list[Sizes]:
        """All dims at their bounds, and one of them at another size."""
        sizes: list[Sizes] = [self.low, self.high]
        for name in self.example:
            few_rows = {} if self._batch in {None, name} else {self._batch: self.example[self._batch]}
            sizes += [
                {**self.example, name: self.low[name]},
                {**self.low, name: self.example[name]},
                {**self.high, **few_rows, name: self.low[name]},
            ]
        return sizes

    def large(self) -> list[tuple[Sizes, Sizes]]:
        """One dim above its example, and the sizes to use instead if the original does not support these."""
        pairs: list[tuple[Sizes, Sizes]] = []
        for name, levels in self.levels.items():
            others = {**self.example, **self._small} if name == self._batch else self.example
            pairs += [
                ({**others, name: levels.between}, {**self.example, name: levels.middle}),
                ({**others, name: self.high[name]}, {**self.example, name: self.high[name]}),
            ]
        return pairs

    def maxima(self) -> list[Sizes]:
        """One dim other than the batch at its maximum, and the others at their examples."""
        return [{**self.example, name: size} for name, size in self.high.items() if name != self._batch]

    def near_primes(self) -> list[Sizes]:
        """One dim at the prime nearest to its example."""
        primes = {name: levels.nearest for name, levels in self.levels.items()}
        return [{**self.example, name: prime} for name, prime in primes.items() if prime]

    def small_primes(self) -> list[Sizes]:
        """One dim at its smallest prime."""
        primes = {name: levels.smallest for name, levels in self.levels.items()}
        return [{**self.example, name: prime} for name, prime in primes.items() if prime]

    def is_declared(self, sizes: Sizes) -> bool:
        """Return whether the spec names every size."""
        return all(size in {self.low[name], self.high[name], self.example[name]} for name, size in sizes.items())


def plan_sweep(
    dims: Mapping[str, DimRange],
    seed: int,
    seeds: int,
    extra_sizes: Sequence[Sizes] = (),
    batch_dim: str | None = None,
    smaller: Mapping[str, str] | None = None,
) -> list[SweepCase]:
    """Return the cases: the example with ``seeds`` seeds, all dims at their minimum, then the rest by cost.

    Args:
        dims: Symbolic dims.
        seed: First seed.
        seeds: Number of seeds at the example size.
        extra_sizes: Additional sizes, which are required.
        batch_dim: The dim of axis 0 of all inputs; None if there is none.
        smaller: Dims whose size cannot exceed that of another dim: in a ragged batch, the rows and their elements.
    """
    grid = _Grid(dims, batch_dim)
    # One prime size of each dim is required: all sizes that a user declares may share a divisor.
    possible = partial(_possible, dims=dims, smaller=smaller or {})
    required = [possible(sizes) for sizes in (grid.low, *grid.near_primes(), *extra_sizes)]
    large = [(possible(preferred), possible(other)) for preferred, other in grid.large()]
    bounds, maxima = ([possible(sizes) for sizes in group] for group in (grid.bounds(), grid.maxima()))
    low, high = possible(grid.low), possible(grid.high)
    golden = [*bounds, *(sizes for pair in large for sizes in pair)]
    candidates = [*bounds, *(sizes for sizes, _ in large), *required, *map(possible, grid.small_primes())]

    def case(sizes: Sizes, number: int, otherwise: SweepCase | None = None) -> SweepCase:
        is_required, is_probing = sizes in required, not grid.is_declared(sizes)
        return SweepCase(sizes, seed + seeds + number, is_required, is_probing, sizes in golden, otherwise)

    def planned(sizes: Sizes, number: int) -> SweepCase:
        others = [other for preferred, other in large if preferred == sizes != other]
        complete = case(sizes, number, case(others[0], number) if others else None)
        is_covered = not complete.required and sizes != high and sizes in maxima
        return replace(complete, covered_by=high) if is_covered else complete

    cases = [planned(sizes, number) for number, sizes in enumerate(_distinct(candidates, grid.example))]
    cases.sort(key=lambda case: (case.covered_by is not None, case.cost))
    lowest = [case for case in cases if case.sizes == low]
    first = [SweepCase(possible(grid.example), seed + i, required=i == 0) for i in range(seeds)]
    return [first[0], *lowest, *first[1:], *(case for case in cases if case.sizes != low)]


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


def _is_prime(size: int) -> bool:
    return all(size % divisor for divisor in range(2, isqrt(size) + 1))


def _nearest(sizes: Iterable[int], target: int) -> int | None:
    return min(sizes, key=lambda size: (abs(size - target), size), default=None)
