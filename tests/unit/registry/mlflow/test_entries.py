"""Tags of a registry are untrusted: a damaged one does not stop the sync of other models."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from repogen.artifacts.registry import EntryState
from repogen.errors import TrackingError
from repogen.registry.mlflow.entries import STATE, TRITON_VERSION, entry_of, moves_of

MOVE = {
    "alias": "champion", "old": 1, "new": 2, "by": "me", "at": "2026-01-01T00:00:00+00:00", "why": "promote",
    "figures": {}, "done": True,
}  # fmt: skip


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "-1", "\u0663", "1_0", "", "x"])
def test_version_that_is_not_a_number_of_triton(number: str) -> None:
    """It counts as unknown."""
    version: Any = SimpleNamespace(name="m", version=1, tags={STATE: "published", TRITON_VERSION: number})
    entry = entry_of(version, ())
    assert (entry.state, entry.triton_version) == (EntryState.PUBLISHED, None)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000, "NaN", '"\\ud800"', "{}", json.dumps({**MOVE, "new": "2"})])
def test_damaged_move_is_ignored(text: str) -> None:
    """The other moves are listed."""
    tags = {"repogen.move.champion.1": text, "repogen.move.champion.2": json.dumps(MOVE)}
    assert [move.new for move in moves_of(tags, {"champion": 2})][-1] == 2


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "-1", "x", None])
def test_version_of_the_registry_that_is_not_a_number(number: object) -> None:
    """Nothing is changed, because the model could look like one that lost its alias."""
    version: Any = SimpleNamespace(name="m", version=number, tags={})
    with pytest.raises(TrackingError, match="which is not a number"):
        entry_of(version, ())
