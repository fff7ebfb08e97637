"""The sizes of the parity cases, and their order."""

from __future__ import annotations

from repogen.artifacts.source import DimRange
from repogen.validate.sweep import SweepCase, plan_sweep

BATCH = DimRange(1, 32, 2)
TIME = DimRange(4, 64, 16)


def test_example_and_minimum_come_first_and_are_required() -> None:
    """Then the other seeds and the other sizes."""
    plan = plan_sweep({"batch": BATCH, "time": TIME}, 7, 3)
    assert [case.name for case in plan[:4]] == [
        "batch=2,time=16 seed=7",
        "batch=1,time=4 seed=10",
        "batch=2,time=16 seed=8",
        "batch=2,time=16 seed=9",
    ]
    assert [case.required for case in plan[:4]] == [True, True, False, False]


def test_prime_and_extra_sizes_are_planned() -> None:
    """One prime of each dim is required, and all extra sizes are; the original may fail at them."""
    plan = plan_sweep({"batch": BATCH, "time": TIME}, 0, 1, [{"batch": 2, "time": 42}])
    new = {(case.sizes["batch"], case.sizes["time"]): case.required for case in plan if not case.golden}
    assert new == {(3, 16): True, (31, 16): False, (2, 17): True, (2, 5): False, (2, 61): False, (2, 42): True}
    probing = {(case.sizes["batch"], case.sizes["time"]) for case in plan if case.probing}
    assert probing == {*new, (17, 40), (2, 40), (17, 16)}
    assert not any(case.probing for case in plan if case.sizes in ({"batch": 1, "time": 4}, {"batch": 32, "time": 64}))


def test_other_cases_are_sorted_by_cost() -> None:
    """A spent budget skips the most expensive cases."""
    rest = plan_sweep({"batch": BATCH, "time": TIME}, 0, 2)[3:]
    assert [case.cost for case in rest] == sorted(case.cost for case in rest)
    assert rest[-1].sizes == {"batch": 32, "time": 64}


def test_each_dim_is_at_its_bounds_alone_and_together() -> None:
    """With the other dim at its example, minimum and maximum; no case is repeated."""
    plan = plan_sweep({"batch": BATCH, "time": TIME}, 0, 1)
    sizes = [(case.sizes["batch"], case.sizes["time"]) for case in plan]
    assert len(set(sizes)) == len(sizes)
    assert {(1, 16), (32, 16), (2, 4), (2, 64), (1, 4), (32, 64), (32, 4), (1, 64)} <= set(sizes)
    assert all(1 <= batch <= 32 and 4 <= time <= 64 for batch, time in sizes)


def test_seeds_differ_between_cases() -> None:
    """No values are measured twice."""
    seeds = [case.seed for case in plan_sweep({"batch": BATCH}, 5, 2)]
    assert len(set(seeds)) == len(seeds)


def test_model_without_dims_has_one_case_per_seed() -> None:
    """Their names contain the seed only."""
    assert plan_sweep({}, 3, 1) == [SweepCase({}, 3, required=True)]
    assert [(case.name, case.cost, case.required) for case in plan_sweep({}, 0, 2)] == [
        ("seed=0", 1, True),
        ("seed=1", 1, False),
    ]


def test_dim_with_two_sizes_has_two_cases() -> None:
    """Its middle, maximum and example are equal."""
    assert [case.sizes["batch"] for case in plan_sweep({"batch": DimRange(1, 2, 2)}, 0, 1)] == [2, 1]


def test_ragged_batch_has_no_more_rows_than_elements() -> None:
    """A row without elements does not exist, and a mean of its elements would be NaN."""
    dims = {"elements": DimRange(1, 64, 3), "requests": DimRange(1, 16, 4)}
    plan = plan_sweep(dims, 0, 2, smaller={"requests": "elements"})
    assert all(case.sizes["requests"] <= case.sizes["elements"] for case in plan)
    assert {1, 16} <= {case.sizes["requests"] for case in plan}
