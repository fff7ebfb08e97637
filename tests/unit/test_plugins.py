"""Entry points: found by name, clear when they cannot be used."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from repogen import plugins
from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh_cache() -> Iterator[None]:
    """Entry points are read once per process; these tests replace them."""
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


def register(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    """Make these the only entry points."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry for entry in entries if entry.group == group])


def test_an_unknown_name_lists_the_registered_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name is rejected with the list of registered names."""
    register(monkeypatch, EntryPoint("known", "json:loads", "repogen.gates"))
    with pytest.raises(SpecError, match=r"'unknown' is not registered in repogen\.gates") as caught:
        plugins.load_plugin("repogen.gates", "unknown")
    assert caught.value.hint == "registered are known"


def test_a_name_registered_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is meant cannot be decided."""
    entries = (EntryPoint("x", "json:loads", "repogen.gates"), EntryPoint("x", "json:dumps", "repogen.gates"))
    register(monkeypatch, *entries)
    with pytest.raises(SpecError, match=r"two entry points of repogen\.gates are named 'x'"):
        plugins.plugins("repogen.gates")


def test_a_plugin_that_fails_to_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the plug-in's, not a bug of repogen."""
    register(monkeypatch, EntryPoint("broken", "no_such_module:thing", "repogen.gates"))
    with pytest.raises(SpecError, match="plug-in 'broken' of no_such_module failed to import: ModuleNotFoundError"):
        plugins.load_plugin("repogen.gates", "broken")


def test_a_plugin_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point's value is imported."""
    register(monkeypatch, EntryPoint("good", "json:loads", "repogen.gates"))
    assert plugins.load_plugin("repogen.gates", "good")("1") == 1  # type: ignore[operator]
