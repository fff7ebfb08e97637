"""The grammar of --gate."""

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
def test_flags_lie_over_the_declared_gates(flags: tuple[str, ...], expected: dict[str, object]) -> None:
    """What no flag names stays as declared."""
    declared = DECLARED.model_dump(exclude_none=True)
    whole = {key: value for key, value in {**declared, **expected}.items() if value is not None}
    assert GatesSpec.model_validate(whole) == with_flags(DECLARED, flags)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("speed=1", "--gate speed=1: there is no gate 'speed'"),
        ("latency.min=1", "--gate latency.min=1: latency does not have an option 'min'"),
        ("latency.max_ratio", "--gate latency.max_ratio: an option needs a value"),
        ("size=", "--gate size=: the value is missing"),
        ("size=big", "--gate size.max_mb: must be a number > 0 and <= 1e9"),
        ("size=-1", "--gate size.max_mb: must be a number > 0 and <= 1e9"),
        ("size=.nan", "--gate size=.nan: .nan is not a finite number"),
        ("smoke=1", "--gate smoke=1: smoke is on or off"),
        ("smoke.x=1", "--gate smoke.x=1: smoke does not have an option 'x'"),
        ("", "--gate : there is no gate ''"),
    ],
)
def test_a_bad_flag_is_exit_2_with_the_grammar(flag: str, said: str) -> None:
    """The message names the flag, the hint is the grammar."""
    with pytest.raises(SpecError) as caught:
        with_flags(GatesSpec(), [flag])
    assert (said, ExitCode.SPEC) == (caught.value.message, caught.value.exit_code)
    assert caught.value.hint.endswith(usage())


def test_all_bad_flags_are_named_at_once() -> None:
    """A limit of a gate that needs more is one of them."""
    with pytest.raises(SpecError) as caught:
        with_flags(GatesSpec(), ["speed=1", "size=big", "evaluation.min=0.9"])
    assert [line.split(":")[0] for line in caught.value.message.splitlines()] == [
        "--gate speed=1",
        "--gate size.max_mb",
        "--gate evaluation.callable",
    ]
