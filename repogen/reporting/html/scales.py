"""Scales of plots: positions in percent of the width or height, and their ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMES = "\N{MULTIPLICATION SIGN}"
_MAX_TICKS = 6
_FEW_TICKS = 3
_ZERO_PART = 8.0
"""Percent of a logarithmic scale that are left for values of 0."""
_LOWEST, _HIGHEST = 1e-30, 1e30
_LARGE, _SMALL = 100_000, 0.001
_DIGITS_UP_TO = 1000


@dataclass(frozen=True)
class Tick:
    """A position in percent, and its label."""

    position: float
    label: str


@dataclass(frozen=True)
class Scale:
    """A scale.

    Attributes:
        low: Value at ``start``; for a logarithmic scale, its logarithm.
        high: Value at 100 percent; the same.
        logarithmic: Whether it is logarithmic.
        start: Position of ``low`` in percent; values of 0 are at 0.
        ticks: Its ticks.
    """

    low: float
    high: float
    logarithmic: bool
    start: float
    ticks: tuple[Tick, ...]

    def position(self, value: float) -> float:
        """Return where a value is, in percent.

        >>> linear([0, 10]).position(5), logarithmic([1e-4, 1e-2]).position(1e-3)
        (50.0, 50.0)
        """
        return round(_position(value, self.low, self.high, self.start, logarithmic=self.logarithmic), 2)


def linear(values: Iterable[float]) -> Scale:
    """Return a scale from 0 to the largest of the values, or a little more."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    if largest <= _LOWEST:
        return Scale(0.0, 1.0, logarithmic=False, start=0.0, ticks=(Tick(0.0, "0"),))
    step = _nice(largest / (_MAX_TICKS - 2))
    count = math.ceil(round(largest / step, 9))
    ticks = tuple(Tick(round(100 * i / count, 2), number_text(i * step)) for i in range(count + 1))
    return Scale(0.0, count * step, logarithmic=False, start=0.0, ticks=ticks)


def logarithmic(numbers: Iterable[float]) -> Scale:
    """Return a scale from the decade below the smallest value to the one above the largest.

    Values of 0 get a place of their own on the left.
    """
    finite = [number for number in numbers if math.isfinite(number)]
    positive = [min(max(value, _LOWEST), _HIGHEST) for value in finite if value > 0]
    start = _ZERO_PART if len(positive) < len(finite) else 0.0
    zero = (Tick(0.0, "0"),) if start else ()
    if not positive:
        return Scale(0.0, 1.0, logarithmic=True, start=start, ticks=zero)
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    high = max(high, low + 1)
    step = math.ceil((high - low) / (_MAX_TICKS - 1))
    values = [10.0**power for power in range(low, high + 1, step)]
    if len(values) < _FEW_TICKS:
        values = sorted(values + [factor * value for value in values[:-1] for factor in (2, 5)])
    ticks = tuple(
        Tick(round(_position(value, low, high, start, logarithmic=True), 2), number_text(value)) for value in values
    )
    return Scale(low, high, logarithmic=True, start=start, ticks=(*zero, *ticks))


def number_text(value: float) -> str:
    """Return a number for a label.

    >>> [number_text(value) for value in (0, 1e-7, 0.25, 12.5, 1500, 2_500_000)]
    ['0', '1e-7', '0.25', '12.5', '1,500', '2.5e6']
    """
    if value and not _SMALL <= abs(value) < _LARGE:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{value:,.4g}" if abs(value) < _DIGITS_UP_TO else f"{value:,.0f}"


def _position(value: float, low: float, high: float, start: float, *, logarithmic: bool) -> float:
    if logarithmic:
        if value <= 0:
            return 0.0
        value = math.log10(min(max(value, _LOWEST), _HIGHEST))
    part = min(max((value - low) / (high - low), 0.0), 1.0)
    return start + (100 - start) * part


def _nice(step: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below ``step``."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))
