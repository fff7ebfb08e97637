"""Compares two sets of outputs: of PyTorch and ONNX Runtime, of rows alone and in a batch, and of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import distinct_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.tolerance import Limit

    _Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_MAX_COUNTED = 1000
"""Values beyond the tolerance that are counted."""


@dataclass(frozen=True)
class Comparison:
    """Two models to compare.

    Attributes:
        source: The original.
        published: Runs the published model.
        limits: How far each output may differ.
    """

    source: SourceModel
    published: Reference
    limits: Mapping[str, Limit]


@dataclass(frozen=True)
class Difference:
    """The difference between expected and actual outputs.

    Attributes:
        max_abs: Largest ``|actual - expected|``; infinite where shapes, dtypes, NaN or infinities differ.
        max_rel: ``max_abs`` relative to the largest ``|expected|`` of the output; 1 where only zeros are expected.
        cosine: Smallest cosine similarity over the outputs; 1 for two zero vectors.
        reason: Why they are not equal within the tolerances; empty if they are.
    """

    max_abs: float
    max_rel: float
    cosine: float
    reason: str


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output, before its absolute tolerance is known.

    Attributes:
        name: Name of the output.
        size: Number of values.
        max_abs: As in ``Difference``.
        max_rel: The same.
        cosine: Cosine similarity.
        rtol: The relative tolerance.
        excesses: The largest positive ``|actual - expected| - rtol * |expected|``, in descending order.
        worst: Where the excess is largest, and both values.
        problem: Why no tolerance accepts the output; empty otherwise.
    """

    name: str
    size: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    rtol: float = 0.0
    excesses: tuple[float, ...] = ()
    worst: str = ""
    problem: str = ""

    def reason(self, atol: float) -> str:
        """Return why the output is not equal within the tolerance; empty if it is."""
        count = sum(excess > atol for excess in self.excesses)
        if self.problem or not count:
            return self.problem
        at_least = "at least " if count == _MAX_COUNTED else ""
        return (
            f"{at_least}{count} of {self.size} values of {self.name!r} differ, by up to {self.max_abs:.3g} "
            f"({self.worst}; rtol {self.rtol:.3g}, atol {atol:.3g})"
        )


def difference(expected: Arrays, actual: Arrays, tolerances: Mapping[str, tuple[float, float]]) -> Difference:
    """Compare outputs by name: equal shapes and dtypes, no NaN, infinities at the same places, and the tolerances.

    Args:
        expected: Outputs by name.
        actual: The others.
        tolerances: (rtol, atol) of each output.
    """
    rtols = {name: rtol for name, (rtol, _) in tolerances.items()}
    return summary(output_errors(expected, actual, rtols), tolerances)


