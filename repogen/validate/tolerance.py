"""How far an output may differ: relative to each value, and relative to the magnitude of the whole output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.artifacts.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repogen.artifacts.built_model import Precision
    from repogen.artifacts.tensors import Array, Arrays, Signature
    from repogen.spec.models import ParitySpec

    _Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

Tolerances: TypeAlias = dict[str, tuple[float, float]]
"""(rtol, atol) for each output."""

# About the error of reordered sums and fused kernels over the depth of a network in that precision: relative to a
# value, and relative to the magnitude of its output.
_BY_DTYPE = {
    "qint8": (1e-1, 1e-1),  # one step of a quantized value: rounding of ties differs between kernels
    "bfloat16": (5e-2, 5e-2),
    "float16": (1e-2, 1e-2),
    "float32": (1e-3, 1e-5),
    "float64": (1e-6, 1e-8),
}
_COARSEST_FIRST: tuple[Precision, ...] = ("qint8", "bfloat16", "float16")
_CEILING = 2.0
"""The ceiling of the absolute tolerance, in units of the default rtol."""
_SUBNORMALS = 4.0
_SAMPLED = 16384
_FILL_SHARE = 1 / 16
"""A value with this share of an array is a fill, such as that of a mask, and says nothing about the magnitude."""
_MIN_FOR_FILLS = 64


@dataclass(frozen=True)
class Limit:
    """How far one output may differ.

    Attributes:
        rtol: Relative to each value.
        share: Relative to the root mean square of the output; 0 for integers, which must be equal.
        ceiling: The absolute tolerance is at most this share of the median, however large the largest values are.
        atol: The spec's absolute tolerance, which replaces ``share``; None if it has none.
        smallest: The absolute tolerance is never below this: the resolution of the dtype near zero.
        noise: Nor is it below this, up to the root mean square of the output: a larger tolerance would accept zeros.
    """

    rtol: float
    share: float
    ceiling: float = 0.0
    atol: float | None = None
    smallest: float = 0.0
    noise: float = 0.0

    def at_least(self, noise: float) -> Limit:
        """Return a limit that allows noise up to the magnitude of the output, unless the values must be equal."""
        return replace(self, noise=max(self.noise, noise)) if self.share else self

    def at(self, magnitude: Magnitude | None) -> tuple[float, float]:
        """Return (rtol, atol) for an output of a magnitude; None stands for 1, where every value is zero."""
        if self.atol is not None or not self.share:
            return self.rtol, self.atol or 0.0
        if magnitude is None:
            return self.rtol, max(self.share, self.smallest)
        scaled = min(self.share * magnitude.rms, self.ceiling * magnitude.median)
        return self.rtol, max(scaled, self.smallest, min(self.noise, magnitude.rms))


def limits(signature: Signature, spec: ParitySpec, precision: str = "") -> dict[str, Limit]:
    """Return the limit of each output: the spec's, else by dtype; integers, booleans and strings must be equal.

    Args:
        signature: The outputs with their dtypes.
        spec: The ``parity:`` section.
        precision: A dtype of lower precision that the original computes in; empty if it uses none.
    """
    chosen = {}
    for output in signature.outputs:
        default = _BY_DTYPE.get(output.dtype)
        if default is None:
            chosen[output.name] = Limit(0.0, 0.0)
            continue
        if precision in _BY_DTYPE:
            default = max(default, _BY_DTYPE[precision])
        smallest = float(
            np.finfo("float16" if precision == "float16" else DTYPES[output.dtype].numpy).smallest_subnormal
        )
        chosen[output.name] = Limit(
            rtol=default[0] if spec.rtol is None else spec.rtol,
            share=default[1],
            ceiling=_CEILING * default[0],
            atol=spec.atol,
            smallest=_SUBNORMALS * smallest,
        )
    return chosen


def coarsest(first: Precision, other: str) -> Precision:
    """Return the precision with the larger tolerance; ``other`` may be empty.

    >>> coarsest("float16", "qint8"), coarsest("float16", "")
    ('qint8', 'float16')
    """
    return next(precision for precision in _COARSEST_FIRST if precision in {first, other})


@dataclass(frozen=True)
class Magnitude:
    """The magnitude of an output's values other than zeros, infinities and fills.

    Attributes:
        rms: Root of the mean square.
        median: Median of the absolute values.
    """

    rms: float
    median: float


@dataclass
class Magnitudes:
    """Collects the magnitudes of outputs over several cases, from a sample of each array."""

    _samples: dict[str, list[_Values]] = field(default_factory=dict)

    def add(self, outputs: Arrays) -> None:
        """Add the outputs of one case."""
        for name, array in outputs.items():
            self._samples.setdefault(name, []).append(_sample(array))

    def tolerances(self, limits: Mapping[str, Limit]) -> Tolerances:
        """Return (rtol, atol) of each output at its magnitude."""
        return {name: limit.at(_magnitude(self._samples.get(name, ()))) for name, limit in limits.items()}


def tolerances_of(outputs: Arrays, limits: Mapping[str, Limit]) -> Tolerances:
    """Return (rtol, atol) of each output at the magnitude of these outputs alone."""
    magnitudes = Magnitudes()
    magnitudes.add(outputs)
    return magnitudes.tolerances(limits)


def _sample(array: Array) -> _Values:
    """Return the absolute values of a sample, without infinities, NaN, zeros and fills."""
    if array.dtype.kind != "f":
        return np.empty(0)
    flat = array.ravel()
    if flat.size > _SAMPLED:  # at random positions: a stride could select a single column
        flat = flat[np.random.default_rng(0).integers(0, flat.size, _SAMPLED)]
    values: _Values = np.abs(flat[np.isfinite(flat) & (flat != 0)].astype(np.float64))
    if values.size >= _MIN_FOR_FILLS:
        distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        is_fill = counts > _FILL_SHARE * flat.size
        if not is_fill.all() and distinct.size:
            values = values[~is_fill[inverse]]
    return values


def _magnitude(samples: Iterable[_Values]) -> Magnitude | None:
    arrays = list(samples)
    values = np.concatenate(arrays) if arrays else np.empty(0)
    if not values.size:
        return None
    return Magnitude(float(np.sqrt(np.mean(np.square(values)))), float(np.median(values)))
