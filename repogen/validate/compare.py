"""How far two sets of outputs are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array, Arrays, Signature
    from repogen.spec.models import ParitySpec

# By dtype: about what reordered sums and fused kernels cost over a network's depth in that precision.
_BY_DTYPE = {
    "bfloat16": (5e-2, 5e-2),
    "float16": (1e-2, 1e-2),
    "float32": (1e-3, 1e-5),
    "float64": (1e-6, 1e-8),
}
_EXACT = (0.0, 0.0)


def tolerances(signature: Signature, spec: ParitySpec, precision: str = "") -> dict[str, tuple[float, float]]:
    """Return (rtol, atol) for each output: the spec's, else by dtype; integers and booleans must be equal.

    Args:
        signature: Outputs and their dtypes.
        spec: What the user allows.
        precision: A coarser dtype that the original computes in.
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
    """Distance between expected and actual outputs.

    Attributes:
        max_abs: Largest ``|actual - expected|``.
        max_rel: Largest ``|actual - expected| / max(|expected|, atol)``, the floor kept above 1e-12.
        cosine: Smallest cosine similarity over the outputs; 1 for two zero vectors.
        reason: Why they do not agree; empty when they do.
    """

    max_abs: float
    max_rel: float
    cosine: float
    reason: str


def difference(expected: Arrays, actual: Arrays, allowed: dict[str, tuple[float, float]]) -> Difference:
    """Compare outputs by name; shapes and dtypes must be equal, and nothing may be NaN or infinite."""
    rows = [_one(name, array, actual[name], *allowed[name]) for name, array in expected.items()]
    return Difference(
        max((row.max_abs for row in rows), default=0.0),
        max((row.max_rel for row in rows), default=0.0),
        min((row.cosine for row in rows), default=1.0),
        "; ".join(row.reason for row in rows if row.reason),
    )


def _one(name: str, expected: Array, actual: Array, rtol: float, atol: float) -> Difference:
    if expected.shape != actual.shape:
        return Difference(0.0, 0.0, 0.0, f"{name!r} has shape {list(actual.shape)}, expected {list(expected.shape)}")
    if expected.dtype != actual.dtype:
        return Difference(0.0, 0.0, 0.0, f"{name!r} is {actual.dtype}, expected {expected.dtype}")
    if expected.dtype.kind == "O":
        return _strings(name, expected, actual)
    want, have = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    for who, values in (("expected", want), ("actual", have)):
        if not np.isfinite(values).all():
            return Difference(0.0, 0.0, 0.0, f"{name!r} has NaN or Inf among the {who} values")
    if not want.size:
        return Difference(0.0, 0.0, 1.0, "")
    apart = np.abs(have - want)
    max_abs = float(apart.max())
    max_rel = float((apart / np.maximum(np.abs(want), max(atol, 1e-12))).max())
    # Exact where it must be: large integers that differ may be one and the same float64.
    misses = expected != actual if (rtol, atol) == _EXACT else apart > atol + rtol * np.abs(want)
    off = int(misses.sum())
    reason = f"{off} of {want.size} values of {name!r} are off, the worst by {max_abs:.3g}" if off else ""
    return Difference(max_abs, max_rel, _cosine(want, have), reason)


def _strings(name: str, expected: Array, actual: Array) -> Difference:
    off = int(np.count_nonzero(expected != actual))
    return Difference(0.0, 0.0, 1.0, f"{off} of {expected.size} strings of {name!r} differ" if off else "")


def _cosine(
    a: np.ndarray[tuple[int, ...], np.dtype[np.float64]], b: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1.0 if norms == 0.0 else float(np.clip(np.dot(a, b) / norms, -1.0, 1.0))


def not_finite(outputs: Arrays) -> str:
    """Name the first output that has NaN or infinite values; empty when none has."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            return f"{bad} of {array.size} values of {name!r} are NaN or Inf"
    return ""
