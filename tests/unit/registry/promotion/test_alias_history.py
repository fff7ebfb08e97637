"""The periods of an alias, and the target of a rollback, with moves by repogen and by others."""

from __future__ import annotations

import pytest

from repogen.artifacts.registry import AliasMove
from repogen.registry.promotion.alias_history import periods, rollback_target


def moves(*steps: tuple[int | None, int, str]) -> list[AliasMove]:
    """Return moves of an alias, one per minute."""
    return [
        AliasMove("champion", old, new, "ann", f"2026-01-01T00:0{minute}:00+00:00", why, {})
        for minute, (old, new, why) in enumerate(steps)
    ]


P, R = "promote", "rollback"


@pytest.mark.parametrize(
    ("steps", "current", "expected"),
    [
        pytest.param([], 1, None, id="nothing recorded"),
        pytest.param([(None, 1, P)], 1, None, id="the first"),
        pytest.param([(None, 1, P), (1, 2, P)], 2, 1, id="one back"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 3, P), (3, 2, R)], 2, 1, id="a second rollback goes on back"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 1, R)], 1, None, id="and ends at the first"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 1, R), (1, 3, P)], 3, 1, id="promoted after a rollback"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 1, P)], 1, 2, id="an old version promoted again is a step forward"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 1, P), (1, 2, R)], 2, 1, id="and its rollback one back"),
        pytest.param([(4, 5, P)], 5, 4, id="the alias was there before repogen"),
        pytest.param([(None, 1, P)], 7, 1, id="moved outside since"),
        pytest.param([(None, 1, P), (7, 1, R)], 1, None, id="rolled back from a move outside"),
        pytest.param([(None, 1, P), (7, 8, P)], 8, 7, id="promoted over a move outside"),
        pytest.param([(None, 1, P), (1, 2, P), (2, 3, P), (3, 1, R)], 1, None, id="a rollback over several"),
    ],
)
def test_rollback_target(steps: list[tuple[int | None, int, str]], current: int, expected: int | None) -> None:
    """A promotion pushes a version on the stack, a rollback pops one."""
    assert expected == rollback_target(moves(*steps), current)


@pytest.mark.parametrize(
    ("steps", "current", "expected"),
    [
        pytest.param([], None, [], id="no such alias"),
        pytest.param([], 3, [(3, "", "", True, "outside")], id="never moved by repogen"),
        pytest.param(
            [(None, 1, P), (1, 2, P)],
            2,
            [(1, "00:00", "00:01", False, P), (2, "00:01", "", True, P)],
            id="each until the next",
        ),
        pytest.param(
            [(4, 5, P)], 5, [(4, "", "00:00", False, "outside"), (5, "00:00", "", True, P)], id="there before repogen"
        ),
        pytest.param(
            [(None, 1, P), (7, 8, P)],
            8,
            [(1, "00:00", "", False, P), (7, "", "00:01", False, "outside"), (8, "00:01", "", True, P)],
            id="moved outside in between",
        ),
        pytest.param(
            [(None, 1, P), (1, 2, P)],
            1,
            [(1, "00:00", "00:01", False, P), (2, "00:01", "", False, P), (1, "", "", True, "outside")],
            id="moved outside since",
        ),
        pytest.param(
            [(None, 1, P)], None, [(1, "00:00", "", False, P), (None, "", "", True, "outside")], id="deleted since"
        ),
    ],
)
def test_periods(
    steps: list[tuple[int | None, int, str]], current: int | None, expected: list[tuple[object, ...]]
) -> None:
    """A time that was not recorded is empty."""
    result = periods("champion", moves(*steps), current)
    assert expected == [(p.version, p.since[11:16], p.until[11:16], p.present, p.why) for p in result]
