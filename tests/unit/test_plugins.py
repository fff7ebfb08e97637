"""Tests of plug-ins: finding entry points by name, and clear errors for unusable ones."""

from __future__ import annotations

from importlib.metadata import Distribution, EntryPoint
from typing import TYPE_CHECKING

import pytest

from repogen import plugins
from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh_cache() -> Iterator[None]:
    """Clear the cache of entry points around each test."""
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


def register(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    """Replace all entry points."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry for entry in entries if entry.group == group])


def test_unknown_name_lists_the_registered_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name is rejected with the list of registered names."""
    register(monkeypatch, EntryPoint("known", "json:loads", "repogen.gates"))
    with pytest.raises(SpecError, match=r"'unknown' is not registered in repogen\.gates") as caught:
        plugins.load_plugin("repogen.gates", "unknown")
    assert caught.value.hint == "registered names: known"


def test_duplicate_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages that register the same name are an error."""
    entries = (EntryPoint("x", "json:loads", "repogen.gates"), EntryPoint("x", "json:dumps", "repogen.gates"))
    register(monkeypatch, *entries)
    with pytest.raises(SpecError, match=r"two entry points of repogen\.gates are named 'x'"):
        plugins.plugins("repogen.gates")


def test_failed_import_names_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed import is reported as the plug-in's error, not a bug of repogen."""
    register(monkeypatch, EntryPoint("broken", "no_such_module:thing", "repogen.gates"))
    with pytest.raises(SpecError, match="plug-in 'broken' of no_such_module failed to import: ModuleNotFoundError"):
        plugins.load_plugin("repogen.gates", "broken")


def test_plugin_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a plug-in imports the value of its entry point."""
    register(monkeypatch, EntryPoint("good", "json:loads", "repogen.gates"))
    assert plugins.load_plugin("repogen.gates", "good")("1") == 1  # type: ignore[operator]


def test_name_of_a_distribution_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged build asks for the plug-ins of every model, and the name is in the metadata."""
    parsed: list[Distribution] = []
    parse = Distribution.metadata.fget  # type: ignore[attr-defined] # a property

    def metadata(distribution: Distribution) -> object:
        parsed.append(distribution)
        return parse(distribution)

    monkeypatch.setattr(Distribution, "metadata", property(metadata))
    for _ in range(100):
        assert plugins.plugin_distributions("repogen.sources", ["torch", "onnx"]) == set()
    assert len(parsed) <= 2 * len(plugins.plugins("repogen.sources"))
