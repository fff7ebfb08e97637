"""Compares two sets of outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays, Signature
    from repogen.spec.models import ParitySpec

Tolerances: TypeAlias = dict[str, tuple[float, float]]
"""(rtol, atol) for each output."""

# About the error of reordered sums and fused kernels over the depth of a network in that precision.
_BY_DTYPE = {
    "bfloat16": (5e-2, 5e-2),
    "float16": (1e-2, 1e-2),
    "float32": (1e-3, 1e-5),
    "float64": (1e-6, 1e-8),
}
_EXACT = (0.0, 0.0)


@dataclass(frozen=True)
class Comparison:
    """Two models to compare.

    Attributes:
        source: The original.
        published: Runs the published model.
        tolerances: How far each output may differ.
    """

    source: SourceModel
    published: Reference
    tolerances: Tolerances


def tolerances(signature: Signature, spec: ParitySpec, precision: str = "") -> Tolerances:
    """Return (rtol, atol) for each output: the spec's, else by dtype; integers and booleans must be equal.

    Args:
        signature: The outputs with their dtypes.
        spec: The ``parity:`` section.
        precision: A dtype of lower precision that the original computes in; empty if it uses none.
    """
    chosen = {}
    for output in signature.outputs:
        default = _BY_DTYPE.get(output.dtype)
        if default is not None and precision in _BY_DTYPE:
            default = max(default, _BY_DTYPE[precision])
        if default is None:
            chosen[output.name] = _EXACT
        else:
            rtol = default[0] if spec.rtol is None else spec.rtol
            chosen[output.name] = (rtol, default[1] if spec.atol is None else spec.atol)
    return chosen


@dataclass(frozen=True)
class Difference:
    """The difference between expected and actual outputs.

    Attributes:
        max_abs: Largest ``|actual - expected|``.
        max_rel: Largest ``|actual - expected| / max(|expected|, atol, 1e-12)``.
        cosine: Smallest cosine similarity over the outputs; 1 for two zero vectors.
        reason: Why they are not equal within the tolerances; empty if they are.
    """

    max_abs: float
    max_rel: float
    cosine: float
    reason: str


def difference(expected: Arrays, actual: Arrays, tolerances: Tolerances) -> Difference:
    """Compare outputs by name; shapes and dtypes must be equal, and no value may be NaN or infinite."""
    outputs = [_array_difference(name, array, actual[name], *tolerances[name]) for name, array in expected.items()]
    return Difference(
        max((output.max_abs for output in outputs), default=0.0),
        max((output.max_rel for output in outputs), default=0.0),
        min((output.cosine for output in outputs), default=1.0),
        "; ".join(output.reason for output in outputs if output.reason),
    )


def _array_difference(name: str, expected: Array, actual: Array, rtol: float, atol: float) -> Difference:
    if expected.shape != actual.shape:
        return Difference(0.0, 0.0, 0.0, f"{name!r} has shape {list(actual.shape)}, expected {list(expected.shape)}")
    if expected.dtype != actual.dtype:
        return Difference(0.0, 0.0, 0.0, f"{name!r} is {actual.dtype}, expected {expected.dtype}")
    if expected.dtype.kind == "O":
        return _string_difference(name, expected, actual)
    reference, values = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    for side, array in (("expected", reference), ("actual", values)):
        if not np.isfinite(array).all():
            return Difference(0.0, 0.0, 0.0, f"{name!r} has NaN or Inf among the {side} values")
    if not reference.size:
        return Difference(0.0, 0.0, 1.0, "")
    errors = np.abs(values - reference)
    max_abs = float(errors.max())
    max_rel = float((errors / np.maximum(np.abs(reference), max(atol, 1e-12))).max())
    # Not as float64 if values must be equal: large integers that differ can be the same float64.
    outside = expected != actual if (rtol, atol) == _EXACT else errors > atol + rtol * np.abs(reference)
    count = int(outside.sum())
    reason = f"{count} of {reference.size} values of {name!r} differ, by up to {max_abs:.3g}" if count else ""
    return Difference(max_abs, max_rel, _cosine(reference, values), reason)


def _string_difference(name: str, expected: Array, actual: Array) -> Difference:
    count = int(np.count_nonzero(expected != actual))
    return Difference(0.0, 0.0, 1.0, f"{count} of {expected.size} strings of {name!r} differ" if count else "")


def _cosine(
    a: np.ndarray[tuple[int, ...], np.dtype[np.float64]], b: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1.0 if norms == 0.0 else float(np.clip(np.dot(a, b) / norms, -1.0, 1.0))


def not_finite(outputs: Arrays) -> str:
    """Return which output has NaN or infinite values first; empty if none has."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            return f"{count} of {array.size} values of {name!r} are NaN or Inf"
    return ""
