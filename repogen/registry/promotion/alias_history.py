"""Derives from the recorded moves of an alias which versions it pointed to, and the target of a rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from repogen.artifacts.registry import AliasMove

ROLLBACK = "rollback"
OUTSIDE = "outside"
PROMOTE = "promote"


def rollback_target(moves: Iterable[AliasMove], current: int) -> int | None:
    """Return the version that a rollback from ``current`` moves to; None if no earlier version is recorded.

    The moves are replayed on a stack: a promotion pushes its version, a rollback pops the version that it left. Two
    rollbacks in a row therefore go two versions back, not back and forth. A version that the alias had without a record
    was set outside of repogen, and is a valid target.

    Args:
        moves: Recorded moves of one alias, oldest first.
        current: Version that the alias points to now.
    """
    stack: list[int] = []
    for move in moves:
        _push(stack, move.old)
        if move.why == ROLLBACK:
            _pop_to(stack, move.new)
        _push(stack, move.new)
    _push(stack, current)
    return stack[-2] if len(stack) > 1 else None


def _push(stack: list[int], version: int | None) -> None:
    if version is not None and stack[-1:] != [version]:
        stack.append(version)


def _pop_to(stack: list[int], version: int) -> None:
    """Remove the top, and all entries above the version that a rollback moved to."""
    previous = stack[:-1]
    while previous and previous[-1] != version:
        previous.pop()
    stack[:] = previous


def periods(alias: str, moves: Sequence[AliasMove], current: int | None) -> tuple[Period, ...]:
    """Return the periods in which an alias pointed to each version, including moves outside of repogen.

    Args:
        alias: The alias.
        moves: Its recorded moves, oldest first.
        current: Version that it points to now; None if the alias does not exist.
    """
    return tuple(_periods(alias, moves, current))


def _periods(alias: str, moves: Sequence[AliasMove], current: int | None) -> Iterator[Period]:
    last_move: AliasMove | None = None
    for move in moves:
        if last_move is not None:
            yield _period(last_move, until=move.at if move.old == last_move.new else "", present=False)
        if (last_move is None and move.old is not None) or (last_move is not None and move.old != last_move.new):
            yield Period(alias, move.old, "", move.at, present=False, by="", why=OUTSIDE)
        last_move = move
    if last_move is not None:
        yield _period(last_move, until="", present=current == last_move.new)
    if (last_move is None and current is not None) or (last_move is not None and current != last_move.new):
        yield Period(alias, current, "", "", present=True, by="", why=OUTSIDE)


def _period(move: AliasMove, *, until: str, present: bool) -> Period:
    return Period(
        move.alias, move.new, move.at, until, present, move.by, move.why, move.figures, move.values, move.ensemble
    )
