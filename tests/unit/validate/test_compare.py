"""Differences between outputs, and tolerances."""

from __future__ import annotations

import numpy as np
import pytest

from repogen.artifacts.tensors import Array, Signature, TensorSpec
from repogen.spec.models import ParitySpec
from repogen.validate.compare import Difference, difference, has_nan, infinite_outputs
from repogen.validate.tolerance import limits, tolerances_of


def compare(expected: object, actual: object, dtype: str = "float32", allowed: tuple[float, float] = (0.0, 0.0)) -> str:
    """Return why two arrays of one dtype differ."""
    return difference({"y": np.array(expected, dtype)}, {"y": np.array(actual, dtype)}, {"y": allowed}).reason


def test_equal_outputs_do_not_differ() -> None:
    """All differences are zero."""
    y = {"y": np.ones(3, np.float32)}
    assert difference(y, y, {"y": (0.0, 0.0)}) == Difference(0.0, 0.0, 1.0, "")


def test_differences_are_measured() -> None:
    """Absolute, relative to the expected value, and as cosine similarity."""
    result = difference({"y": np.array([2.0, 4.0])}, {"y": np.array([2.0, 5.0])}, {"y": (0.1, 0.0)})
    assert (result.max_abs, result.max_rel) == (1.0, 0.25)
    assert result.cosine == pytest.approx((4 + 20) / np.sqrt(20 * 29))
    assert result.reason == "1 of 2 values of 'y' differ, by up to 1 (at [1] expected 4, got 5; rtol 0.1, atol 0)"


def test_close_numbers_have_enough_digits() -> None:
    """Two numbers that differ are not printed as the same text."""
    reason = compare([8.2805611], [8.2805622])
    assert "at [0] expected 8.280561, got 8.280562; rtol 0, atol 0" in reason


@pytest.mark.parametrize(
    ("expected", "actual", "allowed", "agrees"),
    [
        ([100.0], [100.1], (1e-3, 0.0), True),
        ([100.0], [100.2], (1e-3, 0.0), False),
        ([0.0], [1e-5], (0.0, 1e-4), True),
        ([0.0], [1e-3], (0.0, 1e-4), False),
        ([0.0], [1e-3], (1.0, 0.0), False),
    ],
)
def test_tolerances_are_relative_plus_absolute(
    expected: list[float], actual: list[float], allowed: tuple[float, float], *, agrees: bool
) -> None:
    """``atol + rtol * |expected|``, as in numpy.isclose."""
    assert (compare(expected, actual, "float64", allowed) == "") is agrees


@pytest.mark.parametrize(("expected", "actual"), [(np.nan, 1), (1, np.nan), (np.nan, np.nan)])
def test_nan_always_differs(expected: float, actual: float) -> None:
    """On either side, even from itself, with any tolerance."""
    assert "NaN" in compare([expected], [actual], allowed=(1e6, 1e6))


def test_infinities_are_equal_to_themselves_only() -> None:
    """Masked logits are -inf; the other values are compared as usual."""
    assert compare([-np.inf, 1], [-np.inf, 1]) == ""
    assert "1 of 2 values of 'y' differ" in compare([-np.inf, 1], [-np.inf, 2])
    for actual in (np.inf, 0, -3.4e38):
        assert "1 of 2 values of 'y' are infinite in only one" in compare([-np.inf, 1], [actual, 1], allowed=(1e6, 1e6))


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (np.zeros((2, 1)), np.zeros(2), "has shape [2], expected [2, 1]"),
        (np.zeros(2, np.int64), np.zeros(2, np.int32), "is int32, expected int64"),
        (np.zeros(()), np.zeros(1), "has shape [1], expected []"),
    ],
)
def test_shapes_and_dtypes_must_be_equal(expected: Array, actual: Array, words: str) -> None:
    """Nothing is broadcast or cast."""
    assert words in difference({"y": expected}, {"y": actual}, {"y": (1.0, 1.0)}).reason


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint64"])
def test_integers_and_booleans_are_compared_exactly(dtype: str) -> None:
    """A difference of one is a difference."""
    assert compare([1, 0], [1, 0], dtype) == ""
    assert "1 of 2 values of 'y' differ" in compare([1, 0], [1, 1], dtype)


def test_large_integers_that_share_a_float_differ() -> None:
    """2**53 and 2**53 + 1 are the same float64."""
    assert "1 of 1 values" in compare([2**53], [2**53 + 1], "int64")


def test_half_precision_is_measured_in_double() -> None:
    """60000 and -60000 differ by 120000, which is more than float16 can represent."""
    result = difference({"y": np.array([6e4], np.float16)}, {"y": np.array([-6e4], np.float16)}, {"y": (0.0, 1.0)})
    assert result.max_abs == 2 * float(np.float16(6e4))


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_arrays_are_equal(shape: tuple[int, ...]) -> None:
    """Such as the output of a detector without detections."""
    assert compare(np.zeros(shape), np.zeros(shape)) == ""