def differing_outputs(expected: Arrays, actual: Arrays, tolerances: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the outputs that differ, where NaN is equal to NaN; see ``difference``."""
    return [
        name
        for name, array in expected.items()
        if name not in actual or difference(*_without_equal_nan(name, array, actual[name]), tolerances).reason
    ]


def _without_equal_nan(name: str, expected: Array, actual: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return both outputs with zeros in the places where both are NaN."""
    if expected.dtype.kind == actual.dtype.kind == "f" and expected.shape == actual.shape:
        is_nan = np.isnan(expected) & np.isnan(actual)
        expected, actual = (np.where(is_nan, np.zeros((), array.dtype), array) for array in (expected, actual))
    return {name: expected}, {name: actual}


def elementwise_difference(name: str, versions: Sequence[Array], samples: Sequence[Array], limit: Limit) -> str:
    """Return how versions of an output differ, relative to the magnitude of each value; empty if they do not.

    Args:
        name: Name of the output.
        versions: Arrays of one row that should be equal; the first is the reference.
        samples: Batches of the output, from which the magnitude of each value is computed.
        limit: How far the output may differ.
    """
    for version in versions[1:]:
        if np.array_equal(version, versions[0]):
            continue
        if version.shape != versions[0].shape:
            return f"{name!r} has shape {list(version.shape)}, or {list(versions[0].shape)}"
        if version.dtype.kind != "f":
            return _exact_errors(name, versions[0], version, 0.0).problem
        expected, actual = versions[0].astype(np.float64), version.astype(np.float64)
        rows = np.concatenate(samples).astype(np.float64)
        finite = np.where(np.isfinite(rows), rows, 0.0)
        magnitudes = np.sqrt(np.mean(np.square(finite), axis=0))
        allowed = limit.rtol * np.maximum(magnitudes, np.abs(expected)) + max(limit.smallest, limit.atol or 0.0)
        with np.errstate(invalid="ignore"):
            is_close = np.abs(actual - expected) <= allowed
        is_different = ~(is_close | (actual == expected) | (np.isnan(actual) & np.isnan(expected)))
        if is_different.any():
            place = _place(int(np.argmax(is_different)), expected, actual)
            return f"{int(is_different.sum())} of {expected.size} values of {name!r} differ ({place})"
    return ""


def output_errors(expected: Arrays, actual: Arrays, rtols: Mapping[str, float]) -> list[OutputErrors]:
    """Measure the errors of each expected output."""
    return [_errors(name, array, actual.get(name), rtols[name]) for name, array in expected.items()]


def summary(outputs: list[OutputErrors], tolerances: Mapping[str, tuple[float, float]]) -> Difference:
    """Return the largest differences, and why outputs differ by more than their tolerances."""
    reasons = (output.reason(tolerances[output.name][1]) for output in outputs)
    return Difference(
        max((output.max_abs for output in outputs), default=0.0),
        max((output.max_rel for output in outputs), default=0.0),
        min((output.cosine for output in outputs), default=1.0),
        "; ".join(reason for reason in reasons if reason),
    )


def _errors(name: str, expected: Array, actual: Array | None, rtol: float) -> OutputErrors:
    if actual is None:
        return _incomparable(name, f"{name!r} was not returned")
    if expected.shape != actual.shape:
        return _incomparable(name, f"{name!r} has shape {list(actual.shape)}, expected {list(expected.shape)}")
    if expected.dtype != actual.dtype:
        return _incomparable(name, f"{name!r} is {actual.dtype}, expected {expected.dtype}")
    return (_float_errors if expected.dtype.kind == "f" else _exact_errors)(name, expected, actual, rtol)


def _exact_errors(name: str, expected: Array, actual: Array, _rtol: float) -> OutputErrors:
    """Compare integers, booleans and strings, which must be equal."""
    count = int(np.count_nonzero(expected != actual))
    if expected.dtype.kind in "OSU":
        problem = f"{count} of {expected.size} strings of {name!r} differ" if count else ""
        return OutputErrors(name, expected.size, max_abs=math.inf if count else 0.0, problem=problem)
    measured = _measure(name, expected.astype(np.float64), actual.astype(np.float64), 0.0)
    if not count:
        return replace(measured, excesses=())
    # Counted as integers: large ones that differ can be the same float64.
    first = np.unravel_index(int(np.argmax(expected != actual)), expected.shape)
    place = f"at {[int(axis) for axis in first]} expected {expected[first]}, got {actual[first]}"
    return replace(measured, problem=f"{count} of {expected.size} values of {name!r} differ ({place})")


def _float_errors(name: str, expected: Array, actual: Array, rtol: float) -> OutputErrors:
    reference, values = expected.astype(np.float64), actual.astype(np.float64)
    for side, array in (("expected", reference), ("actual", values)):
        if count := int(np.isnan(array).sum()):
            return _incomparable(name, f"{name!r} has NaN among the {side} values ({count} of {array.size})")
    infinite = np.isinf(reference) | np.isinf(values)
    if not infinite.any():
        return _measure(name, reference, values, rtol)
    if (unequal := infinite & (reference != values)).any():
        return _incomparable(
            name,
            f"{int(unequal.sum())} of {unequal.size} values of {name!r} are infinite in only one of the two, or differ "
            f"in sign ({_place(int(np.argmax(unequal)), reference, values)})",
        )
    return _measure(name, np.where(infinite, 0.0, reference), np.where(infinite, 0.0, values), rtol)


def _incomparable(name: str, problem: str) -> OutputErrors:
    return OutputErrors(name, max_abs=math.inf, max_rel=math.inf, cosine=0.0, problem=problem)


def _measure(name: str, reference: _Values, values: _Values, rtol: float) -> OutputErrors:
    if not reference.size:
        return OutputErrors(name)
    errors = np.abs(values - reference)
    excess = errors - rtol * np.abs(reference)
    largest = excess[excess > 0]
    if largest.size > _MAX_COUNTED:
        largest = np.partition(largest, largest.size - _MAX_COUNTED)[-_MAX_COUNTED:]
    max_abs, scale = float(errors.max()), float(np.abs(reference).max())
    return OutputErrors(
        name,
        reference.size,
        max_abs,
        (max_abs / scale if scale else 1.0) if max_abs else 0.0,
        _cosine(reference.ravel(), values.ravel()),
        rtol,
        tuple(np.sort(largest)[::-1].tolist()),
        _place(int(np.argmax(excess)), reference, values),
    )


def _place(index: int, expected: _Values, actual: _Values) -> str:
    place = np.unravel_index(index, expected.shape)
    texts = distinct_texts(float(expected[place]), float(actual[place]))
    return f"at {[int(axis) for axis in place]} expected {texts[0]}, got {texts[1]}"


def _cosine(a: _Values, b: _Values) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1.0 if norms == 0.0 else float(np.clip(np.dot(a, b) / norms, -1.0, 1.0))


def has_nan(outputs: Arrays) -> str:
    """Return which output has NaN first; empty if none has."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and (count := int(np.isnan(array).sum())):
            return f"{count} of {array.size} values of {name!r} are NaN"
    return ""


def infinite_outputs(outputs: Arrays) -> list[str]:
    """Return the names of the outputs with infinite values."""
    return [name for name, array in outputs.items() if array.dtype.kind == "f" and bool(np.isinf(array).any())]
