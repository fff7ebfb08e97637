"""`repogen sync` into a store: follow an alias, go back without a download, archive a model and restore it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.api import registry as api
from repogen.files.url import location
from repogen.stores.open import open_store
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedRegistry:
    """Return an empty registry, which the API uses."""
    simulated = SimulatedRegistry(tmp_path / "registry")
    monkeypatch.setattr(api, "open_registry", lambda *_: simulated)
    return simulated


def served(url: str) -> dict[str, tuple[int, ...]]:
    """Return the versions that each model of a store serves."""
    return {model.name: model.served for model in repogen.versions(repository=url).models}


def models(url: str) -> set[str]:
    """Return the repositories and models that the bucket has: the repository's, and those of the archive."""
    keys = [each.key for each in open_store(location(url)).list("")]  # type: ignore[arg-type]
    return {"/".join(key.split("/")[1:3]) for key in keys if key.count("/") > 2}


def test_follows_an_alias(registry: SimulatedRegistry, url: str, tmp_path: Path) -> None:
    """What is served changes with the alias; other commands that write reject the repository."""
    for number in (1, 2):
        registry.register(version_of_bytes(tmp_path / f"m{number}", "m", b"%d" % number))
    registry.point("m", "champion", 1)
    registry.register(version_of_bytes(tmp_path / "n", "n", b"n"), "champion")
    assert repogen.sync(url, alias="champion").changed
    assert served(url) == {"m": (1,), "n": (1,)}
    assert not repogen.sync(url, alias="champion").changed
    registry.point("m", "champion", 2)
    assert repogen.sync(url, alias="champion", dry_run=True).changed
    assert served(url)["m"] == (1,)
    repogen.sync(url, alias="champion")
    registry.point("m", "champion", 1)
    repogen.sync(url, alias="champion")
    assert served(url)["m"] == (1,)
    registry.point("m", "champion", None)
    repogen.sync(url, alias="champion")
    assert (served(url), models(url)) == ({"n": (1,)}, {"models/n", "models.unserved/m"})
    registry.point("m", "champion", 2)
    repogen.sync(url, alias="champion", prune=True)
    assert (served(url), models(url)) == ({"m": (2,), "n": (1,)}, {"models/m", "models/n"})
    assert [version.version for version in repogen.versions("m", repository=url).models[0].versions] == [2]
    assert repogen.verify(url).findings == ()
