"""What the recorded moves of an alias mean: what served when, and what a rollback goes back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.promotion import Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from repogen.artifacts.registry import AliasMove

ROLLBACK = "rollback"
OUTSIDE = "outside"
PROMOTE = "promote"


def before(moves: Iterable[AliasMove], present: int) -> int | None:
    """Return the version to go back to from ``present``; None when there is none.

    The moves are replayed on a stack: a promotion puts its version on top, a rollback takes off what it left. So two
    rollbacks in a row go two versions back, not to and fro. A version that an alias had without a record was put there
    by somebody else, and is one that can be gone back to.

    Args:
        moves: Recorded moves of one alias, oldest first.
        present: Version that the alias points to now.
    """
    served: list[int] = []
    for move in moves:
        _push(served, move.old)
        if move.why == ROLLBACK:
            _back(served, move.new)
        _push(served, move.new)
    _push(served, present)
    return served[-2] if len(served) > 1 else None


def _push(served: list[int], version: int | None) -> None:
    if version is not None and served[-1:] != [version]:
        served.append(version)


def _back(served: list[int], version: int) -> None:
    """Take off what was left, and whatever lay above the version that was gone back to."""
    below = served[:-1]
    while below and below[-1] != version:
        below.pop()
    served[:] = below


def periods(alias: str, moves: Sequence[AliasMove], present: int | None) -> tuple[Period, ...]:
    """Return which version an alias pointed to when, moves that nobody recorded included.

    Args:
        alias: The alias.
        moves: Its recorded moves, oldest first.
        present: Version that it points to now; None when there is no such alias.
    """
    return tuple(_periods(alias, moves, present))


def _periods(alias: str, moves: Sequence[AliasMove], present: int | None) -> Iterator[Period]:
    last: AliasMove | None = None
    for move in moves:
        if last is not None:
            untouched = move.old == last.new
            yield _recorded(last, until=move.at if untouched else "", present=False)
        if (last is None and move.old is not None) or (last is not None and move.old != last.new):
            yield Period(alias, move.old, "", move.at, present=False, by="", why=OUTSIDE)
        last = move
    if last is not None:
        yield _recorded(last, until="", present=present == last.new)
    if (last is None and present is not None) or (last is not None and present != last.new):
        yield Period(alias, present, "", "", present=True, by="", why=OUTSIDE)


def _recorded(move: AliasMove, *, until: str, present: bool) -> Period:
    return Period(move.alias, move.new, move.at, until, present, move.by, move.why, move.figures)
