"""Aliases and their history in MLflow's registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from mlflow.store.entities import PagedList

from repogen.artifacts.registry import AliasMove, EntryState, PromotionRun
from repogen.artifacts.tracking import Tracking
from repogen.errors import TrackingError
from repogen.registry.mlflow.client import Connection
from repogen.registry.mlflow.entries import move_key, move_value, moves_of
from repogen.registry.mlflow.registry import MlflowRegistry

from .conftest import built, report

if TYPE_CHECKING:
    from .conftest import Stage

FIRST = AliasMove("champion", None, 1, "me", "2026-11-21T10:00:00Z", "promote", {"p95": "1.0 ms"})
SECOND = AliasMove("champion", 1, 2, "me", "2026-11-21T11:00:00+00:00", "promote", {})


def registered(name: str, track: Any, stage: Stage) -> None:
    """Register two versions."""
    for factor in (1.0, 2.0):
        staged = stage(name, factor)
        track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)


def test_moves_of_an_alias_are_recorded(store: Connection, track: Any, stage: Stage) -> None:
    """Oldest first, for each alias separately."""
    registered("moved", track, stage)
    registry = MlflowRegistry(store)
    registry.move_alias("moved", FIRST)
    registry.move_alias("moved", SECOND)
    other = replace(FIRST, alias="canary", at="2026-11-21T12:00:00Z")
    registry.move_alias("moved", other)
    assert registry.moves("moved", "champion") == (FIRST, SECOND)
    assert registry.moves("moved") == (FIRST, SECOND, other)
    (entry,) = (entry for entry in registry.with_alias("champion") if entry.name == "moved")
    assert (entry.version, entry.aliases) == (2, ("champion",))
    assert [entry.version for entry in registry.entries("moved")] == [2, 1]


def test_alias_that_was_moved_in_the_meantime_is_not_moved(store: Connection, track: Any, stage: Stage) -> None:
    """The decision was based on the old version, and must be made again."""
    registered("raced", track, stage)
    registry = MlflowRegistry(store)
    registry.move_alias("raced", SECOND_TO_NONE)
    with pytest.raises(TrackingError, match="it points to version 2, not to version 1") as caught:
        registry.move_alias("raced", replace(SECOND, old=1, new=1))
    assert caught.value.code == "tracking.alias-moved"
    assert registry.moves("raced") == (SECOND_TO_NONE,)


def test_ensembles_with_an_alias(store: Connection, track: Any, stage: Stage) -> None:
    """Only the version that the alias points to, and only of ensembles; its manifest names the contents."""
    for factor in (1.0, 2.0):
        staged = stage("set", factor)
        origin = replace(staged.manifest.provenance, fingerprint={"step:a": "1" * 64, "step:b": "2" * 64})
        ensemble = replace(staged, manifest=replace(staged.manifest, provenance=origin))
        track("set").log(ensemble, built(staged), report(staged), "", staged.repository)
    registered("single", track, stage)
    registry = MlflowRegistry(store)
    for name in ("set", "single"):
        registry.move_alias(name, replace(SECOND_TO_NONE, alias="best"))
    (entry,) = registry.ensembles_with_alias("best")
    assert (entry.name, entry.version, entry.aliases, entry.steps) == ("set", 2, ("best",), ("a", "b"))
    assert registry.ensembles_with_alias("other") == ()
    assert registry.manifest(entry).content_sha256 == entry.content
    description = store.client.get_model_version("set", "2").description
    assert str(description).splitlines()[0] == "- Ensemble of a, b"
    with pytest.raises(TrackingError, match="is not the one that was registered") as caught:
        registry.manifest(replace(entry, content="0" * 64))
    assert caught.value.code == "tracking.altered"


SECOND_TO_NONE = replace(SECOND, old=None)


def test_promotion_that_was_killed_before_the_move_is_not_recorded(store: Connection, track: Any, stage: Stage) -> None:
    """Its tag counts only if the alias points to the new version."""
    registered("killed", track, stage)
    registry = MlflowRegistry(store)
    registry.move_alias("killed", FIRST)
    store.client.set_registered_model_tag("killed", move_key(SECOND), move_value(SECOND, done=False))
    assert registry.moves("killed") == (FIRST,)
    store.client.set_registered_model_alias("killed", "champion", "2")
    assert registry.moves("killed") == (FIRST, SECOND)


def test_models_that_repogen_did_not_register_are_foreign(store: Connection) -> None:
    """A model that is not registered has no versions; tags of others are ignored."""
    registry = MlflowRegistry(store)
    assert registry.entries("missing") == ()
    assert registry.entries("it's") == ()
    assert registry.moves("missing") == ()
    store.client.create_registered_model("foreign", tags={"repogen.move.champion.x": "no JSON"})
    store.client.create_model_version("foreign", "file:///nowhere")
    (entry,) = registry.entries("foreign")
    assert (entry.state, entry.content) == (EntryState.FOREIGN, "")
    assert registry.moves("foreign") == ()


@pytest.mark.parametrize(("passed", "status"), [(True, "FINISHED"), (False, "FAILED")])
def test_promotion_is_a_run(store: Connection, status: str, *, passed: bool) -> None:
    """With metrics, tags and the report; a refused one has failed."""
    name = f"promote m {status}"
    MlflowRegistry(store).record(PromotionRun(name, passed, {"repogen.outcome": "x"}, {"gate/size": 2.0}, "# page"))
    (run,) = store.client.search_runs([store.experiment()], f"attributes.run_name = '{name}'")
    assert (run.info.status, run.data.tags["repogen.outcome"], run.data.metrics) == (status, "x", {"gate/size": 2.0})
    assert run.data.tags["mlflow.source.name"] == "repogen promote"
    assert [file.path for file in store.client.list_artifacts(run.info.run_id)] == ["report.md"]


def test_move_of_an_earlier_release_has_no_numbers() -> None:
    """Its figures are read as text."""
    record = {
        "alias": "champion",
        "old": 1,
        "new": 2,
        "by": "me",
        "at": "2026-01-01T00:00:00+00:00",
        "why": "promote",
        "figures": {"size.max_mb": "3 MB"},
        "done": True,
    }
    (move,) = moves_of({"repogen.move.champion.x": json.dumps(record)}, {})
    assert (move.figures, move.values) == ({"size.max_mb": "3 MB"}, {})


def test_pages_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may always name another page."""
    page: PagedList[object] = PagedList([], "more")
    client = MagicMock()
    client.search_model_versions.return_value = client.search_registered_models.return_value = page
    monkeypatch.setattr("repogen.registry.mlflow.registry._MAX_PAGES", 5)
    registry = MlflowRegistry(Connection(client, Tracking("http://x", "e", register=True, root=Path()), Lock()))
    for search in (registry.versions, registry.with_alias):
        with pytest.raises(TrackingError, match="more than 5 pages"):
            search("m")


def test_page_with_too_many_entries() -> None:
    """A server may put any number of models on a page."""
    client = MagicMock()
    client.search_registered_models.return_value = PagedList([object()] * 201, "more")
    registry = MlflowRegistry(Connection(client, Tracking("http://x", "e", register=True, root=Path()), Lock()))
    with pytest.raises(TrackingError, match="201 registered models on a page of 200"):
        registry.with_alias("champion")


def test_pages_that_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may be within the time of a response."""
    client = MagicMock()
    client.search_registered_models.return_value = PagedList([], "more")
    monkeypatch.setattr("repogen.registry.mlflow.registry._SECONDS", -1.0)
    registry = MlflowRegistry(Connection(client, Tracking("http://x", "e", register=True, root=Path()), Lock()))
    with pytest.raises(TrackingError, match="takes too long to return registered models"):
        registry.with_alias("champion")