def test_every_output_is_compared() -> None:
    """The result has the largest differences and all reasons."""
    expected = {"a": np.zeros(1), "b": np.ones(1)}
    result = difference(expected, {"a": np.ones(1), "b": np.zeros(1)}, dict.fromkeys("ab", (0.0, 0.0)))
    assert (result.max_abs, result.reason.count("values of")) == (1.0, 2)


def test_default_tolerance_depends_on_the_dtype() -> None:
    """The spec's tolerance applies to floats only."""
    dtypes = ("float16", "float32", "float64", "int64", "bool")
    signature = Signature((), tuple(TensorSpec(name, name, (1,)) for name in dtypes))
    ones = {name: np.ones(3, name) for name in dtypes}
    by_dtype = tolerances_of(ones, limits(signature, ParitySpec()))
    assert by_dtype["float16"] > by_dtype["float32"] > by_dtype["float64"] > by_dtype["int64"] == by_dtype["bool"]
    assert (by_dtype["float32"], by_dtype["int64"]) == ((1e-3, 1e-5), (0.0, 0.0))
    explicit = tolerances_of(ones, limits(signature, ParitySpec(rtol=0.5)))
    assert (explicit["float32"], explicit["int64"]) == ((0.5, by_dtype["float32"][1]), (0.0, 0.0))


FLOAT = Signature((), (TensorSpec("y", "float32", (1,)),))


def atol(values: object, **parity: float) -> float:
    """Return the absolute tolerance for values of a float32 output."""
    by_output = limits(FLOAT, ParitySpec.model_validate(parity))
    return tolerances_of({"y": np.asarray(values, np.float32)}, by_output)["y"][1]


@pytest.mark.parametrize("magnitude", [1e-7, 1.0, 1e4])
def test_absolute_tolerance_follows_the_magnitude(magnitude: float) -> None:
    """And the spec's does not."""
    values = np.random.default_rng(0).standard_normal(1000) * magnitude
    assert atol(values) == pytest.approx(1e-5 * magnitude, rel=0.1)
    assert atol(values, atol=1e-3) == 1e-3


def test_fills_and_outliers_do_not_raise_the_tolerance() -> None:
    """Of masks, padding, and single large values; zeros do not lower it."""
    values = np.random.default_rng(0).standard_normal(1000)
    plain = atol(values)
    for fill in (0.0, -np.inf, np.finfo(np.float32).min, -1e9):
        masked = np.where(np.arange(1000) % 3 == 0, fill, values)
        assert atol(masked) == pytest.approx(plain, rel=0.1)
    outlier = values.copy()
    outlier[0] = 1e9
    assert atol(outlier) <= 2e-3 * np.median(np.abs(values)) * 1.01


def test_zeros_are_compared_as_if_of_magnitude_one() -> None:
    """There is no magnitude to scale with."""
    assert atol(np.zeros(5)) == 1e-5


def test_values_that_are_not_finite_are_counted() -> None:
    """In the first such output; integers are always finite."""
    outputs = {"n": np.ones(2, np.int64), "y": np.array([1.0, np.nan, np.inf])}
    assert has_nan(outputs) == "1 of 3 values of 'y' are NaN"
    assert has_nan({"n": np.ones(2, np.int64)}) == ""
    assert infinite_outputs(outputs) == ["y"]


def test_difference_from_zeros_is_finite() -> None:
    """It is reported as JSON, which has no infinity."""
    result = difference({"y": np.zeros(2)}, {"y": np.array([0.0, 1e-9])}, {"y": (0.0, 1e-5)})
    assert (result.max_rel, result.reason) == (1.0, "")


@pytest.mark.parametrize("fault", ["zeros", "other rows", "negated"])
def test_noise_of_a_lossy_graph_does_not_hide_faults(fault: str) -> None:
    """One outlier that a sweep measured, five times as large as the values, allows no difference of their magnitude."""
    rows = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    signature = Signature((), (TensorSpec("y", "float32", ("batch", 16)),))
    lossy = {name: limit.at_least(10.0) for name, limit in limits(signature, ParitySpec(), "qint8").items()}
    allowed = tolerances_of({"y": rows}, lossy)
    assert not difference({"y": rows}, {"y": rows * 0.7}, allowed).reason
    faulty = {"zeros": 0 * rows, "other rows": np.roll(rows, 1, 0), "negated": -rows}[fault]
    assert "differ" in difference({"y": rows}, {"y": faulty}, allowed).reason
