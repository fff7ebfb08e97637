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
    assert new == {(3, 16): True, (2, 17): True, (2, 5): False, (2, 42): True}
    probing = {(case.sizes["batch"], case.sizes["time"]) for case in plan if case.probing}
    assert probing == {*new, (17, 16), (2, 41)}
    assert not any(case.probing for case in plan if case.sizes in ({"batch": 1, "time": 4}, {"batch": 32, "time": 64}))


def test_middle_runs_if_the_original_rejects_the_prime_next_to_it() -> None:
    """Such as a model that supports only multiples of 8."""
    plan = plan_sweep({"batch": BATCH, "time": TIME}, 0, 1)
    (between,) = [case for case in plan if case.sizes == {"batch": 2, "time": 41}]
    assert between.otherwise is not None
    assert between.otherwise.sizes == {"batch": 2, "time": 40}
    assert (between.otherwise.probing, between.otherwise.otherwise) == (True, None)


def test_large_batches_have_small_sizes_of_the_other_dims() -> None:
    """Of those that are not special; if the original rejects undeclared ones, the example sizes run instead."""
    for time, small, otherwise in (
        (TIME, 4, {"batch": 32, "time": 16}),
        (DimRange(1, 64, 16), 3, {"batch": 32, "time": 16}),
        (DimRange(1, 64, 2), 2, None),
        (DimRange(1, 2, 2), 2, None),
    ):
        plan = plan_sweep({"batch": BATCH, "time": time}, 0, 1, (), "batch")
        cheapest = next(case for case in plan if case.sizes["batch"] == BATCH.max)
        assert cheapest.sizes["time"] == small
        replaced = cheapest.otherwise
        assert (None if replaced is None else replaced.sizes) == otherwise
        assert replaced is None or not replaced.probing


def test_dim_at_its_maximum_is_covered_by_all_dims_at_their_maximum() -> None:
    """It follows them, and runs only if the budget does not allow them."""
    plan = plan_sweep({"batch": BATCH, "time": TIME}, 0, 1, (), "batch")
    high = {"batch": 32, "time": 64}
    covered = [case.sizes for case in plan if case.covered_by is not None]
    assert covered == [{"batch": 2, "time": 64}]
    assert [case.sizes for case in plan[-2:]] == [high, *covered]
    assert plan[-1].covered_by == high


def test_other_cases_are_sorted_by_cost() -> None:
    """A spent budget skips the most expensive cases."""
    rest = [case for case in plan_sweep({"batch": BATCH, "time": TIME}, 0, 2)[3:] if case.covered_by is None]
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
