"""The syntax of --gate."""

from __future__ import annotations

import pytest

from repogen.errors import ExitCode, SpecError
from repogen.registry.gates.flags import usage, with_flags
from repogen.spec.gates import GatesSpec

DECLARED = GatesSpec.model_validate(
    {
        "latency": {"p95_max_ms": 20, "max_ratio": 1.1},
        "evaluation": {"callable": "gates.py:accuracy", "min": 0.9},
    }
)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("parity=1e-3",), {"parity": {"max_abs_diff": 1e-3}}),
        (("smoke",), {"smoke": True}),
        (("smoke=off",), {"smoke": False}),
        (("size",), {"size": {}}),
        (("size=500", "size.max_ratio=1.1"), {"size": {"max_mb": 500, "max_ratio": 1.1}}),
        (("latency=5",), {"latency": {"p95_max_ms": 5, "max_ratio": 1.1}}),
        (("latency.max_ratio=off",), {"latency": {"p95_max_ms": 20}}),
        (("latency=off",), {"latency": None}),
        (("latency=off", "latency.max_ratio=2"), {"latency": {"max_ratio": 2}}),
        (("throughput=0.95",), {"throughput": {"min_ratio": 0.95}}),
        (("evaluation.data=h.npz",), {"evaluation": {"callable": "gates.py:accuracy", "min": 0.9, "data": "h.npz"}}),
        (("evaluation=pkg.mod:f",), {"evaluation": {"callable": "pkg.mod:f", "min": 0.9}}),
        (("evaluation=off",), {"evaluation": None}),
        (("holdout.data=h.npz",), {"evaluation": {"callable": "gates.py:accuracy", "min": 0.9, "data": "h.npz"}}),
        (("holdout=off",), {"evaluation": None}),
        (("size=1", "size=2"), {"size": {"max_mb": 2}}),
    ],
)
def test_flags_change_the_declared_gates(flags: tuple[str, ...], expected: dict[str, object]) -> None:
    """Other gates and options stay as declared."""
    declared = DECLARED.model_dump(exclude_none=True)
    expected_values = {key: value for key, value in {**declared, **expected}.items() if value is not None}
    assert GatesSpec.model_validate(expected_values) == with_flags(DECLARED, flags)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("speed=1", "--gate speed=1: there is no gate 'speed'"),
        ("latency.min=1", "--gate latency.min=1: latency does not have an option 'min'"),
        ("latency.max_ratio", "--gate latency.max_ratio: an option needs a value"),
        ("size=", "--gate size=: the value is missing"),
        ("size=big", "--gate size.max_mb: must be a number > 0 and <= 1e9"),
        ("size=-1", "--gate size.max_mb: must be a number > 0 and <= 1e9"),
        ("size=.nan", "--gate size=.nan: .nan is not a finite number"),
        ("smoke=1", "--gate smoke=1: smoke must be on or off"),
        ("smoke.x=1", "--gate smoke.x=1: smoke does not have an option 'x'"),
        ("", "--gate : there is no gate ''"),
    ],
)
def test_invalid_flag_is_exit_2_with_the_syntax(flag: str, message: str) -> None:
    """The message has the flag, the hint has the syntax."""
    with pytest.raises(SpecError) as caught:
        with_flags(GatesSpec(), [flag])
    assert (message, ExitCode.SPEC) == (caught.value.message, caught.value.exit_code)
    assert caught.value.hint.endswith(usage())


def test_all_invalid_flags_are_reported_at_once() -> None:
    """Including a gate without a required option."""
    with pytest.raises(SpecError) as caught:
        with_flags(GatesSpec(), ["speed=1", "size=big", "evaluation.min=0.9"])
    assert [line.split(":")[0] for line in caught.value.message.splitlines()] == [
        "--gate speed=1",
        "--gate size.max_mb",
        "--gate evaluation.callable",
    ]
