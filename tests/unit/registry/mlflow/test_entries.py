"""Tags of a registry are untrusted: a damaged one does not stop the sync of other models."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from repogen.artifacts.registry import AliasMove, EntryState
from repogen.errors import TrackingError
from repogen.registry.mlflow.entries import STATE, TRITON_VERSION, entry_of, move_value, moves_of, tag_text

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


@pytest.mark.parametrize(
    "move",
    [
        AliasMove("champion", None, 1, "ann", "2026-01-01T00:00:00+00:00", "promote", {}),
        AliasMove("a-b_C", 1, 12, "Ann Lee at work (not confirmed)", "2026-01-01T00:00:00Z", "rollback", {}, {}, "e 3"),
        AliasMove("champion", 1, 2, "", "2026-01-01T00:00:00Z", "promote",
                  {"smoke": "18/18 checks [all]", "size.max_mb": "1 MB = 2: x", 'evaluation[a "b": = 1]': "0.5",
                   "server": "Triton 2.51.0 (embedded), indicative"},
                  {"size.max_mb": 1.25, 'evaluation[a "b": = 1]': 5e-324, "only a value": -1e300}),
    ],
)  # fmt: skip
def test_move_is_text_that_can_be_parsed(move: AliasMove) -> None:
    """People read it on MLflow's page, and `repogen history` has every figure and number of it."""
    text = move_value(move, done=True)
    assert text.startswith(f"{move.alias}: ")
    assert "{" not in text
    assert moves_of({"repogen.move.x": text}, {}) == [move]
    unconfirmed = {"repogen.move.x": move_value(move, done=False)}
    assert moves_of(unconfirmed, {move.alias: move.new}) == [move]
    assert moves_of(unconfirmed, {move.alias: move.new + 1}) == []


def test_move_of_a_development_build() -> None:
    """They are JSON; their figures and numbers are read as well."""
    record = {**MOVE, "figures": {"size.max_mb": "3 MB [<= 4]"}, "values": {"size.max_mb": 3.0}}
    (move,) = moves_of({"repogen.move.x": json.dumps(record)}, {})
    assert (move.old, move.new, move.figures, move.values, move.ensemble) == (
        1, 2, {"size.max_mb": "3 MB [<= 4]"}, {"size.max_mb": 3.0}, "")  # fmt: skip


def test_move_with_very_many_values() -> None:
    """It is ignored: each value of a wrong type would need a kilobyte of memory."""
    record = {**MOVE, "figures": {str(number): "1" for number in range(10_000)}, "values": {}}
    assert moves_of({"repogen.move.x": json.dumps(record)}, {}) == []


@pytest.mark.parametrize(
    "text",
    ["champion: version 1 -> x, promote by me at now", f"champion: version 1 -> {'9' * 5000}, promote by me at now",
     "champion: version 1 -> 2", " at " * 5000, 'champion: none -> 1, promote by me at now\n"\\: 1\ny = nan: 2'],
)  # fmt: skip
def test_damaged_text_of_a_move(text: str) -> None:
    """It is ignored, as are lines that are not figures, and numbers that JSON does not have."""
    assert [(move.new, move.figures, move.values) for move in moves_of({"repogen.move.x": text}, {})] in (
        [], [(1, {"y": "2"}, {})])  # fmt: skip


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "-1", "x", None])
def test_version_of_the_registry_that_is_not_a_number(number: object) -> None:
    """Nothing is changed, because the model could look like one that lost its alias."""
    version: Any = SimpleNamespace(name="m", version=number, tags={})
    with pytest.raises(TrackingError, match="which is not a number"):
        entry_of(version, ())


def test_name_that_is_not_utf8_in_a_tag() -> None:
    """MLflow and its databases accept UTF-8 only."""
    assert tag_text("/caf\udce9/r") == r"/caf\udce9/r"
    move = AliasMove("champion", 1, 2, "caf\udce9", "2026-01-01T00:00:00+00:00", "promote", {"smoke": "\udcff"})
    assert move_value(move, done=True).encode()
